package symbol

// EachFunction calls yield with every function of the file's symbol tables that has its
// own address, by address: its name in the table, a function that returns the readable
// name (more expensive), and its start. It stops when yield returns false. Functions in
// no table (of a stripped file), or that the compiler inlined into all callers, are
// missing.
func (f *File) EachFunction(yield func(raw string, readable func() string, vaddr uint64) bool) {
	if f == nil {
		return
	}
	f.loadSymbols()
	if f.syms == nil {
		return
	}
	for i := range f.syms.syms {
		s := &f.syms.syms[i]
		if s.kind >= kindNoType {
			continue
		}
		raw := f.syms.name(s)
		if raw == "" {
			continue
		}
		readable := func() string {
			name, _ := f.display("", raw)
			return name
		}
		if !yield(raw, readable, s.lo) {
			return
		}
	}
}

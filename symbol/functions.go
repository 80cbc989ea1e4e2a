package symbol

// EachFunction calls yield with every function of the file's symbol tables that
// has a place of its own, by address: its name as the table has it, a function
// that makes that readable, which costs more, and where it begins. It ends when
// yield returns false. Functions that are in no table (a stripped file's), or
// that the compiler has put into all their callers, are not there.
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

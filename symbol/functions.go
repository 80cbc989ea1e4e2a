package symbol

import "sort"

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

// Extent is the end of the function that begins at vaddr, as the symbol table has it. ok is false
// if no sized symbol begins there.
func (f *File) Extent(vaddr uint64) (end uint64, ok bool) {
	if f == nil {
		return 0, false
	}
	f.loadSymbols()
	if f.syms == nil {
		return 0, false
	}
	i := sort.Search(len(f.syms.syms), func(i int) bool { return f.syms.syms[i].lo >= vaddr })
	if i == len(f.syms.syms) || f.syms.syms[i].lo != vaddr {
		return 0, false
	}
	s := &f.syms.syms[i]
	return s.hi, s.sized && s.hi > vaddr
}

// IsGo reports whether the Go compiler made the code at vaddr, by the Go runtime's own tables.
func (f *File) IsGo(vaddr uint64) bool {
	if f == nil || !f.isGo {
		return false
	}
	t := f.goTable()
	if t == nil {
		return false
	}
	var buf [8]Frame
	return len(f.goFrames(t, vaddr, buf[:0])) > 0
}

// EachInlined calls yield for each place into which the compiler inlined a function, by the DWARF:
// the readable name of that function, and the file that declares it ("" unknown). It ends when yield
// returns false. Without DWARF there are none.
func (f *File) EachInlined(yield func(name, file string) bool) {
	if f == nil {
		return
	}
	f.dwarfCalls(0) // opens it
	if f.dw == nil {
		return
	}
	known := map[[2]string]string{}
	var err error
	func() {
		defer recovered(&err, "DWARF")
		f.dw.EachInlined(func(name, linkage, file string) bool {
			key := [2]string{name, linkage}
			readable, ok := known[key]
			if !ok {
				if f.isGo && linkage == "" {
					readable = f.goName(name)
				} else {
					readable, _ = f.display(name, linkage)
				}
				known[key] = readable
			}
			return yield(readable, file)
		})
	}()
	f.problem("inlined calls", err)
}

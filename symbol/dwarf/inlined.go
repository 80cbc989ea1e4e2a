package dwarf

// EachInlined calls yield for each place into which the compiler inlined a function: its name, its
// linkage name ("" if it has none) and the file that declares it ("" unknown). It reads the DWARF of
// the whole file, within the same limits as Lookup. It ends when yield returns false.
func (d *Data) EachInlined(yield func(name, linkage, file string) bool) {
	if d == nil {
		return
	}
	d.scan()
	for _, u := range d.units {
		if !u.eachInlined(yield) {
			return
		}
		d.trim()
	}
}

func (u *unit) eachInlined(yield func(name, linkage, file string) bool) bool {
	u.load()
	u.d.last = u
	f := u
	if u.split != nil {
		f = u.split
	}
	done := 0
	for i := range f.funcs {
		pos := f.funcs[i].id
		if i > 0 && f.funcs[i-1].id == pos || pos == done {
			continue // a range of the same function
		}
		done = pos
		t := f.tree(pos)
		if !u.d.toil(len(t.calls)) {
			return false
		}
		for j := range t.calls {
			in := t.calls[j].origin.info()
			if !yield(in.name, in.linkage, in.file) {
				return false
			}
		}
	}
	return true
}

package top

// Process is the sum for one process of a table of several.
type Process struct {
	PID     int
	Comm    string
	Ended   bool
	Threads int // with a row, or omitted as idle
	Values      // over the window: Wall of the threads with a row, CPU of all
}

// Merge adds the table of one process, of which p has PID, Comm and Ended. Functions of the same
// name and module are one function. seq maps the process's Row.Seq to that of the whole table.
func (t *Table) Merge(x *Table, p Process, seq func(int) int) {
	if len(t.Processes) == 0 {
		t.From, t.To = x.From, x.To
	}
	t.From, t.To, t.Span = min(t.From, x.From), max(t.To, x.To), max(t.Span, x.Span)
	t.Lost, t.Folded = t.Lost+x.Lost, t.Folded+x.Folded
	t.Left.Join(&x.Left)
	t.IdleCPU += x.IdleCPU
	p.Threads = len(x.Threads) + x.Left.Threads
	p.CPU += x.IdleCPU
	for _, r := range x.Threads {
		p.add(r.Values)
		r.PID, r.Seq = p.PID, seq(r.Seq)
		t.Threads = append(t.Threads, r)
	}
	if t.byName == nil {
		t.byName = map[funcKey]int{}
	}
	for i := range x.Funcs {
		f := &x.Funcs[i]
		key := funcKey{f.Name, f.Module}
		at, ok := t.byName[key]
		if !ok {
			at = len(t.Funcs)
			t.byName[key] = at
			t.Funcs = append(t.Funcs, Func{Name: f.Name, Module: f.Module})
		}
		t.Funcs[at].Self.add(f.Self)
		t.Funcs[at].Total.add(f.Total)
	}
	t.Processes = append(t.Processes, p)
}

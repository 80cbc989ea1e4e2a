package query

import (
	"cmp"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
)

// profile writes total and self time of each function. A function that is on a stack several times
// counts once.
func (f *filler) profile() {
	if !f.asked("profile") {
		return
	}
	v, tree := f.v, tally.NewTree()
	var own []tally.Values // by node
	for i := range v.Threads {
		t := tally.Of(v, &v.Threads[i], tree)
		own = append(own, make([]tally.Values, tree.Len()-len(own))...)
		for j := range t.Len() {
			own[t.Key(j).Node].Add(t.Values(j))
		}
	}
	self, total := tally.Totals(tree, own, (*tally.Values).Add, func(label int32, dst []int) []int {
		switch label {
		case tally.Unknown: // covered by table gaps
		case tally.NotSampled:
			dst = append(dst, v.UnseenFunc())
		default:
			for _, fr := range v.Names.Locs()[label].Frames {
				dst = append(dst, fr.Func)
			}
		}
		return dst
	})
	none := &tally.Values{}
	for fn := range v.Names.Funcs {
		r := total[fn]
		if r == nil {
			continue
		}
		s := cmp.Or(self[fn], none)
		d := &v.Names.Funcs[fn]
		f.row("profile", v.FuncName(fn), orNull(view.Text(d.File, view.MaxName)), zeroNull(int64(d.StartLine)),
			s.CPU, r.CPU, s.Wall, r.Wall, r.Samples, f.process)
	}
}

// threadStates writes the scheduler's times for a thread.
func (f *filler) threadStates(th *view.Thread) {
	if !f.asked("thread_states") {
		return
	}
	s := f.v.States(th)
	f.row("thread_states", f.thread(th.Seq), th.Label, s.Observed, s.Running, s.Runnable, s.Blocked, s.Disk, s.Fault, s.Stopped, s.Locks, int64(s.Switches))
}

package ask

import (
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
)

// profileRow accumulates one function over the selected threads.
type profileRow struct {
	selfCPU, totalCPU, selfWall, totalWall, samples int64
	seen                                            int // number of the newest stack that contains it
}

// profile writes total and self time of each function. A function that is on a stack several times
// counts once.
func (f *filler) profile() {
	if !f.asked("profile") {
		return
	}
	v, tree := f.v, tally.NewTree()
	rows := map[int]*profileRow{}
	var path []int32
	stacks := 0
	add := func(fn int, x *tally.Values, self bool) {
		r := rows[fn]
		if r == nil {
			r = &profileRow{}
			rows[fn] = r
		}
		if self {
			r.selfCPU += x.CPU
			r.selfWall += x.Wall
		}
		if r.seen != stacks {
			r.seen = stacks
			r.totalCPU += x.CPU
			r.totalWall += x.Wall
			r.samples += x.Samples
		}
	}
	for i := range v.Threads {
		t := tally.Of(v, &v.Threads[i], tree)
		for j := range t.Len() {
			x := t.Values(j)
			path = tree.Path(t.Key(j).Node, path[:0])
			stacks++
			self := true
			for _, l := range path { // innermost frame first
				switch l {
				case tally.Unknown: // covered by table gaps
				case tally.NotSampled:
					add(v.UnseenFunc(), x, self)
				default:
					for _, fr := range v.Names.Locs()[l].Frames {
						add(fr.Func, x, self)
						self = false
					}
				}
			}
		}
	}
	for fn := range v.Names.Funcs {
		if r := rows[fn]; r != nil {
			d := &v.Names.Funcs[fn]
			f.row("profile", v.FuncName(fn), orNull(view.Text(d.File, view.MaxName)), zeroNull(int64(d.StartLine)),
				r.selfCPU, r.totalCPU, r.selfWall, r.totalWall, r.samples)
		}
	}
}

// threadStates writes the scheduler's times for a thread.
func (f *filler) threadStates(th *view.Thread) {
	if !f.asked("thread_states") {
		return
	}
	s := f.v.States(th)
	f.row("thread_states", th.Seq, th.Label, s.Observed, s.Running, s.Runnable, s.Blocked, s.Disk, s.Fault, s.Stopped, s.Locks, int64(s.Switches))
}

package oneshot

import (
	"fmt"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/unwind/managed"
)

// followed is a runtime of the process.
type followed struct {
	*lang.Language
	rt    lang.Runtime
	table *managed.Table // nil: rt names the frames itself (lang.Language.Direct)
}

// follow adds the functions of all languages whose runtimes the process has to its stacks.
func (v *view) follow() {
	for _, l := range live.Languages() {
		var table *managed.Table
		if !l.Direct {
			table = managed.NewTable(l.Range, nil)
		}
		v.followOne(l, table)
	}
}

// followOne looks for a language's runtime.
func (v *view) followOne(l *lang.Language, table *managed.Table) {
	rt, err := v.t.Follow(l, table)
	if err != nil {
		v.lacks = append(v.lacks, fmt.Sprintf("process %d: %v", v.p.PID(), err))
	}
	if rt != nil {
		v.names.followed = append(v.names.followed, followed{l, rt, table})
	}
}

// doubts returns the reasons why functions of runtimes are missing on the sampled stacks.
func (v *view) doubts() (out []string) {
	for _, x := range v.names.followed {
		if err := x.rt.Problem(); err != nil {
			out = append(out, fmt.Sprintf("process %d: %v", v.p.PID(), err))
		}
	}
	return out
}

// learn reads what names the frames of a stack that was just sampled, and drops those that their language
// does not show.
func (n *names) learn(frames []stack.Frame) []stack.Frame {
	for _, x := range n.followed {
		if x.table == nil {
			frames = x.rt.Frames(frames)
		}
	}
	return frames
}

// managed fills in a frame of a runtime, or a gap.
func (n *names) managed(in *stack.Frame, f stacks.Frame) stacks.Frame {
	if in.Kind == stack.KindError {
		f.Addr, f.Func, f.NoOffset = 0, stack.Reason(in.PC).String(), true
		return f
	}
	rng, made := managed.At(in.PC)
	for _, x := range n.followed {
		switch {
		case made && x.table != nil && x.Range == rng:
			if fn := x.table.Find(in.PC); fn != nil {
				s := naming.ManagedFrame(fn, in.PC)
				f.Func, f.NoOffset, f.File, f.Line = s.Func, true, s.File, s.Line
			}
			return f
		case !made && x.table == nil:
			if fn, ok := x.rt.Function(in); ok {
				f.Func, f.NoOffset, f.File, f.Line = fn.Name, true, fn.File, fn.Line
				return f
			}
		}
	}
	return f
}

package oneshot

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/stacks"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/gopcln"
)

// NoGoError says that a process has no goroutines to show, and why.
type NoGoError struct {
	PID int
	Why error // nil: it is no Go program
}

func (e *NoGoError) Error() string {
	if e.Why == nil {
		return fmt.Sprintf("process %d has no goroutines: it is no Go program", e.PID)
	}
	return fmt.Sprintf("goroutines of process %d: %v", e.PID, e.Why)
}

func (e *NoGoError) Unwrap() error { return e.Why }

// routine is one goroutine that is looked at.
type routine struct {
	gopcln.Goroutine
	at     stack.Time
	frames []stack.Frame
	reason stack.Reason
}

// rounds is how often goroutines that went on while they were read are read anew.
const rounds = 3

// census reads all goroutines, and the stacks of those that no thread runs. It
// stops nobody: one that went on meanwhile is read again.
func (v *view) census() error {
	space := v.t.Space()
	c := space.Census()
	if c == nil {
		return &NoGoError{PID: v.p.PID()}
	}
	w := unwind.NewWalker(space)
	read := map[uint64]*routine{}
	for range rounds {
		gs, err := c.Goroutines(nil)
		if err != nil {
			return &NoGoError{PID: v.p.PID(), Why: err}
		}
		at := target.Now()
		now := make(map[uint64]*routine, len(gs))
		same := true
		for i := range gs {
			r := read[gs[i].ID]
			if r == nil || r.Goroutine != gs[i] {
				same = false
				r = &routine{Goroutine: gs[i], at: at}
				if r.Status != gopcln.GoRunning {
					frames, reason := w.Goroutine(&r.Goroutine)
					if reason != stack.ReasonNone && len(frames) > 0 {
						frames = frames[:len(frames)-1]
					}
					r.frames, r.reason = slices.Clone(frames), reason
				}
			}
			now[r.ID] = r
		}
		if read = now; same {
			break
		}
	}
	for _, r := range read {
		if r.Status == gopcln.GoRunning {
			v.running(r)
		}
		v.routines = append(v.routines, r)
	}
	slices.SortFunc(v.routines, func(a, b *routine) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

// running takes the stack of the thread that runs r, as it was looked at.
func (v *view) running(r *routine) {
	r.reason = stack.ReasonEmpty
	if e := v.eye(r.Thread); e != nil && e.chosen {
		r.frames, r.reason = e.frames, e.reason
	}
}

// eye is the thread with that number, as the process itself sees it; nil for 0.
func (v *view) eye(tid stack.TID) *eye {
	if tid == 0 {
		return nil
	}
	for _, e := range v.eyes {
		if e.info.NSTID == int(tid) || e.info.NSTID == 0 && e.info.TID == tid {
			return e
		}
	}
	return nil
}

// birth is the go statement, as a frame.
func (r *routine) birth() []stack.Frame {
	if r.Started == 0 || r.ID == 1 {
		return nil // the runtime itself starts the first
	}
	return []stack.Frame{{PC: r.Started, Kind: stack.KindGo, Trust: stack.TrustTable}}
}

func (v *view) goroutines() []stacks.Goroutine {
	var out []stacks.Goroutine
	for _, r := range v.routines {
		g := stacks.Goroutine{ID: r.ID, Parent: r.Parent, Status: r.Status.String(), Wait: r.Wait, Locked: r.Locked, For: -1,
			Frames: v.names.frames(r.frames), Truncated: r.reason}
		if r.Since > 0 && r.at > r.Since {
			g.For = int64(r.at - r.Since)
		}
		if e := v.eye(r.Thread); e != nil {
			g.Thread = e.info.TID
		}
		if fs := v.names.frames(r.birth()); len(fs) > 0 {
			g.CreatedBy = &fs[len(fs)-1]
		}
		out = append(out, g)
	}
	return out
}

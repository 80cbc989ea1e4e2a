package oneshot

import (
	"fmt"

	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/gopcln"
)

// NoGoError reports that a process has no goroutines to show, and why.
type NoGoError struct {
	PID int
	Why error // nil: it is not a Go program
}

func (e *NoGoError) Error() string {
	if e.Why == nil {
		return fmt.Sprintf("process %d has no goroutines: not a Go program", e.PID)
	}
	return fmt.Sprintf("goroutines of process %d: %v", e.PID, e.Why)
}

func (e *NoGoError) Unwrap() error { return e.Why }

// routine is one sampled goroutine.
type routine struct {
	gopcln.Goroutine
	at     stack.Time
	frames []stack.Frame
	reason stack.Reason
	birth  []stack.Frame // the go statement, as a frame
	wait   string        // the reason it waits
}

// census reads all goroutines, and the stacks of those that no thread runs. It stops no
// thread.
func (v *view) census() error {
	look := v.t.Routines()
	if look == nil {
		return &NoGoError{PID: v.p.PID()}
	}
	all, err := look.Look()
	if err != nil {
		return &NoGoError{PID: v.p.PID(), Why: err}
	}
	v.unread = look.Lost
	for i := range all {
		g := &all[i]
		r := &routine{Goroutine: g.Goroutine, at: g.At, reason: g.Reason, wait: look.Wait(g)}
		if g.Stack >= 0 {
			r.frames = look.Stacks[g.Stack]
		}
		if f, ok := g.Birth(); ok {
			r.birth = []stack.Frame{f}
		}
		if r.Status == gopcln.GoRunning {
			v.running(r)
		}
		v.routines = append(v.routines, r)
	}
	return nil
}

// running copies the stack of the thread that runs r from the thread's sample.
func (v *view) running(r *routine) {
	r.reason = stack.ReasonEmpty
	if e := v.eye(r.Thread); e != nil && e.chosen {
		r.frames, r.reason = e.frames, e.reason
	}
}

// eye returns the thread that has number tid in the process's own namespace; nil for 0.
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

func (v *view) goroutines() []stacks.Goroutine {
	var out []stacks.Goroutine
	for _, r := range v.routines {
		g := stacks.Goroutine{ID: r.ID, Parent: r.Parent, Status: r.Status.String(), Wait: r.wait, Locked: r.Locked, For: -1,
			Frames: v.names.frames(r.frames), Truncated: r.reason}
		if r.Since > 0 && r.at > r.Since {
			g.For = int64(r.at - r.Since)
		}
		if e := v.eye(r.Thread); e != nil {
			g.Thread = e.info.TID
		}
		if fs := v.names.frames(r.birth); len(fs) > 0 {
			g.CreatedBy = &fs[len(fs)-1]
		}
		out = append(out, g)
	}
	return out
}

package ruby

import (
	"errors"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/rule"
)

// Stacks is CRuby's part in walks.
var Stacks = &unwind.Language{
	Name:       "CRuby",
	Properties: unwind.Beside,
	Find:       find,
}

// Stepper shows the functions of CRuby on the stacks of a process.
type Stepper struct {
	unwind.NoPart
	*Follower
}

// thread holds what the last walk of a thread found.
type thread struct {
	track Track
	// unread: the last walk saw the interpreter run, but no State is known.
	unread bool
	read   bool // the frames of the copy were read during the stop
}

type walk struct{ merged []stack.Frame }

var (
	threads unwind.Slot[thread]
	walks   unwind.Slot[walk]
	images  = unwind.Fact[*Image]{Read: Load}
)

// find looks for CRuby in the files that a process has mapped.
func find(s *unwind.Space, table *managed.Table) (unwind.Stepper, error) {
	for c := range s.Code() {
		// Other programs must not pay for the search.
		if c.Again || !c.Own && !strings.Contains(c.Path[strings.LastIndexByte(c.Path, '/')+1:], "ruby") {
			continue
		}
		bias, ok := c.Bias()
		if !ok {
			continue
		}
		img, err := images.Of(&c)
		var version *VersionError
		switch {
		case errors.As(err, &version):
			return nil, err
		case err != nil:
			continue // not Ruby, or not ELF
		}
		rt, err := New(img, bias, s.Memory())
		if err != nil {
			return nil, err
		}
		return &Stepper{Follower: rt.Follow(s.Memory(), table)}, nil
	}
	return nil, nil
}

// Plan implements unwind.Stepper.
func (s *Stepper) Plan(th *unwind.Thread, out []rule.Span) []rule.Span {
	x := threads.Of(th)
	x.read = false
	return s.Follower.Plan(&x.track, int32(th.TID), x.unread, out)
}

// Asks implements unwind.Stepper.
func (s *Stepper) Asks(th *unwind.Thread) bool { return threads.Of(th).track.Asks() }

// More implements unwind.Stepper: it reads the frames during the stop.
func (s *Stepper) More(w *unwind.Walker, th *unwind.Thread, regs *stack.Regs, mem *unwind.Copy, out []rule.Span) ([]rule.Span, int) {
	x := threads.Of(th)
	m := w.Reads()
	defer m.End()
	s.Read(&x.track, blocks{mem}, m, regs.PC, true)
	x.read = true
	return out, m.Reads
}

// Merge implements unwind.Stepper.
func (s *Stepper) Merge(w *unwind.Walker, th *unwind.Thread, frames []stack.Frame) []stack.Frame {
	x, out := threads.Of(th), walks.In(w)
	if !x.read {
		var pc uint64
		if len(frames) > 0 {
			pc = frames[0].PC
		}
		s.Read(&x.track, blocks{w.Copied()}, w.Meter(), pc, false)
	}
	x.read, x.unread = false, false // one Plan may serve several copies
	if !x.track.Have {
		merged, unread := Unread(out.merged[:0], frames, s.rt.Eval())
		if x.unread = unread; unread {
			out.merged = merged
		}
		return merged
	}
	if len(x.track.Stack.Frames) == 0 && x.track.Stack.Reason == stack.ReasonNone {
		return frames
	}
	out.merged = x.track.Stack.Merge(out.merged[:0], frames, s.rt.Eval())
	return out.merged
}

// Report implements unwind.Stepper.
func (s *Stepper) Report(th *unwind.Thread) unwind.Report {
	x := threads.Of(th)
	t := &x.track
	return unwind.Report{
		Gap:    x.unread || t.Have && (t.Gaps || t.Stack.Cut || t.Stack.Reason != stack.ReasonNone),
		Lacks:  t.Lacks,
		Torn:   t.Torn,
		Locked: t.Locked,
	}
}

// blocks reads a copy of memory.
type blocks struct{ *unwind.Copy }

// ReadAt implements io.ReaderAt.
func (c blocks) ReadAt(b []byte, addr int64) (int, error) {
	for i := len(c.Blocks) - 1; i >= 0; i-- {
		k := &c.Blocks[i]
		if o := uint64(addr) - k.Addr; o < uint64(len(k.Data)) && uint64(len(k.Data))-o >= uint64(len(b)) {
			return copy(b, k.Data[o:]), nil
		}
	}
	return 0, ErrMissing
}

package python

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// expected is Language.Expect: _PyRuntime is in the file, and the interpreters that it lists have the states of their threads.
func expected(s *unwind.Space) (l stack.Links, ok bool) {
	for c := range s.Code() {
		if c.Again || !mayBePython(&c) {
			continue
		}
		bias, ok := c.Bias()
		if !ok {
			continue
		}
		img, err := pythonImage.Of(&c)
		if err != nil {
			continue
		}
		rt := &Runtime{img: img, bias: bias}
		if rt.l, err = img.layout(bias, s.Memory()); err != nil {
			continue
		}
		l = rt.list()
		l.Head = stack.Span{Len: int(min(rt.l.tsSize, maxThreadState))}
		l.Root, l.Step = rt.addr(img.runtime)+rt.l.interpreters, int(rt.l.interpThreads)
		return l, true
	}
	return l, false
}

// list returns what all lists of frames have in common. CPython's thread state points to the innermost frame, in 3.11
// and 3.12 by a CFrame on the C stack. A CFrame that was just pushed has no frame yet, so that its list is empty.
func (r *Runtime) list() stack.Links {
	l := stack.Links{First: int(r.l.tsFrame), Next: int(r.l.fBack), Len: int(r.l.fSize),
		Object: int(r.l.fCode) + 1, ObjectLen: int(min(r.l.coSize, maxCodeSize)), Key: int(r.l.coLines),
		Texts: [...]int{int(r.l.coName) + 1, int(r.l.coFile) + 1, int(r.l.coLines) + 1}}
	if r.l.coQualname != none {
		l.Texts[0] = int(r.l.coQualname) + 1
	}
	if r.l.coVersion != none {
		l.Key = int(r.l.coVersion)
	}
	if r.l.tsFrame == none {
		l.First, l.Via = int(r.l.tsCFrame), int(r.l.cfCurrent)+1
	}
	return l
}

// Links implements Stepper.
func (in *interpreter) Links(th *unwind.Thread) (l stack.Links, ok bool) {
	p := pyThreads.Of(th)
	if in.table == nil || p.of != in || p.th == nil {
		return l, false
	}
	l = in.rt.list()
	l.Head = p.th.Span()
	return l, true
}

// Aside implements Stepper. A stack of more frames than the kernel copies is left to stops, and so are processes with several
// interpreters: a thread may have a list of frames in each, and a copy without one looks whole.
func (in *interpreter) Aside(th *unwind.Thread) (x unwind.Aside, ok bool) {
	p := pyThreads.Of(th)
	if x.List, ok = in.Links(th); !ok || p.unread || p.foreign || p.th.links > stack.MaxLinks*3/4 || !in.rt.alone(in.mem, p.th.State().Interp) {
		return x, false
	}
	if p.lock.Len > 0 {
		p.lockOnly[0] = p.lock
		x.Blocks = p.lockOnly[:]
	}
	// A copy that comes after this call may have been made before it, but not before the last one: all copies of that time
	// were taken by now.
	in.mu.Lock()
	p.plan.reads, p.ahead = p.ahead, in.reads
	in.mu.Unlock()
	return x, true
}

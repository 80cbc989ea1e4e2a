package view

import (
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
)

// ShowsIdle reports whether rankings include idle waits.
func (v *View) ShowsIdle() bool { return v.idle }

// Left reports the idle waits that an export omitted.
func (v *View) Left(l idle.Left) {
	if v.left != nil && l.Any() {
		v.left(l)
	}
}

// mayIdle reports whether a thread in such a state may be idle, whatever its stack.
func (v *View) mayIdle(w *diff.Waiting) bool {
	s, nr := w.State()
	return s == stack.StateBlocked && idle.May(v.Wait(w), v.Call(nr))
}

// Idle reports whether a thread with stack st, outermost first, in wait w is idle: see package
// wait/idle.
func (v *View) Idle(w *diff.Waiting, st []trace.Slice) bool {
	if !v.mayIdle(w) {
		return false
	}
	k := idleKey{wait: w.Wait(), state: stateOf(w)}
	for i := range st { // FNV-1a over the functions
		k.stack = (k.stack ^ uint64(st[i].Frame.Func+1)) * 0x100000001b3
	}
	in, ok := v.idles[k]
	if !ok {
		v.frames = v.frames[:0]
		for i := len(st) - 1; i >= 0; i-- {
			kind := stack.KindNative
			if st[i].Loc != nil {
				kind = st[i].Loc.Word.Kind()
			}
			v.frames = append(v.frames, v.idleFrame(st[i].Frame.Func, kind))
		}
		in = v.decide(w)
		v.idles[k] = in
	}
	return in
}

// IdleAt is Idle for the locations that next returns, innermost first, until nil.
func (v *View) IdleAt(w *diff.Waiting, next func() *trace.Loc) bool {
	if !v.mayIdle(w) {
		return false
	}
	v.frames = v.frames[:0]
	for l := next(); l != nil; l = next() {
		for i := range l.Frames {
			v.frames = append(v.frames, v.idleFrame(l.Frames[i].Func, l.Word.Kind()))
		}
	}
	return v.decide(w)
}

// decide evaluates the stack in v.frames.
func (v *View) decide(w *diff.Waiting) bool {
	_, nr := w.State()
	return idle.Of(v.Wait(w), v.Call(nr), v.frames)
}

func (v *View) idleFrame(fn int, kind stack.Kind) idle.Frame {
	f := &v.Names.Funcs[fn]
	out := idle.Frame{Name: f.Name, Kind: kind, File: f.File}
	if f.Module >= 0 && f.Module < len(v.Rec.Modules) {
		out.Module = v.Rec.Modules[f.Module].Path
	}
	return out
}

// idleKey is the cache key of a decision.
type idleKey struct {
	stack uint64 // hash of the functions
	wait  int
	state uint64
}

func stateOf(w *diff.Waiting) uint64 {
	s, nr := w.State()
	return uint64(s)<<32 | uint64(uint32(nr))
}

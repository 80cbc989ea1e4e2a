package unwind

import "github.com/sliverprof/sliver/unwind/rule"

// Links is a list in a runtime's memory, of the frames of one thread, innermost first. The kernel can follow it
// when it copies the thread's stack, so that the places of the frames need no prediction.
type Links struct {
	Head  rule.Span // the thread's state in the runtime, which is copied too
	First int       // offset in Head of the pointer to the first frame, or to Via
	Via   int       // offset of that pointer in what First points to, plus 1; 0: First is the pointer itself
	Next  int       // offset in a frame of the pointer to the next one; the last frame has 0
	Len   int       // bytes of a frame
}

// Links returns the list of th's frames; ok is false if no runtime has one, or its place is not known yet.
func (w *Walker) Links(th *Thread) (l Links, ok bool) {
	for _, x := range w.space.runtimes.Load().found {
		if l, ok = x.s.Links(th); ok {
			return l, true
		}
	}
	return l, false
}

// Beyond returns the address that the last walk lacked, if it ended because the copied stack was too short.
func (w *Walker) Beyond() uint64 { return w.missing }

package v8

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
)

// Reading ahead: a single read costs about as much as twenty spans of a batch. A frame of the same code and
// closure needs the same memory as long as V8 moves nothing. So each walk begins with one batch: the memory
// that its frames needed at their last look. Only the addresses are predicted. The walk checks the content,
// as without the batch, and reads on demand at other addresses.

const (
	// maxFrameKeys bounds the known frames of a thread. A full table is cleared.
	maxFrameKeys = 512
	// maxFrameSpans bounds the spans of one frame.
	maxFrameSpans = 128
)

// frameKey identifies the memory that a frame needs. A part that is unknown or does not matter is 0.
type frameKey struct {
	at      uint64 // in generated code: the return address, or for the leaf the beginning of the code
	closure uint64 // the function in the frame's slot
}

// Known holds the memory that one thread's frames needed. The zero value is for a new thread.
type Known struct {
	frames map[frameKey][]stack.Span
	buf    []byte
}

// key returns the key of the frame at p.
func (w *Walker) key(p *Place, mem Words) (k frameKey) {
	if p.FP != 0 {
		k.closure, _ = mem.Word(p.FP - slotFunction)
	}
	switch {
	case !p.Made: // the interpreter
	case !p.Exact:
		k.at = p.PC
	default: // the leaf's PC is rarely the same
		if c := w.r.codeOf(p.PC); c != nil {
			k.at = c.start
		}
	}
	return k
}

// readAhead reads the memory that frames at places needed before.
func (w *Walker) readAhead(places []Place, mem Words) {
	clear(w.at)
	w.plan = w.plan[:0]
	var last frameKey // in a recursion all are the same
	for i := 0; i < len(places) && len(w.plan) < maxSpans; i++ {
		k := w.key(&places[i], mem)
		if k == last {
			continue
		}
		last = k
		for _, s := range w.k.frames[k] {
			w.want(s)
		}
	}
	w.k.buf = w.h.readAhead(w.plan, w.k.buf)
}

// want adds s to the batch.
func (w *Walker) want(s stack.Span) {
	at, again := w.at[s.Addr]
	if !again {
		if at = len(w.plan); at >= maxSpans {
			return
		}
		w.at[s.Addr] = at
		w.plan = append(w.plan, s)
	}
	w.plan[at].Len = max(w.plan[at].Len, s.Len)
}

// learn records the memory that the frame at p needed.
func (w *Walker) learn(p *Place, mem Words) {
	spans, known := w.h.spans, w.k
	if len(spans) == 0 {
		return
	}
	if known.frames == nil {
		known.frames = map[frameKey][]stack.Span{}
	}
	if len(known.frames) >= maxFrameKeys {
		clear(known.frames)
	}
	k := w.key(p, mem)
	known.frames[k] = append(known.frames[k][:0], spans...)
}

// readAhead reads spans in few calls. It returns buf, or a larger one that it needed.
func (h *heap) readAhead(spans []stack.Span, buf []byte) []byte {
	clear(h.ahead)
	h.blocks = h.blocks[:0]
	size := 0
	for i, s := range spans {
		if size+max(s.Len, meter.LeastSpan) > meter.Budget/2 {
			spans = spans[:i]
			break
		}
		size += s.Len
	}
	if size > len(buf) {
		buf = make([]byte, size+size/2)
	}
	b := buf[:size]
	for len(spans) > 0 {
		got := h.mem.ReadSpans(spans, b)
		for len(spans) > 0 && got >= spans[0].Len {
			n := spans[0].Len
			h.hold(spans[0].Addr, block{data: b[:n]})
			got, b, spans = got-n, b[n:], spans[1:]
		}
		if len(spans) > 0 { // skip the unreadable one
			b, spans = b[spans[0].Len:], spans[1:]
		}
	}
	return buf
}

// block is memory that was read ahead or earlier for this stack.
type block struct {
	data []byte
	// noted is how many bytes of it are in spans for the frame of that number.
	frame, noted int
}

// hold keeps a block for the rest of the stack.
func (h *heap) hold(addr uint64, x block) {
	h.ahead[addr] = len(h.blocks)
	h.blocks = append(h.blocks, x)
}

// note records that the current frame needs n bytes at addr. x is the block there, or nil.
func (h *heap) note(addr uint64, n int, x *block) {
	if x != nil {
		if x.frame == h.frame && x.noted >= n {
			return
		}
		x.frame, x.noted = h.frame, n
	}
	if len(h.spans) < maxFrameSpans {
		h.spans = append(h.spans, stack.Span{Addr: addr, Len: n})
	}
}

package unwind

import (
	"io"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/python"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	// maxHeap bounds the frames outside of the data stack (generators; all up to
	// 3.10) that are copied ahead, maxProof what is copied of code that is not
	// known yet, in spans, and maxAhead the bytes of all.
	maxHeap  = 48
	maxProof = 64
	maxAhead = 192 << 10
	// maxChunks bounds the chunks of the data stack that are.
	maxChunks = 12
	// askAfter is after how many copies that lacked something the next is to be
	// completed while the thread stands.
	askAfter = 2
	// maxMissed is how many copies in a row may lack something before it counts as
	// what cannot be had.
	maxMissed = 16
)

// pyPlan is what is copied of a thread's Python, and what became of it. Frames
// move as soon as the thread runs, so they count as they were copied; which of
// them are copied is guessed by those of the time before. Code stays where it
// is as long as it is on a stack, so what is known of it is compared with live
// memory after the copy; what is not known, or another by now, is copied with
// the next stop, which proves that it belongs to the frames of that moment.
type pyPlan struct {
	chunks []chunk     // of the data stack, the outermost first, behind them those that it left of late
	newest uint64      // of the chunks that are part of it; 0: none is
	heap   []rule.Span // frames outside of it, those wanted last come first
	proof  []rule.Span // of code that is not known yet
	lacks  bool        // see Thread.Lacks
	gaps   bool        // see Thread.Gaps
	far    []uint64    // frames that stacks had when a copy lacked some, the last stack's first
	was    []uint64    // what far was before
	seen   map[uint64]struct{}
	missed int    // copies in a row that lacked something
	reads  uint64 // of the interpreter when it was last planned what to copy

	reader pyReader
	spans  []rule.Span
	off    []int
	buf    []byte
	codes  []seenCode
	guess  python.Stack
}

// chunk is one of a data stack.
type chunk struct {
	rule.Span
	left int // so many looks at the data stack ago; 0: it is part of it
}

// keepChunks is how many such looks a chunk is copied for that the data stack has
// left: it comes back to it, or it is unmapped and costs another read.
const keepChunks = 16

// seenCode is one code object of a stack.
type seenCode struct {
	code  uint64
	held  *held // nil: it is not known
	first int   // of the spans that tell
}

func (p *pyThread) asks() bool {
	return p.of != nil && (p.of.table == nil || p.plan.missed >= askAfter && p.plan.missed <= maxMissed)
}

func (in *interpreter) plan(th *Thread, out []rule.Span) []rule.Span {
	in.find(th)
	return in.spans(&th.python, out)
}

// spans appends what to copy of a thread.
func (in *interpreter) spans(p *pyThread, out []rule.Span) []rule.Span {
	if in.table == nil || p.th == nil {
		return out
	}
	pl := &p.plan
	in.mu.Lock()
	pl.reads = in.reads
	in.mu.Unlock()
	left := maxAhead
	add := func(s rule.Span) {
		if s.Len <= left {
			left -= s.Len
			out = append(out, s)
		}
	}
	add(p.th.Span())
	for _, s := range pl.proof {
		add(s)
	}
	for _, s := range pl.heap {
		add(s)
	}
	for i := range pl.chunks { // where one was given back since, those behind it were too
		s := pl.chunks[i].Span
		s.Maybe = i > 0
		add(s)
	}
	return out
}

// pyReader reads a Copy, and notes what was wanted besides the stacks.
type pyReader struct {
	mem    *Copy
	live   Memory // for what is not in mem; nil: that is missing
	fixed  []chunk
	near   map[uint64][]byte // frames that were read at once, by address
	data   []Block           // the same of the data stack
	wanted []rule.Span
	most   int  // of wanted: what comes after them is missing; 0: there is no such bound
	short  bool // something was missing
}

// ReadAt implements io.ReaderAt.
func (r *pyReader) ReadAt(b []byte, addr int64) (int, error) {
	at := uint64(addr)
	last := len(r.mem.Blocks) - 1
	for i := last; i >= 0; i-- {
		if n, ok := r.mem.Blocks[i].read(b, at); ok {
			if i < last && !r.isFixed(r.mem.Blocks[i].Addr) {
				r.want(at, len(b))
			}
			return n, nil
		}
	}
	if k, ok := r.near[at]; ok && len(k) >= len(b) {
		r.want(at, len(b))
		return copy(b, k), nil
	}
	for i := range r.data {
		if n, ok := r.data[i].read(b, at); ok {
			return n, nil
		}
	}
	if r.live == nil || r.most > 0 && len(r.wanted) >= r.most {
		r.short = true
		return 0, python.ErrMissing
	}
	r.want(at, len(b))
	return r.live.ReadAt(b, addr)
}

// isFixed reports whether the block at addr is copied each time.
func (r *pyReader) isFixed(addr uint64) bool {
	for i := range r.fixed {
		if r.fixed[i].Addr == addr {
			return true
		}
	}
	return false
}

func (r *pyReader) want(addr uint64, n int) {
	if len(r.wanted) < maxHeap+maxProof {
		r.wanted = append(r.wanted, rule.Span{Addr: addr, Len: n})
	}
}

func (r *pyReader) begin(mem *Copy, live Memory, fixed []chunk) {
	r.mem, r.live, r.short, r.wanted, r.fixed, r.most = mem, live, false, r.wanted[:0], fixed, 0
}

// captureAll reads th's frames and code while the thread cannot run: what was
// not copied from live memory.
func (in *interpreter) captureAll(p *pyThread, mem *Copy) {
	pl := &p.plan
	pl.reader.begin(mem, nil, pl.chunks)
	p.have = p.th.Capture(&pl.reader, &p.stack)
	if pl.reader.short { // what the copy lacks is read, as much as can be at once
		in.readFar(p, mem)
		pl.keepFar(&p.stack)
		clear(pl.reader.near)
		pl.reader.data = pl.reader.data[:0]
	}
	if !p.have {
		in.lost(p)
		return
	}
	if p.stack.Reason == stack.ReasonMemory { // all could be read: a link that is not made yet leads anywhere
		p.stack.Reason = stack.ReasonCorrupt
	}
	pl.keepHeap(p.th.Span())
	if !in.known(p, &p.stack, true) {
		for i := range pl.codes {
			if c := &pl.codes[i]; c.held == nil {
				pl.reader.begin(mem, p.live, nil)
				c.held = in.read(p, &pl.reader, c.code)
			}
		}
	}
	in.placeFrames(p)
	if pl.lacks = false; !pl.gaps {
		pl.missed = 0
	} else if pl.missed++; pl.missed <= maxMissed {
		pl.lacks = p.stack.Reason == stack.ReasonCorrupt // between two frames: a moment later it is not
	}
}

// captureCopy reads th's frames from what was copied; the thread runs again.
func (in *interpreter) captureCopy(p *pyThread, mem *Copy) {
	pl := &p.plan
	pl.reader.begin(mem, nil, pl.chunks)
	p.have = p.th.Capture(&pl.reader, &p.stack)
	if !p.have && !pl.reader.short {
		in.lost(p)
		return
	}
	if !p.have {
		p.have, p.stack.Reason = true, stack.ReasonMemory
	}
	pl.dropHeap(mem)
	pl.keepHeap(p.th.Span())
	pl.proof = pl.proof[:0]
	if !in.known(p, &p.stack, false) {
		for i := range pl.codes {
			if c := &pl.codes[i]; c.held == nil {
				pl.reader.begin(mem, nil, nil)
				c.held = in.read(p, &pl.reader, c.code)
			}
		}
	}
	in.placeFrames(p)
	if !pl.gaps {
		pl.lacks, pl.missed = false, 0
		return
	}
	if pl.missed++; pl.missed > maxMissed || p.stack.Reason == stack.ReasonBound {
		pl.lacks = false
		return
	}
	pl.lacks = true
	pl.keepFar(&p.stack)
	in.foresee(p, mem)
}

// lost forgets a State that is another thread's by now, or cannot be read: the list is read
// anew before one is found again.
func (in *interpreter) lost(p *pyThread) {
	in.mu.Lock()
	if tid := stack.TID(p.th.State().Native); in.states[tid] == p.th.State() {
		delete(in.states, tid)
	}
	in.mu.Unlock()
	p.th, p.have = nil, false
	p.plan.lacks, p.plan.gaps, p.plan.missed = false, false, 0
}

// foresee guesses what the next copy needs, by what the running thread's memory
// holds now.
func (in *interpreter) foresee(p *pyThread, mem *Copy) {
	pl := &p.plan
	none := Copy{}
	in.chunks(p, p.live)
	// The C stack is as it was copied, or not there: it is copied anew anyway.
	if n := len(mem.Blocks); n > 0 {
		none.Blocks = append(none.Blocks, mem.Blocks[n-1])
	}
	none.Blocks = pl.readChunks(p.live, none.Blocks)
	pl.reader.begin(&none, p.live, pl.chunks)
	pl.reader.most = maxHeap + maxProof // more cannot be copied ahead
	if !p.th.Capture(&pl.reader, &pl.guess) {
		return
	}
	in.chunks(p, p.live) // it may have gone on meanwhile
	pl.reader.wanted = slices.DeleteFunc(pl.reader.wanted, func(s rule.Span) bool { return pl.inChunk(s.Addr) })
	pl.keepFar(&pl.guess)
	pl.keepHeap(p.th.Span())
	for _, s := range [...]*python.Stack{&p.stack, &pl.guess} {
		in.known(p, s, true) // it is not about this copy
		for i := range pl.codes {
			if c := &pl.codes[i]; c.held == nil {
				pl.reader.begin(&Copy{}, p.live, nil)
				done := p.live.FirstLook()
				_, _ = in.rt.Code(&pl.reader, c.code) // what it wanted to read counts
				done()
				pl.addProof()
			}
		}
	}
}

// inChunk reports whether addr is in the data stack, as far as that is copied.
func (pl *pyPlan) inChunk(addr uint64) bool {
	return slices.ContainsFunc(pl.chunks, func(c chunk) bool { return addr-c.Addr < uint64(c.Len) })
}

// readChunks puts the data stack as it is now before the blocks, in one read; what it lacks
// or what is too much of it is read frame by frame.
func (pl *pyPlan) readChunks(mem *meter.Meter, blocks []Block) []Block {
	pl.spans = pl.spans[:0]
	size := 0
	for i := range pl.chunks {
		if c := &pl.chunks[i]; c.left == 0 && size+c.Len <= maxAheadChunks {
			pl.spans = append(pl.spans, c.Span)
			size += c.Len
		}
	}
	pl.off, pl.buf = readAll(mem, pl.spans, pl.off, pl.buf)
	for i := range pl.spans {
		if b := pl.read(i); b != nil {
			blocks = slices.Insert(blocks, 0, Block{Addr: pl.spans[i].Addr, Data: b})
		}
	}
	return blocks
}

// maxAheadChunks bounds what is read of a data stack at once for a guess, in bytes.
const maxAheadChunks = 128 << 10

// addProof has what the reader wanted copied the next time.
func (pl *pyPlan) addProof() {
	for _, s := range pl.reader.wanted {
		if len(pl.proof) < maxProof && !slices.Contains(pl.proof, s) {
			pl.proof = append(pl.proof, s)
		}
	}
}

// dropHeap has what could not be read no more copied.
func (pl *pyPlan) dropHeap(mem *Copy) {
	pl.heap = slices.DeleteFunc(pl.heap, func(s rule.Span) bool {
		return slices.ContainsFunc(mem.Blocks, func(b Block) bool { return b.Addr == s.Addr && len(b.Data) < s.Len })
	})
}

// keepHeap moves what was wanted to the front of what is copied each time.
func (pl *pyPlan) keepHeap(but rule.Span) {
	for i := len(pl.reader.wanted) - 1; i >= 0; i-- {
		s := pl.reader.wanted[i]
		if s.Addr-but.Addr < uint64(but.Len) || s.Len > maxFrameBytes {
			continue
		}
		at := slices.IndexFunc(pl.heap, func(h rule.Span) bool { return h.Addr == s.Addr })
		switch {
		case at >= 0:
			s.Len = max(s.Len, pl.heap[at].Len)
		case len(pl.heap) < maxHeap:
			pl.heap = append(pl.heap, s)
			at = len(pl.heap) - 1
		default:
			at = len(pl.heap) - 1
		}
		copy(pl.heap[1:at+1], pl.heap[:at])
		pl.heap[0] = s
	}
}

// maxFrameBytes is more than the head of one of Python's frames takes.
const maxFrameBytes = 512

// holds reports whether h can be what p's copy refers to: it was read before that was
// made, or for an earlier copy of the same thread. Code that another thread's walk read
// since may have been made only after what the copy refers to was freed.
func (p *pyThread) holds(h *held) bool { return h.nr <= p.plan.reads || h.by == p }

// known looks up the code of s's frames, and compares what is known of it with
// live memory. It reports whether all of it is known. Without stands, the thread runs
// on since the copy.
func (in *interpreter) known(p *pyThread, s *python.Stack, stands bool) bool {
	pl := &p.plan
	pl.codes, pl.spans = pl.codes[:0], pl.spans[:0]
	in.mu.Lock()
	for i := range s.Frames {
		code := s.Frames[i].Code
		if slices.ContainsFunc(pl.codes, func(c seenCode) bool { return c.code == code }) {
			continue
		}
		c := seenCode{code: code, held: in.codes[code], first: len(pl.spans)}
		if c.held != nil && !stands && !p.holds(c.held) {
			c.held = nil
		}
		if c.held != nil {
			pl.spans = in.rt.Spans(code, c.held.code, pl.spans)
		}
		pl.codes = append(pl.codes, c)
	}
	in.mu.Unlock()
	pl.off, pl.buf = readAll(p.live, pl.spans, pl.off, pl.buf)
	all := true
	for i := range pl.codes {
		c := &pl.codes[i]
		if c.held != nil && !in.rt.Is(c.held.code, func(i int) []byte { return pl.read(c.first + i) }) {
			c.held = nil
		}
		all = all && c.held != nil
	}
	return all
}

// codeTypes answers whether there is a code object at an address, for the thread's Walk
// that is under way: where one is known it is taken to be there still, as known compares
// it anyway.
type codeTypes pyThread

// ReadAt implements io.ReaderAt.
func (c *codeTypes) ReadAt(b []byte, addr int64) (int, error) {
	in := c.of
	code := uint64(addr) &^ 15 // objects are aligned to that
	in.mu.Lock()
	_, ok := in.codes[code]
	in.mu.Unlock()
	if ok && in.rt.IsCodeType(b, uint64(addr), code) {
		return len(b), nil
	}
	return c.live.ReadAt(b, addr)
}

// SpanReader is a Memory that reads many spans at once, one after the other into
// b, and gives how many bytes it read until the first that could not be.
type SpanReader interface {
	ReadSpans(spans []rule.Span, b []byte) int
}

// readAll reads spans into buf, each behind the one before; off says where they are, -1
// where one could not be read. Both are made longer where they have no room.
func readAll(mem Memory, spans []rule.Span, off []int, buf []byte) ([]int, []byte) {
	size := 0
	off = off[:0]
	for _, s := range spans {
		off = append(off, size)
		size += s.Len
	}
	if size > len(buf) {
		buf = make([]byte, size+size/2)
	}
	many, ok := mem.(SpanReader)
	for i := 0; i < len(spans); i++ { // the i-th could not be read with those before
		if !ok {
			if n, _ := mem.ReadAt(buf[off[i]:off[i]+spans[i].Len], int64(spans[i].Addr)); n < spans[i].Len {
				off[i] = -1
			}
			continue
		}
		got := many.ReadSpans(spans[i:], buf[off[i]:size])
		for i < len(spans) && got >= spans[i].Len {
			got -= spans[i].Len
			i++
		}
		if i < len(spans) {
			off[i] = -1
		}
	}
	return off, buf
}

// read is what was read of the i-th span; nil: it could not be.
func (pl *pyPlan) read(i int) []byte {
	if pl.off[i] < 0 {
		return nil
	}
	return pl.buf[pl.off[i] : pl.off[i]+pl.spans[i].Len]
}

// read reads the code object at addr for p and gives it its place; nil: it could not
// be read.
func (in *interpreter) read(p *pyThread, mem io.ReaderAt, addr uint64) *held {
	defer p.live.FirstLook()()
	c, err := in.rt.Code(mem, addr)
	if err != nil {
		return nil
	}
	h := &held{code: c, by: p}
	h.addr, h.size = c.In(in.table)
	in.mu.Lock()
	defer in.mu.Unlock()
	if was := in.codes[addr]; was != nil && was.code.Same(c) {
		return was // it holds for copies that are older as well
	}
	in.reads++
	h.nr = in.reads
	if len(in.codes) >= maxCodes {
		clear(in.codes)
	}
	in.codes[addr] = h
	return h
}

// placeFrames gives the frames of the stack their places, as far as their code is
// known, and keeps the plan up with the data stack.
func (in *interpreter) placeFrames(p *pyThread) {
	pl, s := &p.plan, &p.stack
	pl.gaps = s.Reason != stack.ReasonNone
	for i := range s.Frames {
		f := &s.Frames[i]
		k := slices.IndexFunc(pl.codes, func(c seenCode) bool { return c.code == f.Code })
		h := pl.codes[k].held
		if h == nil {
			f.Lost, pl.gaps = true, true
			continue
		}
		f.Func, f.Lost, f.Hidden = h.addr, false, h.code.Shim()
		if f.Off >= h.size {
			f.Off = 0
		}
	}
	if at := p.th.Chunk(); at != pl.newest {
		in.chunks(p, p.live)
	}
}

// chunks looks where the data stack is now.
func (in *interpreter) chunks(p *pyThread, mem Memory) {
	pl := &p.plan
	pl.newest = 0
	pl.spans = p.th.Chunks(mem, pl.spans[:0])
	pl.chunks = slices.DeleteFunc(pl.chunks, func(c chunk) bool {
		return c.left >= keepChunks || slices.ContainsFunc(pl.spans, func(s rule.Span) bool { return s.Addr == c.Addr })
	})
	for i := range pl.chunks {
		pl.chunks[i].left++
	}
	slices.Reverse(pl.spans)
	for i, s := range pl.spans {
		pl.chunks = slices.Insert(pl.chunks, i, chunk{Span: s})
		pl.newest = s.Addr
	}
	pl.chunks = pl.chunks[:min(len(pl.chunks), maxChunks)]
}

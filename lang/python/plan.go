package python

import (
	"bytes"
	"io"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	// maxHeap bounds the frames outside of the data stack (generators; all frames up to 3.10) that
	// are copied ahead. maxProofs bounds the copied spans of unknown code. maxAhead bounds the total
	// in bytes.
	maxHeap   = 48
	maxProofs = 64
	maxAhead  = 192 << 10
	// maxKept bounds the copied chunks of the data stack.
	maxKept = 12
	// askAfter is the number of incomplete copies after which the next one is completed during the
	// stop.
	askAfter = 2
	// maxMissed is the number of consecutive incomplete copies after which the missing part counts
	// as unreadable. It is still planned after each as many.
	maxMissed = 16
)

// pyPlan predicts what to copy of a thread's Python, and records how well it worked. Frames move as
// soon as the thread runs, so only copied frames are valid; the plan guesses them from the previous
// stack. Code objects do not move while they are on a stack, so cached ones are compared with live
// memory after the copy. Unknown or changed code objects are copied at the next stop, which proves
// that they belong to the frames of that moment.
type pyPlan struct {
	chunks []chunk     // of the data stack, outermost first, then those that it left recently
	newest uint64      // the newest chunk of the data stack; 0: none
	heap   []rule.Span // frames outside of the data stack, recently read ones first
	proof  []rule.Span // spans of unknown code
	lacks  bool        // see Thread.Lacks
	gaps   bool        // see Thread.Gaps
	torn   bool        // a copy of an unplanned moment has gaps, and not for the length of its stack
	far    []uint64    // frames of stacks whose copy lacked some, the last stack's first
	was    []uint64    // previous value of far
	seen   map[uint64]struct{}
	missed int    // consecutive incomplete copies
	before int    // consecutive copies without the State, made before it was planned: they say nothing of the plan
	reads  uint64 // the interpreter's reads when the last copy was planned

	reader pyReader
	spans  []rule.Span
	off    []int
	buf    []byte
	codes  []seenCode
	guess  Stack
}

// chunk is one chunk of a data stack.
type chunk struct {
	rule.Span
	left int // looks at the data stack since the chunk left it; 0: part of it
}

// keepChunks is the number of looks for which a chunk is still copied after the data stack left it.
// The stack may come back to it. If it is unmapped instead, copying it costs another read.
const keepChunks = 16

// seenCode is one code object of a stack.
type seenCode struct {
	code  uint64
	held  *held  // nil: unknown
	head  []byte // its Runtime.head as the copy has it; nil: the copy does not
	first int    // index of its first span to compare
}

func (p *pyThread) asks() bool {
	return p.of != nil && (p.of.table == nil || p.plan.missed >= askAfter && p.plan.missed <= maxMissed)
}

// Plan implements Stepper.
func (in *interpreter) Plan(th *unwind.Thread, out []rule.Span) []rule.Span {
	in.find(th)
	return in.spans(pyThreads.Of(th), out)
}

// spans appends the thread's memory to copy.
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
	if p.lock.Len > 0 {
		add(p.lock)
	}
	for _, s := range pl.proof {
		add(s)
	}
	for _, s := range pl.heap {
		add(s)
	}
	for i := range pl.chunks { // if one was unmapped since, so were those after it
		s := pl.chunks[i].Span
		s.Maybe = i > 0
		add(s)
	}
	for _, th := range p.others { // they end when their interpreter does
		s := th.Span()
		s.Maybe = true
		add(s)
	}
	return out
}

// pyReader reads a Copy and records reads outside of the stacks.
type pyReader struct {
	mem    *unwind.Copy
	live   unwind.Memory // for reads that mem lacks; nil: they fail
	fixed  []chunk
	near   map[uint64][]byte // batch of frames read at once, by address
	data   []unwind.Block    // chunks of the data stack read at once
	wanted []rule.Span
	most   int  // limit on len(wanted), further reads fail; 0: no limit
	short  bool // a read failed
}

// ReadAt implements io.ReaderAt.
func (r *pyReader) ReadAt(b []byte, addr int64) (int, error) {
	at := uint64(addr)
	last := len(r.mem.Blocks) - 1
	for i := last; i >= 0; i-- {
		if n, ok := r.mem.Blocks[i].Read(b, at); ok {
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
		if n, ok := r.data[i].Read(b, at); ok {
			return n, nil
		}
	}
	if r.live == nil || r.most > 0 && len(r.wanted) >= r.most {
		r.short = true
		return 0, ErrMissing
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
	if len(r.wanted) < maxHeap+maxProofs {
		r.wanted = append(r.wanted, rule.Span{Addr: addr, Len: n})
	}
}

func (r *pyReader) begin(mem *unwind.Copy, live unwind.Memory, fixed []chunk) {
	r.mem, r.live, r.short, r.wanted, r.fixed, r.most = mem, live, false, r.wanted[:0], fixed, 0
}

// captureAll reads th's frames and code while the thread cannot run. It uses live memory for what
// the copy lacks.
func (in *interpreter) captureAll(p *pyThread, mem *unwind.Copy) {
	pl := &p.plan
	pl.reader.begin(mem, nil, pl.chunks)
	p.have = in.capture(p, &pl.reader, &p.stack)
	if pl.reader.short { // read what the copy lacks, in batches
		in.readFar(p, mem)
		pl.keepFar(&p.stack)
		clear(pl.reader.near)
		pl.reader.data = pl.reader.data[:0]
	}
	if !p.have {
		in.lost(p)
		return
	}
	if p.stack.Reason == stack.ReasonMemory { // all memory was readable: a link under construction points anywhere
		p.stack.Reason = stack.ReasonCorrupt
	}
	pl.keepHeap(p.th.Span())
	if !in.known(p, &p.stack, nil, true) {
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
		pl.lacks = p.stack.Reason == stack.ReasonCorrupt // between two frames: it ends a moment later
	}
}

// captureCopy reads th's frames from the copy, after the thread was resumed.
func (in *interpreter) captureCopy(p *pyThread, mem *unwind.Copy) {
	pl := &p.plan
	pl.torn = mem.Past
	pl.reader.begin(mem, nil, pl.chunks)
	p.have = in.capture(p, &pl.reader, &p.stack)
	if !p.have && !pl.reader.short {
		in.lost(p)
		return
	}
	if !p.have {
		if !has(mem, p.th.Span()) { // it was made before the State was known
			if pl.before++; pl.before%maxMissed == 1 && !mem.Past {
				in.foresee(p, mem)
			}
			pl.gaps, pl.lacks = true, pl.before <= maxMissed
			return
		}
		p.have, p.stack.Reason = true, stack.ReasonMemory
	}
	pl.before = 0
	pl.dropHeap(mem)
	pl.keepHeap(p.th.Span())
	pl.proof = pl.proof[:0]
	if !in.known(p, &p.stack, mem, false) {
		for i := range pl.codes {
			if c := &pl.codes[i]; c.head != nil && c.held == nil {
				c.held = in.readCopied(p, mem, c)
			} else if c.held == nil {
				pl.reader.begin(mem, nil, nil)
				c.held = in.read(p, &pl.reader, c.code)
			}
		}
	}
	in.placeFrames(p)
	if !pl.gaps {
		pl.lacks, pl.torn, pl.missed = false, false, 0
		return
	}
	if p.stack.Reason == stack.ReasonBound || mem.Past { // no plan leads to such a copy
		pl.lacks, pl.torn = false, mem.Past && p.th.links < stack.MaxLinks
		return
	}
	// Copies that the kernel made may all be older than the plan that the first of them led to.
	if pl.missed++; pl.missed <= maxMissed || pl.missed%maxMissed == 0 {
		pl.keepFar(&p.stack)
		in.foresee(p, mem)
	}
	pl.lacks = pl.missed <= maxMissed
}

// has reports whether a copy has a span.
func has(mem *unwind.Copy, s rule.Span) bool {
	return slices.ContainsFunc(mem.Blocks, func(b unwind.Block) bool { return s.Addr-b.Addr < uint64(len(b.Data)) })
}

// lost forgets a State that cannot be read or belongs to another thread by now. The list is read
// again before another State is found.
func (in *interpreter) lost(p *pyThread) {
	in.mu.Lock()
	lost := p.th.State()
	tid := stack.TID(lost.Native)
	if left := slices.DeleteFunc(slices.Clone(in.states[tid]), func(s State) bool { return s == lost }); len(left) > 0 {
		in.states[tid] = left
	} else {
		delete(in.states, tid)
	}
	in.mu.Unlock()
	p.th, p.others, p.have = nil, p.others[:0], false
	p.plan.lacks, p.plan.gaps, p.plan.missed = false, false, 0
}

// foresee predicts what the next copy needs from the current memory of the running thread.
func (in *interpreter) foresee(p *pyThread, mem *unwind.Copy) {
	pl := &p.plan
	none := unwind.Copy{}
	in.chunks(p, p.live)
	// Keep the copied C stack, if any: the next stop copies it again anyway.
	if n := len(mem.Blocks); n > 0 {
		none.Blocks = append(none.Blocks, mem.Blocks[n-1])
	}
	none.Blocks = pl.readChunks(p.live, none.Blocks)
	pl.reader.begin(&none, p.live, pl.chunks)
	pl.reader.most = maxHeap + maxProofs // no more can be copied ahead
	if !in.capture(p, &pl.reader, &pl.guess) {
		return
	}
	in.chunks(p, p.live) // the thread may have moved on
	pl.reader.wanted = slices.DeleteFunc(pl.reader.wanted, func(s rule.Span) bool { return pl.inChunk(s.Addr) })
	pl.keepFar(&pl.guess)
	pl.keepHeap(p.th.Span())
	for _, s := range [...]*Stack{&p.stack, &pl.guess} {
		in.known(p, s, nil, true) // not about this copy
		for i := range pl.codes {
			if c := &pl.codes[i]; c.held == nil {
				pl.reader.begin(&unwind.Copy{}, p.live, nil)
				done := p.live.FirstLook()
				_, _ = in.rt.Code(&pl.reader, c.code) // only for the reads that it records
				done()
				pl.addProof()
			}
		}
	}
}

// inChunk reports whether addr is in a copied chunk of the data stack.
func (pl *pyPlan) inChunk(addr uint64) bool {
	return slices.ContainsFunc(pl.chunks, func(c chunk) bool { return addr-c.Addr < uint64(c.Len) })
}

// readChunks reads the current data stack at once and puts it before the blocks. Chunks that exceed
// the bound or cannot be read are left to reads of single frames.
func (pl *pyPlan) readChunks(mem *meter.Meter, blocks []unwind.Block) []unwind.Block {
	pl.spans = pl.spans[:0]
	size := 0
	for i := range pl.chunks {
		if c := &pl.chunks[i]; c.left == 0 && size+c.Len <= maxAheadChunks {
			pl.spans = append(pl.spans, c.Span)
			size += c.Len
		}
	}
	pl.off, pl.buf = unwind.ReadAll(mem, pl.spans, pl.off, pl.buf)
	for i := range pl.spans {
		if b := pl.read(i); b != nil {
			blocks = slices.Insert(blocks, 0, unwind.Block{Addr: pl.spans[i].Addr, Data: b})
		}
	}
	return blocks
}

// maxAheadChunks bounds the bytes of a data stack that are read at once for a prediction.
const maxAheadChunks = 128 << 10

// addProof adds the reader's recorded reads to the next copy.
func (pl *pyPlan) addProof() {
	for _, s := range pl.reader.wanted {
		if len(pl.proof) < maxProofs && !slices.Contains(pl.proof, s) {
			pl.proof = append(pl.proof, s)
		}
	}
}

// dropHeap removes frames that could not be read from future copies.
func (pl *pyPlan) dropHeap(mem *unwind.Copy) {
	pl.heap = slices.DeleteFunc(pl.heap, func(s rule.Span) bool {
		return slices.ContainsFunc(mem.Blocks, func(b unwind.Block) bool { return b.Addr == s.Addr && len(b.Data) < s.Len })
	})
}

// keepHeap moves the reader's recorded reads to the front of the frames that are copied each time.
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

// maxFrameBytes exceeds the size of the head of any Python frame.
const maxFrameBytes = 512

// holds reports whether h is valid for p's copy: it was read before the copy was made, or for an
// earlier copy of the same thread. Code that another thread's walk read later may have been created
// after the code in the copy was freed.
func (p *pyThread) holds(h *held) bool { return h.nr <= p.plan.reads || h.by == p }

// known looks up the code of s's frames and compares the cached objects with the copy, or with live memory if the copy
// lacks them or is nil. It reports whether all code is known. halted: the thread has not run since the copy.
func (in *interpreter) known(p *pyThread, s *Stack, mem *unwind.Copy, halted bool) bool {
	pl := &p.plan
	pl.codes, pl.spans = pl.codes[:0], pl.spans[:0]
	in.mu.Lock()
	for i := range s.Frames {
		code := s.Frames[i].Code
		if slices.ContainsFunc(pl.codes, func(c seenCode) bool { return c.code == code }) {
			continue
		}
		c := seenCode{code: code, held: in.codes[code], head: in.rt.headIn(mem, code), first: len(pl.spans)}
		switch {
		case c.held == nil:
		case c.head != nil && (!bytes.Equal(c.head, c.held.code.head) || c.held.code.contradicts(mem)), c.head == nil && !halted && !p.holds(c.held):
			c.held = nil
		case c.head == nil:
			pl.spans = in.rt.Spans(code, c.held.code, pl.spans)
		}
		pl.codes = append(pl.codes, c)
	}
	in.mu.Unlock()
	pl.off, pl.buf = unwind.ReadAll(p.live, pl.spans, pl.off, pl.buf)
	all := true
	for i := range pl.codes {
		c := &pl.codes[i]
		if c.held != nil && c.head == nil && !in.rt.Is(c.held.code, func(i int) []byte { return pl.read(c.first + i) }) {
			c.held = nil
		}
		all = all && c.held != nil
	}
	return all
}

// codeTypes answers whether an address holds a code object, for the thread's Walk in progress. It
// assumes that cached objects are still there, because known compares them anyway.
type codeTypes pyThread

// ReadAt implements io.ReaderAt.
func (c *codeTypes) ReadAt(b []byte, addr int64) (int, error) {
	in := c.of
	code := uint64(addr) &^ 15 // alignment of objects
	if mem := c.plan.reader.mem; mem != nil {
		if n, err := (blocks{mem}).ReadAt(b, addr); err == nil {
			return n, nil
		}
	}
	in.mu.Lock()
	_, ok := in.codes[code]
	in.mu.Unlock()
	if ok && in.rt.IsCodeType(b, uint64(addr), code) {
		return len(b), nil
	}
	return c.live.ReadAt(b, addr)
}

// read returns the bytes of the i-th span, or nil if it could not be read.
func (pl *pyPlan) read(i int) []byte {
	if pl.off[i] < 0 {
		return nil
	}
	return pl.buf[pl.off[i] : pl.off[i]+pl.spans[i].Len]
}

// read reads the code object at addr for p and assigns its place. It returns nil if the object
// could not be read.
func (in *interpreter) read(p *pyThread, mem io.ReaderAt, addr uint64) *held {
	defer p.live.FirstLook()()
	c, err := in.rt.Code(mem, addr)
	if err != nil {
		return nil
	}
	return in.hold(p, addr, c)
}

// hold keeps the code object at addr, which p's copy needed, and assigns its place.
func (in *interpreter) hold(p *pyThread, addr uint64, c *Code) *held {
	h := &held{code: c, by: p}
	h.addr, h.size = c.In(in.table)
	in.mu.Lock()
	defer in.mu.Unlock()
	if was := in.codes[addr]; was != nil && was.code.Same(c) {
		return was // also valid for older copies
	}
	in.reads++
	h.nr = in.reads
	if len(in.codes) >= maxCodes {
		clear(in.codes)
	}
	in.codes[addr] = h
	return h
}

// placeFrames sets the places of the stack's frames whose code is known, and updates the plan to
// the data stack.
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
	if p.chunk() != pl.newest {
		in.chunks(p, p.live)
	}
}

// chunk identifies the newest chunks of the thread's data stacks at the last Capture; 0: it has none.
func (p *pyThread) chunk() uint64 {
	at := p.th.Chunk()
	for _, th := range p.others {
		at ^= th.Chunk()
	}
	return at
}

// dataStacks appends the chunks of the thread's data stacks, each outermost first, and updates
// p.newest, which is as chunk returns it.
func (p *pyThread) dataStacks(mem io.ReaderAt, out []rule.Span) []rule.Span {
	p.newest = 0
	add := func(th *Thread) {
		was := len(out)
		if out = th.Chunks(mem, out); len(out) > was {
			p.newest ^= out[was].Addr
		}
		slices.Reverse(out[was:])
	}
	add(p.th)
	for _, th := range p.others {
		add(th)
	}
	return out
}

// chunks locates the current data stack.
func (in *interpreter) chunks(p *pyThread, mem unwind.Memory) {
	pl := &p.plan
	pl.newest = 0
	pl.spans = p.dataStacks(mem, pl.spans[:0])
	pl.chunks = slices.DeleteFunc(pl.chunks, func(c chunk) bool {
		return c.left >= keepChunks || slices.ContainsFunc(pl.spans, func(s rule.Span) bool { return s.Addr == c.Addr })
	})
	for i := range pl.chunks {
		pl.chunks[i].left++
	}
	for i, s := range pl.spans {
		pl.chunks = slices.Insert(pl.chunks, i, chunk{Span: s})
	}
	pl.newest = p.newest
	pl.chunks = pl.chunks[:min(len(pl.chunks), maxKept)]
}

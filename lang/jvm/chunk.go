package jvm

import (
	"encoding/binary"
	"fmt"

	"github.com/sliverprof/sliver/stack"
)

// Frames of a virtual thread in the heap. A virtual thread that parks copies its frames to StackChunks
// (jdk.internal.vm.StackChunk). When it resumes, only the innermost one or two are copied back. The last
// of them returns to a continuation stub (the return barrier), which copies the next ones. Until then the
// callers are in the chunks, innermost chunk first:
//
//	virtual thread → cont → tail → parent → …
//
// A chunk's frames begin sp words and end bottom words after the object's fields. They have the form of
// frames on a stack, except that an interpreted frame keeps distances in words from its frame pointer
// where it has addresses on a stack, and its callee's saved frame pointer is the distance from its own
// place. The word below a frame is the return address into it. (src/hotspot/share/oops/stackChunkOop.inline.hpp,
// share/runtime/stackChunkFrameStream.inline.hpp, cpu/x86/stackChunkFrameStream_x86.inline.hpp and
// share/runtime/continuationFreezeThaw.cpp: openjdk/jdk@07a9cb5 for 25; the same in 21.)

const (
	// maxChunks bounds the chunks of one virtual thread, and maxChunkBytes the bytes of their frames.
	maxChunks     = 64
	maxChunkBytes = 128 << 10
	// maxChunkWords bounds the size of one chunk that is believed, in words.
	maxChunkWords = 1 << 24
	// chunkHead is the number of bytes below a chunk's innermost frame: the return address into it, and its
	// callee's saved frame pointer.
	chunkHead = 16
)

// chunkFields holds where a virtual thread's chunks are found: offsets of fields in objects, in bytes.
type chunkFields struct {
	class              uint64 // of chunks
	cont, tail         uint64
	parent             uint64
	size, sp, bottom   uint64
	stack              uint64 // where a chunk's words begin
	thread, scheduling uint64 // classes that declare cont and tail
}

// chunks locates frames in the heap.
type chunks struct {
	fields *chunkFields // nil: unknown
	yield  uint64       // the method that copies a virtual thread's frames to the heap; 0: not met
}

// Chunk is a copy of the frames in one chunk.
type Chunk struct {
	Addr   uint64 // of the first byte of Data
	Data   []byte // the head, then the frames
	bottom uint64 // address where the frames end
}

// HasChunks reports whether frames in the heap can be found.
func (r *Runtime) HasChunks() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chunks.fields != nil
}

// FindChunks looks for the fields that lead to frames in the heap, from the virtual thread that c runs
// now. They are unknown as long as no virtual thread with frames in the heap was seen.
func (r *Runtime) FindChunks(c Carrier) error {
	v, err := r.look()
	if err != nil {
		return err
	}
	return r.findChunks(v, v.follow(c.Mounted, v.word(c.Mounted)))
}

// findChunks is FindChunks for the virtual thread at t.
func (r *Runtime) findChunks(v *look, t uint64) error {
	const threadClass, contClass, chunkClass = "java/lang/VirtualThread", "jdk/internal/vm/Continuation", "jdk/internal/vm/StackChunk"
	if r.l.layoutHelper == none {
		return &VersionError{fmt.Sprint(r.Major), "its tables lack Klass._layout_helper"}
	}
	named := func(obj uint64, name string) uint64 {
		class := v.class(obj)
		if v.err != nil || obj == 0 {
			return 0
		}
		return r.classNamed(v.o, class, name)
	}
	f := &chunkFields{thread: named(t, threadClass)}
	if v.err != nil || f.thread == 0 {
		return errMoved
	}
	f.cont = v.field(f.thread, "cont", "L"+contClass+";")
	cont := v.ref(t + f.cont)
	if f.scheduling = named(cont, contClass); v.err != nil || f.scheduling == 0 {
		return errMoved
	}
	f.tail = v.field(f.scheduling, "tail", "L"+chunkClass+";")
	chunk := v.ref(cont + f.tail)
	if f.class = named(chunk, chunkClass); v.err != nil || f.class == 0 {
		return errMoved
	}
	f.parent = v.field(f.class, "parent", "L"+chunkClass+";")
	f.size, f.sp, f.bottom = v.field(f.class, "size", "I"), v.field(f.class, "sp", "I"), v.field(f.class, "bottom", "I")
	f.stack = uint64(v.half(f.class+r.l.layoutHelper)) &^ 7 // InstanceStackChunkKlass::init_offset_of_stack
	if v.err != nil || !v.steady() {
		return errMoved
	}
	if least := max(f.parent, f.size, f.sp, f.bottom) + 4; f.stack < least || f.stack > nearBytes {
		return &VersionError{fmt.Sprint(r.Major), fmt.Sprintf("a chunk's words begin at %d", f.stack)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chunks.fields = f
	return nil
}

// Chunks appends the chunks of the virtual thread that mounted, a copy of the word at c.Mounted, refers
// to. The thread must not run. Bytes for their data come from buf. The reason says why they are unknown.
func (r *Runtime) Chunks(c Carrier, mounted uint64, out []Chunk, buf []byte) ([]Chunk, []byte, stack.Reason) {
	v, err := r.look()
	if err != nil {
		return out, buf, stack.ReasonHeap
	}
	return r.chunksOf(v, v.follow(c.Mounted, mounted), out, buf)
}

// chunksOf is Chunks for the virtual thread at t.
func (r *Runtime) chunksOf(v *look, t uint64, out []Chunk, buf []byte) ([]Chunk, []byte, stack.Reason) {
	r.mu.Lock()
	f := r.chunks.fields
	r.mu.Unlock()
	if f == nil {
		return out, buf, stack.ReasonHeap
	}
	first, used := len(out), len(buf)
	if v.err == nil && (t == 0 || !r.isA(v, v.class(t), f.thread)) {
		return out, buf, stack.ReasonHeap
	}
	cont := v.ref(t + f.cont)
	at := cont
	if v.err == nil && (cont == 0 || !r.isA(v, v.class(cont), f.scheduling)) {
		return out, buf, stack.ReasonHeap
	}
	reason := stack.ReasonNone
	next := at + f.tail
	for range maxChunks {
		at = v.ref(next)
		if at == 0 || v.err != nil {
			break
		}
		size, sp, bottom := uint64(v.half(at+f.size)), uint64(v.half(at+f.sp)), uint64(v.half(at+f.bottom))
		if v.err == nil && (v.class(at) != f.class || size > maxChunkWords || bottom > size || sp > bottom) {
			return out[:first], buf[:used], stack.ReasonHeap
		}
		next = at + f.parent
		n := 8 * (bottom - sp)
		if v.err != nil || n == 0 {
			continue
		}
		if uint64(len(buf)-used)+n+chunkHead > maxChunkBytes {
			reason = stack.ReasonBound
			break
		}
		lo := at + f.stack + 8*sp - chunkHead
		buf = append(buf, make([]byte, n+chunkHead)...)
		data := buf[len(buf)-int(n+chunkHead):]
		if read(r.mem, data, lo) != nil {
			return out[:first], buf[:used], stack.ReasonHeap
		}
		out = append(out, Chunk{Addr: lo, Data: data, bottom: lo + uint64(len(data))})
	}
	if reason == stack.ReasonNone && at != 0 {
		reason = stack.ReasonBound
	}
	if v.err != nil || v.stale || !v.steady() {
		return out[:first], buf[:used], stack.ReasonHeap
	}
	return out, buf, reason
}

// isA reports whether a class is base or below it.
func (r *Runtime) isA(v *look, class, base uint64) bool {
	for range maxSupers {
		if class == base || class == 0 || v.err != nil {
			return class == base
		}
		class = v.word(class + v.o.super)
	}
	return false
}

// chunkWords reads the words of a chunk. The word at fixed is value: a distance made an address.
type chunkWords struct {
	c            *Chunk
	fixed, value uint64
}

// Word implements Words.
func (w *chunkWords) Word(addr uint64) (uint64, bool) {
	if addr == w.fixed {
		return w.value, true
	}
	if o := addr - w.c.Addr; o < uint64(len(w.c.Data)) && uint64(len(w.c.Data))-o >= 8 {
		return binary.LittleEndian.Uint64(w.c.Data[o:]), true
	}
	return 0, false
}

// distance reads the address that is kept as a distance in words from the frame pointer at from.
func (w *chunkWords) distance(addr, from uint64) (uint64, bool) {
	d, ok := w.Word(addr)
	if !ok || int64(d) > maxChunkWords || int64(d) < -maxChunkWords {
		return 0, false
	}
	return from + 8*d, true
}

// inHeap appends the frames of the chunks in s, whose outermost frame returns to code with base as stack
// pointer. A frame's CFA is where it would be if all of the virtual thread's frames were on the stack. The
// frames of out, which are further in, are moved accordingly. ok is false if the chunks do not continue
// the stack.
func (r *Runtime) inHeap(s *State, base uint64, out []stack.Frame) ([]stack.Frame, bool) {
	if s.Chunks == nil {
		return out, false
	}
	chunks, whole := s.Chunks()
	if len(chunks) == 0 {
		return out, false
	}
	depth := uint64(0) // bytes of frames in the heap
	for i := range chunks {
		depth += uint64(len(chunks[i].Data)) - chunkHead
	}
	n := len(out)
	was := *s
	left := depth
	why := whole
	for i := range chunks {
		begun := len(out)
		out, why = r.inChunk(s, &chunks[i], out)
		if i == 0 && (len(out) == begun || out[begun].Kind != stack.KindJava || r.copied(&out[begun], out[:n])) {
			why = stack.ReasonHeap // its frames are being moved
		}
		left -= uint64(len(chunks[i].Data)) - chunkHead
		for k := begun; k < len(out); k++ {
			out[k].CFA = base - left - (chunks[i].bottom - out[k].CFA)
		}
		if why != stack.ReasonNone {
			break
		}
	}
	used := s.used
	*s = was
	if s.used = used; why == stack.ReasonNone {
		why = whole
	}
	if why == stack.ReasonHeap || why == stack.ReasonCorrupt {
		return out[:n], false
	}
	for k := range out[:n] {
		if f := &out[k]; f.CFA != 0 && f.CFA <= base {
			f.CFA -= depth
		}
	}
	if why != stack.ReasonNone {
		s.Heap = true
		out = append(out, stack.Frame{PC: uint64(why), Kind: stack.KindError})
	}
	return out, true
}

// copied reports whether a thread is copying its frames in to a chunk whose innermost frame is f: they are
// in both places then.
func (r *Runtime) copied(f *stack.Frame, in []stack.Frame) bool {
	for i := range in {
		if g := &in[i]; g.Kind == stack.KindJava {
			r.mu.Lock()
			defer r.mu.Unlock()
			return f.Func == g.Func && f.PC == g.PC || g.Func == r.chunks.yield
		}
	}
	return false
}

// inChunk appends the frames of one chunk.
func (r *Runtime) inChunk(s *State, c *Chunk, out []stack.Frame) ([]stack.Frame, stack.Reason) {
	w := chunkWords{c: c}
	sp := c.Addr + chunkHead
	link := sp - 16 // of the saved frame pointer
	s.PC, _ = w.Word(sp - 8)
	s.Words, s.rebuilt = &w, false
	end := c.bottom
	for sp < end {
		s.Exact, s.R[rsp], s.Known, w.fixed = false, sp, 1<<rsp, 0
		p, err := s.placeOf(r, s.PC, false)
		if err != nil || p.b.continuation { // from there, the walk would go to the chunks again
			return out, stack.ReasonCorrupt
		}
		interpreted := p.b.kind == kindInterpreter
		if interpreted {
			fp, ok := w.distance(link, link)
			if !ok || fp < sp || fp >= c.bottom {
				return out, stack.ReasonCorrupt
			}
			if w.value, ok = w.distance(fp+slotSender, fp); !ok {
				return out, stack.ReasonCorrupt
			}
			w.fixed = fp + slotSender
			s.R[rbp], s.Known = fp, s.Known|1<<rbp
			link, end = fp, c.bottom-chunkHead // as next does if a chunk has interpreted frames
		}
		var why stack.Reason
		if out, why = r.Step(s, out); why != stack.ReasonNone {
			return out, stack.ReasonCorrupt
		}
		if s.R[rsp] <= sp {
			return out, stack.ReasonCorrupt
		}
		if sp = s.R[rsp]; !interpreted {
			link = sp - 16
		}
	}
	return out, stack.ReasonNone
}

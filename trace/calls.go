package trace

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// Traced describes the traced functions of a recording and the losses.
type Traced struct {
	At        stack.Time       `json:"at"`        // the accounts are as of then
	Began     stack.Time       `json:"began"`     // calls are recorded from here on
	Engine    string           `json:"engine"`    // "cpu", "kernel"
	Slower    int64            `json:"slower_ns"` // shorter calls are counted and not recorded
	Functions []TracedFunction `json:"functions"`
	Lost      uint64           `json:"lost_hits"`     // entries and exits that the kernel dropped
	Dropped   uint64           `json:"dropped_calls"` // calls in a recursion that was too deep
}

// TracedFunction is one of them. Calls refer to it by its index.
type TracedFunction struct {
	Name   string      `json:"name"`
	Module string      `json:"module"`
	File   string      `json:"file,omitempty"`
	Line   int         `json:"line,omitempty"`
	Addr   uint64      `json:"addr"`   // of its first instruction, in the target
	Ranges [][2]uint64 `json:"ranges"` // from and to of its code, in the target
	Calls  uint64      `json:"calls"`  // all, those that are not recorded too
	Left   uint64      `json:"left"`   // of these, without a return
	// Hot is the rate of entries and exits (1/s) at which the function was detached at HotAt; 0: it was not.
	Hot   float64    `json:"detached_at_hits_per_s,omitempty"`
	HotAt stack.Time `json:"detached_at,omitempty"`
}

// Bounds on what a hostile recording can make a reader keep.
const (
	maxTraced     = 1 << 16 // functions
	maxCallChunks = 1 << 20
	maxCallChunk  = 1 << 14 // calls that a writer puts into one chunk
)

// A call chunk holds calls of one thread, in the order in which they ended:
//
//	uvarint TID, uvarint number of calls, uvarint time, calls
//
// A call is a uvarint function, the varint of its Enter minus that of the call before (at first the
// time of the head), a uvarint duration, the varints of its CFA and return address minus those of the
// call before (at first 0), and a byte: bits 0..2 how it ended, bit 3 it began before, bit 4 unsure,
// bit 5 a uvarint task follows.
const (
	callHow    = 7
	callBefore = 1 << 3
	callUnsure = 1 << 4
	callTask   = 1 << 5
)

func appendCalls(b []byte, tid stack.TID, cs []calls.Call) []byte {
	b = binary.AppendUvarint(b, uint64(uint32(tid)))
	b = binary.AppendUvarint(b, uint64(len(cs)))
	at, cfa, ret := cs[0].Enter, uint64(0), uint64(0)
	b = binary.AppendUvarint(b, uint64(at))
	for i := range cs {
		c := &cs[i]
		b = binary.AppendUvarint(b, uint64(c.Fn))
		b = binary.AppendVarint(b, int64(c.Enter-at))
		b = binary.AppendUvarint(b, uint64(max(c.Duration(), 0)))
		b = binary.AppendVarint(b, int64(c.CFA-cfa))
		b = binary.AppendVarint(b, int64(c.Ret-ret))
		at, cfa, ret = c.Enter, c.CFA, c.Ret
		flags := byte(c.How) & callHow
		if c.Before {
			flags |= callBefore
		}
		if c.Unsure {
			flags |= callUnsure
		}
		if c.Task != 0 {
			b = append(b, flags|callTask)
			b = binary.AppendUvarint(b, c.Task)
			continue
		}
		b = append(b, flags)
	}
	return b
}

// decodeCalls calls yield for each call of a chunk until it says no.
func decodeCalls(b []byte, yield func(calls.Call) bool) (more bool, err error) {
	i := 0
	bad := func(what string) error { return fmt.Errorf("call chunk: byte %d: bad %s", i, what) }
	u := func() (v uint64) {
		v, n := binary.Uvarint(b[i:])
		if n <= 0 {
			err = bad("number")
			return 0
		}
		i += n
		return v
	}
	s := func() (v int64) {
		v, n := binary.Varint(b[i:])
		if n <= 0 {
			err = bad("number")
			return 0
		}
		i += n
		return v
	}
	tid, n, at := u(), u(), u()
	if err == nil && (tid > 1<<31-1 || at > 1<<63-1 || n > uint64(len(b)-i)) {
		err = fmt.Errorf("call chunk: thread %d, %d calls, time %d in %d bytes", tid, n, at, len(b))
	}
	var c calls.Call
	c.TID, c.Enter = stack.TID(tid), stack.Time(at)
	for ; n > 0 && err == nil; n-- {
		fn := u()
		c.Enter += stack.Time(s())
		dur := u()
		c.CFA += uint64(s())
		c.Ret += uint64(s())
		if err == nil && i >= len(b) {
			err = bad("flags")
		}
		if err != nil {
			break
		}
		flags := b[i]
		i++
		c.Task = 0
		if flags&callTask != 0 {
			c.Task = u()
		}
		c.Fn, c.Exit, c.How = int(min(fn, maxTraced)), c.Enter+stack.Time(dur), calls.How(flags&callHow)
		c.Before, c.Unsure = flags&callBefore != 0, flags&callUnsure != 0
		switch {
		case err != nil:
		case fn >= maxTraced || !c.How.Valid():
			err = bad(fmt.Sprintf("call of function %d, end %d", fn, flags&callHow))
		case c.Enter < 0 || dur > 1<<62 || c.Exit < c.Enter:
			err = bad(fmt.Sprintf("times, %d and %d ns", c.Enter, dur))
		case !yield(c):
			return false, nil
		}
	}
	return err == nil, err
}

// Traced notes the traced functions and the accounts so far.
func (r *Recorder) Traced(t *Traced) { r.noteLocked(chunkTraced, t) }

// Calls notes calls that ended, of any threads.
func (r *Recorder) Calls(cs []calls.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(r.w.Calls(cs))
}

// Traced writes the traced functions; the newest chunk counts.
func (w *Writer) Traced(t *Traced) error { return w.json(chunkTraced, t) }

// Calls writes calls of any threads. It sorts cs by thread.
func (w *Writer) Calls(cs []calls.Call) error {
	slices.SortStableFunc(cs, func(a, b calls.Call) int { return int(a.TID) - int(b.TID) })
	for len(cs) > 0 {
		n := 1
		for n < len(cs) && n < maxCallChunk && cs[n].TID == cs[0].TID {
			n++
		}
		w.payload = appendCalls(w.payload[:0], cs[0].TID, cs[:n])
		if err := w.chunk(chunkCalls, w.payload); err != nil {
			return err
		}
		cs = cs[n:]
	}
	return nil
}

// takeTraced reads a Traced chunk.
func (rec *Recording) takeTraced(b []byte) error {
	var t Traced
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	if len(t.Functions) > maxTraced {
		return fmt.Errorf("chunk %s: %d functions, more than %d", chunkTraced, len(t.Functions), maxTraced)
	}
	rec.Traced = &t
	return nil
}

// noteCalls keeps where a chunk of calls is.
func (rec *Recording) noteCalls(off int64, length int, crc uint32) {
	if len(rec.calls) < maxCallChunks {
		rec.calls = append(rec.calls, chunkRef{off: off, length: length, crc: crc})
	}
}

// Calls yields the traced calls of all threads, those of one thread in the order in which they
// ended. Functions are indexes of Traced. Calls of functions that are not there, and those in damaged
// chunks, are left out; damage is reported once the iteration is over, as an error of the last call
// of yield.
func (rec *Recording) Calls() iter.Seq2[calls.Call, error] {
	return func(yield func(calls.Call, error) bool) {
		known := 0
		if rec.Traced != nil {
			known = len(rec.Traced.Functions)
		}
		var buf []byte
		var first error
		for _, ref := range rec.calls {
			b, err := payloadAt(rec.r, ref.off, chunkCalls, ref.length, ref.crc, buf)
			more := true
			if err == nil {
				buf = b
				more, err = decodeCalls(b, func(c calls.Call) bool { return c.Fn >= known || yield(c, nil) })
			}
			if err != nil {
				if first == nil {
					first = at(ref.off, err)
				}
				continue
			}
			if !more {
				return
			}
		}
		if first != nil {
			yield(calls.Call{}, first)
		}
	}
}

// ThreadOf is the index in Threads of the thread that had a number at a time, -1 for none: a number
// may have been used by several threads in turn.
func (rec *Recording) ThreadOf(tid stack.TID, t stack.Time) int {
	best := -1
	for i := range rec.Threads {
		th := &rec.Threads[i]
		if th.TID == tid && (best < 0 || th.Born <= t && th.Born >= rec.Threads[best].Born) {
			best = i
		}
	}
	return best
}

// cutCalls writes the calls that were under way in the part.
func cutCalls(tw *Writer, rec *Recording, p Part) error {
	if rec.Traced == nil {
		return nil
	}
	if err := tw.Traced(rec.Traced); err != nil {
		return err
	}
	var batch []calls.Call
	for c, err := range rec.Calls() {
		if err != nil || c.Exit < p.From || p.To != 0 && c.Enter > p.To {
			continue
		}
		if p.Threads != nil {
			i := rec.ThreadOf(c.TID, c.Exit)
			if i < 0 || !slices.Contains(p.Threads, rec.Threads[i].Seq) {
				continue
			}
		}
		if batch = append(batch, c); len(batch) == maxCallChunk {
			if err := tw.Calls(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return tw.Calls(batch)
}

// eachCallWord calls yield for the places that traced calls were made from.
func (rec *Recording) eachCallWord(yield func(w event.Word, at stack.Time)) {
	for c, err := range rec.Calls() {
		if err == nil && c.Ret != 0 {
			yield(event.WordOf(&stack.Frame{PC: c.Ret}), c.Enter)
		}
	}
}

package trace

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Traced describes the traced functions of a recording and the losses.
type Traced struct {
	At        stack.Time       `json:"at"`        // the accounts are as of then
	Began     stack.Time       `json:"began"`     // calls are recorded from here on
	Engine    string           `json:"engine"`    // "cpu", "kernel", "jfr"
	Slower    int64            `json:"slower_ns"` // shorter calls are counted and not recorded
	Functions []TracedFunction `json:"functions"`
	Lost      uint64           `json:"lost_hits"`     // entries and exits that the kernel dropped
	Dropped   uint64           `json:"dropped_calls"` // calls in a recursion that was too deep
	// LostBytes is the size of the records of calls that the runtime dropped, Missing the time in ns whose calls are not
	// known, and ClockError how far, in ns, the times of calls may be off.
	LostBytes  uint64 `json:"lost_bytes,omitempty"`
	Missing    int64  `json:"missing_ns,omitempty"`
	ClockError int64  `json:"clock_error_ns,omitempty"`
}

// TracedFunction is one of them. Calls refer to it by its index.
type TracedFunction struct {
	Name   string `json:"name"`
	Module string `json:"module"`
	// Kind is that of its frames, which a runtime's functions have by their name. Native ones have theirs by Ranges.
	Kind   stack.Kind  `json:"kind,omitempty"`
	File   string      `json:"file,omitempty"`
	Line   int         `json:"line,omitempty"`
	Addr   uint64      `json:"addr"`            // of its first instruction, in the target
	Ranges [][2]uint64 `json:"ranges"`          // from and to of its code, in the target, at all places where it was mapped
	Since  stack.Time  `json:"since,omitempty"` // from then on its calls are recorded, if its file was mapped after Began; 0: from Began on
	Calls  uint64      `json:"calls"`           // all, those that are not recorded too
	Left   uint64      `json:"left"`            // of these, without a return
	// Hot is the rate of entries and exits (1/s) at which the function was detached at HotAt; 0: it was not.
	Hot   float64    `json:"detached_at_hits_per_s,omitempty"`
	HotAt stack.Time `json:"detached_at,omitempty"`
}

// managed reports whether it is a function of a runtime that gives functions addresses of their own.
func (f *TracedFunction) managed() bool { return f.Kind.Managed() }

// maxTraced is how many functions a hostile recording can make a reader keep.
const maxTraced = 1 << 16

// callRecords are chunks of calls. A call is a uvarint function, the varint of its Enter minus that of
// the call before (at first the time of the head), a uvarint duration, the varints of its CFA and return
// address minus those of the call before (at first 0), and a byte: bits 0..2 how it ended, bit 3 it
// began before, bit 4 unsure, bit 5 a uvarint task follows.
var callRecords = records[calls.Call]{
	chunk: chunkCalls, what: "call",
	tid:   func(c *calls.Call) stack.TID { return c.TID },
	span:  func(c *calls.Call) (from, to stack.Time) { return c.Enter, c.Exit },
	first: func(tid stack.TID, at stack.Time) calls.Call { return calls.Call{TID: tid, Enter: at} },
	put:   putCall, take: takeCall,
}

const (
	callHow    = 7
	callBefore = 1 << 3
	callUnsure = 1 << 4
	callTask   = 1 << 5
)

func putCall(b []byte, c, before *calls.Call) []byte {
	b = binary.AppendUvarint(b, uint64(c.Fn))
	b = binary.AppendVarint(b, int64(c.Enter-before.Enter))
	b = binary.AppendUvarint(b, uint64(max(c.Duration(), 0)))
	b = binary.AppendVarint(b, int64(c.CFA-before.CFA))
	b = binary.AppendVarint(b, int64(c.Ret-before.Ret))
	flags := byte(c.How) & callHow // calls.Ended becomes calls.Returned
	if c.Before {
		flags |= callBefore
	}
	if c.Unsure {
		flags |= callUnsure
	}
	if c.Task == 0 {
		return append(b, flags)
	}
	return binary.AppendUvarint(append(b, flags|callTask), c.Task)
}

func takeCall(n *recordNumbers, c *calls.Call) {
	fn := n.unsigned()
	c.Enter += stack.Time(n.signed())
	dur := n.unsigned()
	c.CFA += uint64(n.signed())
	c.Ret += uint64(n.signed())
	flags := n.flags()
	c.Task = 0
	if flags&callTask != 0 {
		c.Task = n.unsigned()
	}
	c.Fn, c.Exit, c.How = int(min(fn, maxTraced)), c.Enter+stack.Time(dur), calls.How(flags&callHow)
	c.Before, c.Unsure = flags&callBefore != 0, flags&callUnsure != 0
	switch {
	case fn >= maxTraced || !c.How.Valid():
		n.bad("call of function %d, end %d", fn, flags&callHow)
	case c.Enter < 0 || dur > 1<<62 || c.Exit < c.Enter:
		n.bad("times, %d and %d ns", c.Enter, dur)
	}
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
func (w *Writer) Calls(cs []calls.Call) error { return callRecords.write(w, cs) }

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
		for c, err := range callRecords.all(rec, rec.calls) {
			if err == nil && c.Fn >= known {
				continue
			}
			if err == nil {
				rec.ended(&c)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// ended says that it is not known how a call of a runtime's function ended, of which there is a function.
func (rec *Recording) ended(c *calls.Call) {
	if c.How == calls.Returned && rec.Traced.Functions[c.Fn].managed() {
		c.How = calls.Ended
	}
}

// cutCalls writes the calls that were under way in the part.
func cutCalls(tw *Writer, rec *Recording, p Part) error {
	if rec.Traced == nil {
		return nil
	}
	if err := tw.Traced(rec.Traced); err != nil {
		return err
	}
	return callRecords.cut(tw, rec, p, rec.Calls())
}

// eachCallWord calls yield for the places that traced calls were made from, and where traced functions begin.
func (rec *Recording) eachCallWord(yield func(w event.Word, at stack.Time)) {
	if rec.Traced != nil {
		for i := range rec.Traced.Functions {
			f := &rec.Traced.Functions[i]
			if f.managed() {
				continue // its name is known
			}
			a := f.Addr
			yield(event.WordOf(&stack.Frame{Func: a, PC: a, Exact: true}), rec.Traced.Began)
		}
	}
	for c, err := range rec.Calls() {
		if err == nil && c.Ret != 0 {
			yield(event.WordOf(&stack.Frame{PC: c.Ret}), c.Enter)
		}
	}
}

package trace

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Switches are the accounts of exact context switches.
type Switches struct {
	At      stack.Time `json:"at"`         // the accounts are as of then
	Began   stack.Time `json:"began"`      // switches are recorded from here on
	Records uint64     `json:"records"`    // times off the CPUs with a record
	Full    uint64     `json:"full"`       // times without one because the buffer was full: they are in sums
	Rate    uint64     `json:"over_limit"` // times without one because there were too many: the same
	Lost    []string   `json:"lost"`       // a line for each other kind of loss
}

// Waker is a thread that woke others, also of another process. Switches refer to it by its index.
type Waker struct {
	TID  stack.TID `json:"tid"`
	PID  int       `json:"pid"` // 0: the kernel's idle thread
	Name string    `json:"name"`
}

// wakersChunk adds wakers. First is the number of wakers in earlier chunks.
type wakersChunk struct {
	First  int     `json:"first"`
	Wakers []Waker `json:"wakers"`
}

// MaxWakers bounds the wakers of a recording.
const MaxWakers = 1 << 16

// kernelChunk adds kernel stacks. First is the number of stacks in earlier chunks.
type kernelChunk struct {
	First  int        `json:"first"`
	Stacks [][]string `json:"stacks"` // names of functions, innermost first
}

// MaxKernelStacks bounds the kernel stacks of a recording, maxKernelFrames the names of one.
const (
	MaxKernelStacks = 1 << 14
	maxKernelFrames = 1 << 8
)

// Switch is a time of a thread off the CPUs.
type Switch struct {
	TID     stack.TID
	Out, In stack.Time
	// Wake is when it became ready to run; 0: it was not until In. If it was ready from the beginning, it was
	// preempted, and State is stack.StateRunnable.
	Wake  stack.Time
	State stack.State // from Out to Wake; StateRunning: it ran until Out, and that is all that is known
	Waker int         // index of Recording.Wakers; -1: unknown or none
	By    event.WokenBy
	Stack int  // number of Recording.KernelStacks, from 1: the kernel's functions that it waited in; 0: unknown
	Open  bool // it was not over at In
	// Skipped are times off the CPUs since the record before that have none; Asleep and Queued are the ns in
	// them before and after the wake-ups.
	Skipped, Asleep, Queued uint64
	Why                     SwitchLoss // reasons for Skipped
}

// SwitchLoss is why times off the CPUs have no record.
type SwitchLoss uint8

// Reasons, as bits.
const (
	SwitchFull SwitchLoss = 1 << iota // the buffer was full
	SwitchRate                        // there were too many
)

// switchRecords are chunks of times off the CPUs. One is a byte (bits 0..2 state, bit 3 woken, bit 4 a waker
// follows, bit 5 not over, bit 6 skipped ones follow, bit 7 an interrupt follows), the varint of Out minus the
// In of the one before (at first the time of the head), a uvarint In - Out, with bit 3 a uvarint Wake - Out,
// with bit 4 a uvarint waker, with bit 7 a byte of event.WokenBy, and with bit 6 the uvarints of their number,
// of the ns asleep and queued, and a byte of reasons. Behind the records are the kernel stacks: see putStacks.
var switchRecords = records[Switch]{
	chunk: chunkSwitches, what: "switch",
	tid:   func(s *Switch) stack.TID { return s.TID },
	span:  func(s *Switch) (from, to stack.Time) { return s.Out, s.In },
	first: func(tid stack.TID, at stack.Time) Switch { return Switch{TID: tid, In: at} },
	put:   putSwitch, take: takeSwitch, tail: putStacks, taken: takeStacks,
}

const (
	switchState   = 7
	switchWoken   = 1 << 3
	switchWaker   = 1 << 4
	switchOpen    = 1 << 5
	switchSkipped = 1 << 6
	switchBy      = 1 << 7
)

// switchStates are the states that a record can have, by their number in it.
var switchStates = [...]stack.State{stack.StateRunnable, stack.StateBlocked, stack.StateDisk, stack.StateStopped, stack.StateTraced, stack.StateDead, stack.StateRunning}

func putSwitch(b []byte, s, before *Switch) []byte {
	flags := byte(1)
	for i, x := range switchStates {
		if x == s.State {
			flags = byte(i)
		}
	}
	if s.Wake != 0 {
		flags |= switchWoken
	}
	if s.Waker >= 0 {
		flags |= switchWaker
	}
	if s.Open {
		flags |= switchOpen
	}
	if s.Skipped > 0 {
		flags |= switchSkipped
	}
	if s.By != 0 {
		flags |= switchBy
	}
	b = append(b, flags)
	b = binary.AppendVarint(b, int64(s.Out-before.In))
	b = binary.AppendUvarint(b, uint64(max(s.In-s.Out, 0)))
	if s.Wake != 0 {
		b = binary.AppendUvarint(b, uint64(max(s.Wake-s.Out, 0)))
	}
	if s.Waker >= 0 {
		b = binary.AppendUvarint(b, uint64(s.Waker))
	}
	if s.By != 0 {
		b = append(b, byte(s.By))
	}
	if s.Skipped > 0 {
		b = binary.AppendUvarint(b, s.Skipped)
		b = binary.AppendUvarint(b, s.Asleep)
		b = binary.AppendUvarint(b, s.Queued)
		b = append(b, byte(s.Why))
	}
	return b
}

func takeSwitch(n *recordNumbers, s *Switch) {
	flags := n.flags()
	out := s.In + stack.Time(n.signed())
	off, woken := n.unsigned(), uint64(0)
	*s = Switch{TID: s.TID, Out: out, In: out + stack.Time(off), Waker: -1, Open: flags&switchOpen != 0}
	if flags&switchWoken != 0 {
		woken = n.unsigned()
		s.Wake = out + stack.Time(woken)
	}
	if flags&switchWaker != 0 {
		s.Waker = int(min(n.unsigned(), MaxWakers))
	}
	if flags&switchBy != 0 {
		s.By = event.WokenBy(n.flags())
	}
	if flags&switchSkipped != 0 {
		s.Skipped, s.Asleep, s.Queued = n.unsigned(), n.unsigned(), n.unsigned()
		s.Why = SwitchLoss(n.flags())
	}
	k := int(flags & switchState)
	switch {
	case k >= len(switchStates):
		n.bad("state %d", k)
		return
	case out < 0 || off > 1<<62 || s.In < out || woken > off:
		n.bad("times, %d, %d and %d ns", out, off, woken)
	case s.Asleep > 1<<62 || s.Queued > 1<<62:
		n.bad("sums, %d and %d ns", s.Asleep, s.Queued)
	}
	s.State = switchStates[k]
}

// putStacks appends, for each record with a kernel stack, the uvarints of how many records without one are before it,
// and of the stack.
func putStacks(b []byte, all []Switch) []byte {
	without := uint64(0)
	for i := range all {
		if all[i].Stack <= 0 {
			without++
			continue
		}
		b = binary.AppendUvarint(b, without)
		b = binary.AppendUvarint(b, uint64(all[i].Stack))
		without = 0
	}
	return b
}

func takeStacks(n *recordNumbers) func(*Switch) {
	without, number := uint64(0), uint64(0)
	next := func() {
		if number = 0; n.err == nil && n.i < len(n.b) {
			without, number = n.unsigned(), n.unsigned()
		}
	}
	next()
	return func(s *Switch) {
		switch {
		case number == 0:
		case without > 0:
			without--
		default:
			s.Stack = int(min(number, MaxKernelStacks+1))
			next()
		}
	}
}

// Switches notes the accounts so far.
func (r *Recorder) Switches(x *Switches) { r.noteLocked(chunkSwitched, x) }

// Switched notes times off the CPUs of any threads, those of one thread in order, and before them the wakers
// that are new: first is how many there were.
func (r *Recorder) Switched(first int, wakers []Waker, all []Switch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(wakers) > 0 {
		r.note(r.w.Wakers(first, wakers))
	}
	r.note(r.w.Switched(all))
}

// Switches writes the accounts; the newest chunk counts.
func (w *Writer) Switches(x *Switches) error { return w.json(chunkSwitched, x) }

// Wakers writes further wakers; first is how many there were.
func (w *Writer) Wakers(first int, all []Waker) error {
	return w.json(chunkWakers, wakersChunk{First: first, Wakers: all})
}

// KernelStacks notes further kernel stacks, as names of functions, innermost first; first is how many there were.
func (r *Recorder) KernelStacks(first int, all [][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(r.w.KernelStacks(first, all))
}

// KernelStacks writes further kernel stacks; first is how many there were.
func (w *Writer) KernelStacks(first int, all [][]string) error {
	return w.json(chunkKernel, kernelChunk{First: first, Stacks: all})
}

// Switched writes times off the CPUs of any threads. It sorts them by thread.
func (w *Writer) Switched(all []Switch) error { return switchRecords.write(w, all) }

func (rec *Recording) takeSwitches(b []byte) error {
	var x Switches
	if err := json.Unmarshal(b, &x); err != nil {
		return err
	}
	rec.Switches = &x
	return nil
}

func (rec *Recording) takeWakers(b []byte) error {
	var x wakersChunk
	if err := json.Unmarshal(b, &x); err != nil {
		return err
	}
	if x.First != len(rec.Wakers) || x.First+len(x.Wakers) > MaxWakers {
		return fmt.Errorf("chunk %s: %d wakers from %d on, %d are known", chunkWakers, len(x.Wakers), x.First, len(rec.Wakers))
	}
	rec.Wakers = append(rec.Wakers, x.Wakers...)
	return nil
}

func (rec *Recording) takeKernel(b []byte) error {
	var x kernelChunk
	if err := json.Unmarshal(b, &x); err != nil {
		return err
	}
	if x.First != len(rec.KernelStacks) || x.First+len(x.Stacks) > MaxKernelStacks {
		return fmt.Errorf("chunk %s: %d stacks from %d on, %d are known", chunkKernel, len(x.Stacks), x.First, len(rec.KernelStacks))
	}
	for _, s := range x.Stacks {
		rec.KernelStacks = append(rec.KernelStacks, s[:min(len(s), maxKernelFrames)])
	}
	return nil
}

// noteSwitches keeps where a chunk is, by its thread.
func (rec *Recording) noteSwitches(off int64, length int, crc uint32) error {
	if rec.switchChunks >= maxRecordChunks {
		return nil
	}
	b := make([]byte, min(length, binary.MaxVarintLen64))
	if _, err := rec.r.ReadAt(b, off+chunkHead); err != nil {
		return err
	}
	tid, n := binary.Uvarint(b)
	if n <= 0 || tid > 1<<31-1 {
		return fmt.Errorf("chunk %s: no thread", chunkSwitches)
	}
	if rec.switches == nil {
		rec.switches = map[stack.TID][]chunkRef{}
	}
	rec.switchChunks++
	rec.switches[stack.TID(tid)] = append(rec.switches[stack.TID(tid)], chunkRef{off: off, length: length, crc: crc})
	return nil
}

// HasSwitches reports whether the recording has exact switches of a thread.
func (rec *Recording) HasSwitches(tid stack.TID) bool { return len(rec.switches[tid]) > 0 }

// Switched yields the times off the CPUs of the thread with a number, in order. Those in damaged chunks are left
// out, and the next one has Skipped; damage is also reported once the iteration is over, as an error of the last
// call of yield.
func (rec *Recording) Switched(tid stack.TID) iter.Seq2[Switch, error] {
	return func(yield func(Switch, error) bool) {
		refs := rec.switches[tid]
		var first error
		lost, last := false, stack.Time(0)
		for i := range refs {
			more := true
			for s, err := range switchRecords.all(rec, refs[i:i+1]) {
				if err != nil {
					lost = true
					if first == nil {
						first = err
					}
					break
				}
				if s.Out < last {
					continue // out of order: the file is damaged
				}
				last = s.In
				if s.Waker >= len(rec.Wakers) {
					s.Waker = -1
				}
				if s.Stack > len(rec.KernelStacks) {
					s.Stack = 0
				}
				if lost {
					s.Skipped, lost = max(s.Skipped, 1), false
				}
				if more = yield(s, nil); !more {
					return
				}
			}
		}
		if first != nil {
			yield(Switch{}, first)
		}
	}
}

// cutSwitches writes the accounts, which are those of the whole recording, and the times off the CPUs that were
// under way in the part. The one before and the one behind it show what the thread did at its edges.
func cutSwitches(tw *Writer, rec *Recording, p Part) error {
	if rec.Switches == nil {
		return nil
	}
	if err := tw.Switches(rec.Switches); err != nil {
		return err
	}
	if len(rec.Wakers) > 0 {
		if err := tw.Wakers(0, rec.Wakers); err != nil {
			return err
		}
	}
	if len(rec.KernelStacks) > 0 {
		if err := tw.KernelStacks(0, rec.KernelStacks); err != nil {
			return err
		}
	}
	done := map[stack.TID]bool{}
	for i := range rec.Threads {
		tid := rec.Threads[i].TID
		if done[tid] || !rec.HasSwitches(tid) {
			continue
		}
		done[tid] = true
		var batch []Switch
		var before *Switch
		for s, err := range rec.Switched(tid) {
			if err != nil {
				break
			}
			if s.In < p.From {
				before = &s
				continue
			}
			if before != nil && rec.hasThread(p, tid, before.In) {
				batch = append(batch, *before)
			}
			before = nil
			if rec.hasThread(p, tid, s.Out) {
				batch = append(batch, s)
			}
			if p.To != 0 && s.Out > p.To {
				break
			}
			if len(batch) >= maxRecords {
				if err := switchRecords.write(tw, batch); err != nil {
					return err
				}
				batch = batch[:0]
			}
		}
		if err := switchRecords.write(tw, batch); err != nil {
			return err
		}
	}
	return nil
}

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/sliverprof/sliver/stack"
)

// Asides reads memory beside the stacks of running threads at the moment at which a perf event copies them: a
// program runs at each overflow of the event, before the kernel makes its sample. The program reads with page
// faults disabled, so memory that is not present is missing. Perf samples and records of the program are joined
// by thread, time, stack pointer and program counter.
//
// The kernel removes the program when this process ends. All methods may be called concurrently.
type Asides struct {
	attached
	mu sync.Mutex
	by map[stack.TID]*asideQueue
}

// Limits of an Aside, and of the records kept.
const (
	MaxAsideBlocks = 4
	MaxAsideBlock  = 256      // bytes of a block
	MaxAsideStack  = 16 << 10 // bytes of a task's stack

	asideRing  = 4 << 20
	maxAsides  = 1 << 12 // threads
	mostAsides = 64      // records kept for a thread
	// asideNearest is the most time between a copy and its record. It is less than the shortest period of a clock.
	asideNearest = 100 * stack.Time(time.Microsecond)
)

// Aside is what to read of a thread. Blocks beyond the limits are not read.
type Aside struct {
	Blocks []stack.Span
	// Pointer is the address of a pointer to Len bytes that describe the task that the thread runs; 0: none. Lo,
	// Hi and SP are offsets therein: the bounds of the task's stack, and the stack pointer with which the
	// thread left it. If the thread is on another stack, the task's is copied from there, or from the value of one
	// of regKept that is lower.
	Pointer    uint64
	Len        int
	Lo, Hi, SP int
}

// AsideBlock is a part of a thread's memory.
type AsideBlock struct {
	Addr uint64
	Data []byte
}

// asideQueue are the records of a thread that were not taken yet.
type asideQueue struct {
	plan  [asidePlanBytes]byte
	queue [][]byte
	free  [][]byte
	taken []byte // the record that Take returned last
}

// Value of a thread in the map of plans.
const (
	xpBlocks       = 0 // MaxAsideBlocks pairs of address and length
	xpPointer      = 64
	xpLen          = 72
	xpLo           = 80
	xpHi           = 88
	xpSP           = 96
	asidePlanBytes = 104
)

// A record.
const (
	xrTime    = 0
	xrTID     = 8
	xrSP      = 16
	xrPC      = 24
	xrRead    = 32 // bit i: block i was read; bit MaxAsideBlocks: the task's data
	xrTask    = 40 // its address
	xrTaskLen = 48
	xrAddr    = 56 // of the task's stack
	xrLen     = 64 // bytes of it
	xrPlan    = 72 // xpBlocks
	xrBlocks  = xrPlan + MaxAsideBlocks*16
	xrData    = xrBlocks + MaxAsideBlocks*MaxAsideBlock
	xrStack   = xrData + MaxAsideBlock
	xrMost    = xrStack + MaxAsideStack
)

// OpenAsides loads the program. Perf events run it once it is set for them (Program).
func OpenAsides() (*Asides, error) {
	if err := errors.Join(rights(), initialSpace()); err != nil {
		return nil, err
	}
	e := &Asides{attached: attached{maps: map[string]*ebpf.Map{}}, by: map[stack.TID]*asideQueue{}}
	if err := e.open(); err != nil {
		e.Close()
		return nil, explain(err)
	}
	return e, nil
}

func (e *Asides) open() error {
	for _, s := range []ebpf.MapSpec{
		{Name: "aside_plans", Type: ebpf.Hash, KeySize: 4, ValueSize: asidePlanBytes, MaxEntries: maxAsides},
		{Name: "aside_record", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: xrMost, MaxEntries: 1},
		{Name: "aside_ring", Type: ebpf.RingBuf, MaxEntries: asideRing},
	} {
		m, err := ebpf.NewMap(&s)
		if err != nil {
			return fmt.Errorf("make map %s: %w", s.Name, err)
		}
		e.maps[s.Name] = m
	}
	var err error
	if e.reader, err = ringbuf.NewReader(e.maps["aside_ring"]); err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	code := asideProgram(e.maps["aside_plans"].FD(), e.maps["aside_record"].FD(), e.maps["aside_ring"].FD())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_aside", Type: ebpf.PerfEvent, License: "GPL", Instructions: code})
	if err != nil {
		return fmt.Errorf("load program sliver_aside: %w", err)
	}
	e.progs = append(e.progs, prog)
	return nil
}

// Program returns the descriptor of the program, to be set for perf events (PERF_EVENT_IOC_SET_BPF). Samples of
// threads without an Aside are made as without it.
func (e *Asides) Program() int { return e.progs[0].FD() }

// Set makes the program read x of a thread from now on.
func (e *Asides) Set(tid stack.TID, x *Aside) error {
	var v [asidePlanBytes]byte
	put := func(off int, n uint64) { binary.NativeEndian.PutUint64(v[off:], n) }
	for i, s := range x.Blocks[:min(len(x.Blocks), MaxAsideBlocks)] {
		put(xpBlocks+i*16, s.Addr)
		put(xpBlocks+i*16+8, uint64(s.Len))
	}
	put(xpPointer, x.Pointer)
	put(xpLen, uint64(x.Len))
	put(xpLo, uint64(x.Lo))
	put(xpHi, uint64(x.Hi))
	put(xpSP, uint64(x.SP))
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.by[tid]
	if q != nil && q.plan == v {
		return nil
	}
	if err := e.maps["aside_plans"].Put(uint32(tid), v[:]); err != nil {
		return fmt.Errorf("set what to read of thread %d: %w", tid, err)
	}
	if q == nil {
		q = &asideQueue{}
		e.by[tid] = q
	}
	q.plan = v
	return nil
}

// Drop ends the reads of a thread.
func (e *Asides) Drop(tid stack.TID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.by[tid] != nil {
		delete(e.by, tid)
		_ = e.maps["aside_plans"].Delete(uint32(tid))
	}
}

// Take appends the blocks that were read of a thread for the copy of a perf event with this time, stack pointer
// and program counter. If the record is missing, ok is false: the ring was full. The caller takes the copies of
// a thread in the order of their times. The data is valid until the next Take, Set or Drop of the thread.
func (e *Asides) Take(tid stack.TID, at stack.Time, sp, pc uint64, out []AsideBlock) (_ []AsideBlock, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.by[tid]
	if q == nil {
		return out, false
	}
	q.release()
	b := q.take(at, sp, pc)
	if b == nil {
		e.drain()
		b = q.take(at, sp, pc)
	}
	if b == nil {
		return out, false
	}
	return parseAside(b, out), true
}

// drain reads the ring. The caller holds e.mu.
func (e *Asides) drain() {
	e.records(func(b []byte) {
		if len(b) < xrStack {
			return
		}
		q := e.by[stack.TID(int32(binary.NativeEndian.Uint32(b[xrTID:])))]
		if q == nil {
			return
		}
		if len(q.queue) == mostAsides {
			q.drop(1)
		}
		e.rec.RawSample = q.add(b)
	})
}

// add appends a record, and returns memory for the next one.
func (q *asideQueue) add(b []byte) (free []byte) {
	q.queue = append(q.queue, b)
	if n := len(q.free); n > 0 {
		free, q.free = q.free[n-1], q.free[:n-1]
	}
	return free
}

// drop frees the first n records.
func (q *asideQueue) drop(n int) {
	q.free = append(q.free, q.queue[:n]...)
	q.queue = q.queue[:copy(q.queue, q.queue[n:])]
}

// release frees the record of the last copy.
func (q *asideQueue) release() {
	if q.taken != nil {
		q.free = append(q.free, q.taken)
		q.taken = nil
	}
}

// take returns the record of a copy, nil if there is none, and forgets those before it. The program runs right
// before the kernel makes the copy or, depending on the kernel's version, right after it has read the time.
func (q *asideQueue) take(at stack.Time, sp, pc uint64) []byte {
	old, best, off := 0, -1, asideNearest
	for i, b := range q.queue {
		d := recordTime(b) - at
		if d < -asideNearest {
			old = i + 1
		}
		if d = max(d, -d); d < off && binary.NativeEndian.Uint64(b[xrSP:]) == sp && binary.NativeEndian.Uint64(b[xrPC:]) == pc {
			best, off = i, d
		}
	}
	if best < 0 {
		q.drop(old)
		return nil
	}
	q.taken = q.queue[best]
	q.drop(best)
	q.queue = q.queue[:copy(q.queue, q.queue[1:])]
	return q.taken
}

func recordTime(b []byte) stack.Time { return stack.Time(binary.NativeEndian.Uint64(b[xrTime:])) }

// parseAside appends the blocks of a record, which has at least xrStack bytes.
func parseAside(b []byte, out []AsideBlock) []AsideBlock {
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	read := word(xrRead)
	for i := range MaxAsideBlocks {
		if read>>i&1 != 0 {
			at := xrBlocks + i*MaxAsideBlock
			out = append(out, AsideBlock{word(xrPlan + i*16), b[at : at+int(min(word(xrPlan+i*16+8), MaxAsideBlock))]})
		}
	}
	if read>>MaxAsideBlocks&1 != 0 {
		out = append(out, AsideBlock{word(xrTask), b[xrData : xrData+int(min(word(xrTaskLen), MaxAsideBlock))]})
	}
	if n := min(word(xrLen), uint64(len(b)-xrStack)); n > 0 {
		out = append(out, AsideBlock{word(xrAddr), b[xrStack : xrStack+n]})
	}
	return out
}

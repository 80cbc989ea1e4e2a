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
	lists bool
	mu    sync.Mutex
	by    map[stack.TID]*asideQueue
	pool  asidePool
}

// Limits of an Aside, and of the records kept.
const (
	MaxAsideBlocks = 4
	MaxAsideBlock  = 256      // bytes of a block
	MaxAsideStack  = 16 << 10 // bytes of a task's stack

	asideRing  = 4 << 20
	listRing   = 8 << 20
	maxAsides  = 1 << 12  // threads
	mostAsides = 64       // records kept for a thread
	asideBytes = 32 << 20 // of the records kept for all threads
	freeAsides = 64
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
	// List is followed by Asides with lists, which use no Pointer. Without one, Head.Len is 0.
	List stack.Links
}

// asideQueue are the records of a thread that were not taken yet.
type asideQueue struct {
	pool  *asidePool
	plan  asidePlan
	queue [][]byte
	taken []byte // the record that Take returned last
}

// asidePool bounds the records of all threads, and has memory for the next ones.
type asidePool struct {
	bytes int // of the records that are kept
	free  [][]byte
}

// asidePlan is the value of a thread in the map of plans.
type asidePlan [asidePlanBytes / 8]uint64

// Places in a plan.
const (
	xpBlocks       = 0 // MaxAsideBlocks pairs of address and length
	xpPointer      = 64
	xpLen          = 72
	xpLo           = 80
	xpHi           = 88
	xpSP           = 96
	xpList         = 104 // see listBytes
	asidePlanBytes = xpList + listBytes
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
	xrLen     = 64 // bytes of it, or of the list
	xrPlan    = 72 // xpBlocks
	xrBlocks  = xrPlan + MaxAsideBlocks*16
	xrData    = xrBlocks + MaxAsideBlocks*MaxAsideBlock
	xrStack   = xrData + MaxAsideBlock // or the list: see lnHead
	xrMost    = xrStack + max(MaxAsideStack, lnLinks+stack.MaxLinks*listedBytes+lnRoom)
)

// OpenAsides loads the program, which follows lists or reads what pointers point to. Perf events run it once it is set for
// them (Program).
func OpenAsides(lists bool) (*Asides, error) {
	if err := errors.Join(rights(), initialSpace()); err != nil {
		return nil, err
	}
	e := &Asides{lists: lists, attached: attached{maps: map[string]*ebpf.Map{}}, by: map[stack.TID]*asideQueue{}}
	if err := e.open(); err != nil {
		e.Close()
		return nil, explain(err)
	}
	return e, nil
}

func (e *Asides) open() error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count the CPUs: %w", err)
	}
	ring, size := uint32(asideRing), uint32(xrStack+MaxAsideStack)
	if e.lists {
		ring, size = listRing, xrMost
	}
	for _, s := range []ebpf.MapSpec{
		{Name: "aside_plans", Type: ebpf.Hash, KeySize: 4, ValueSize: asidePlanBytes, MaxEntries: maxAsides},
		{Name: "aside_record", Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: uint32(cpus)}, // of each CPU: maps of that type have small values
		{Name: "aside_ring", Type: ebpf.RingBuf, MaxEntries: ring},
		objectMap("aside_objects"),
	} {
		m, err := ebpf.NewMap(&s)
		if err != nil {
			return fmt.Errorf("make map %s: %w", s.Name, err)
		}
		e.maps[s.Name] = m
	}
	if e.reader, err = ringbuf.NewReader(e.maps["aside_ring"]); err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_aside", Type: ebpf.PerfEvent, License: "GPL", Instructions: asideProgram(e.maps, e.lists)})
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
	var v asidePlan
	for i, s := range x.Blocks[:min(len(x.Blocks), MaxAsideBlocks)] {
		v[(xpBlocks+i*16)/8], v[(xpBlocks+i*16)/8+1] = s.Addr, uint64(s.Len)
	}
	v[xpPointer/8], v[xpLen/8], v[xpLo/8], v[xpHi/8], v[xpSP/8] = x.Pointer, uint64(x.Len), uint64(x.Lo), uint64(x.Hi), uint64(x.SP)
	(&List{Links: x.List}).put(v[xpList/8:])
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.by[tid]
	if q != nil && q.plan == v {
		return nil
	}
	if err := e.maps["aside_plans"].Put(uint32(tid), v); err != nil {
		return fmt.Errorf("set what to read of thread %d: %w", tid, err)
	}
	if q == nil {
		q = &asideQueue{pool: &e.pool}
		e.by[tid] = q
	}
	q.plan = v
	return nil
}

// Drop ends the reads of a thread.
func (e *Asides) Drop(tid stack.TID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.by[tid]; q != nil {
		q.release()
		q.drop(len(q.queue))
		delete(e.by, tid)
		_ = e.maps["aside_plans"].Delete(uint32(tid))
	}
}

// Take appends the blocks that were read of a thread for the copy of a perf event with this time, stack pointer
// and program counter. If the record is missing, ok is false: the ring was full. The caller takes the copies of
// a thread in the order of their times. The data is valid until the next Take, Set or Drop of the thread.
func (e *Asides) Take(tid stack.TID, at stack.Time, sp, pc uint64, out []Page) (_ []Page, ok bool) {
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
	return parseAside(b, e.lists, out), true
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

// add appends a record, and returns memory for the next one. If there are too many for all threads, the record is lost.
func (q *asideQueue) add(b []byte) (free []byte) {
	p := q.pool
	if p.bytes+cap(b) > asideBytes {
		return b
	}
	p.bytes += cap(b)
	q.queue = append(q.queue, b)
	if n := len(p.free); n > 0 {
		free, p.free = p.free[n-1], p.free[:n-1]
	}
	return free
}

// put takes the memory of a record that is not kept any more.
func (p *asidePool) put(b []byte) {
	p.bytes -= cap(b)
	if len(p.free) < freeAsides {
		p.free = append(p.free, b)
	}
}

// drop frees the first n records.
func (q *asideQueue) drop(n int) {
	for _, b := range q.queue[:n] {
		q.pool.put(b)
	}
	q.queue = q.queue[:copy(q.queue, q.queue[n:])]
}

// release frees the record of the last copy.
func (q *asideQueue) release() {
	if q.taken != nil {
		q.pool.put(q.taken)
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
func parseAside(b []byte, lists bool, out []Page) []Page {
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	read := word(xrRead)
	for i := range MaxAsideBlocks {
		if read>>i&1 != 0 {
			at := xrBlocks + i*MaxAsideBlock
			out = append(out, Page{word(xrPlan + i*16), b[at : at+int(min(word(xrPlan+i*16+8), MaxAsideBlock))]})
		}
	}
	if read>>MaxAsideBlocks&1 != 0 {
		out = append(out, Page{word(xrTask), b[xrData : xrData+int(min(word(xrTaskLen), MaxAsideBlock))]})
	}
	switch n := min(word(xrLen), uint64(len(b)-xrStack)); {
	case n == 0:
	case lists:
		out = parseList(b[xrStack:xrStack+n], out)
	default:
		out = append(out, Page{word(xrAddr), b[xrStack : xrStack+n]})
	}
	return out
}

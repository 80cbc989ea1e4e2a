package gopcln

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// Status is what a goroutine is at (the constants _Gidle and on of
// src/runtime/runtime2.go; 1.16 … 1.26).
type Status uint8

// Statuses.
const (
	GoIdle      Status = 0
	GoRunnable  Status = 1
	GoRunning   Status = 2
	GoSyscall   Status = 3
	GoWaiting   Status = 4
	GoDead      Status = 6
	GoCopystack Status = 8
	GoPreempted Status = 9
	GoLeaked    Status = 10 // will never go on, as the garbage collector found
	GoDeadExtra Status = 11 // kept for threads that C makes
)

// scanBit is added to a status while the garbage collector is at the stack.
const scanBit = 0x1000

func (s Status) String() string {
	switch s {
	case GoIdle:
		return "idle"
	case GoRunnable:
		return "runnable"
	case GoRunning:
		return "running"
	case GoSyscall:
		return "syscall"
	case GoWaiting:
		return "waiting"
	case GoDead, GoDeadExtra:
		return "dead"
	case GoCopystack:
		return "copystack"
	case GoPreempted:
		return "preempted"
	case GoLeaked:
		return "leaked"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// State is s in the words that all runtimes share.
func (s Status) State() stack.TaskState {
	switch s {
	case GoRunnable:
		return stack.TaskRunnable
	case GoRunning:
		return stack.TaskRunning
	case GoSyscall:
		return stack.TaskCall
	case GoWaiting, GoLeaked:
		return stack.TaskWaiting
	case GoDead, GoDeadExtra:
		return stack.TaskDone
	case GoPreempted:
		return stack.TaskPreempted
	}
	return stack.TaskUnknown
}

// Goroutine is one goroutine at one moment. There are many at once: it has no pointers.
type Goroutine struct {
	ID      uint64
	Parent  uint64 // the goroutine that started it; 0: unknown (before 1.21)
	Status  Status
	Reason  uint8      // why it waits, as the runtime numbers it: see Census.Reasons; 0: it does not, or unknown
	Locked  bool       // to its thread, by runtime.LockOSThread
	Thread  stack.TID  // that runs it, as the process itself sees it; 0: none
	Since   stack.Time // it waits since; 0: unknown (the runtime notes it at a garbage collection)
	Started uint64     // PC of the go statement
	Func    uint64     // entry of its first function

	// Where it goes on when it runs again, or (GoSyscall) where it entered the
	// call; meaningless while it runs.
	PC, SP, FP uint64
	Lo, Hi     uint64 // its stack
}

const (
	// MaxGoroutines bounds a census.
	MaxGoroutines = 4 << 20
	nearby        = 4 << 10   // bytes between two g's that are read in one go
	maxRun        = 256 << 10 // bytes of such a read, that they stay in a CPU's cache
)

// goFields are offsets in g that only a census needs; from the DWARF of the
// versions that layoutOf was made from.
type goFields struct {
	status, since, reason, parent, gopc, startpc, sysSP, sysPC uint64
	length                                                     int
}

func fieldsOf(version int, l *layout) goFields {
	// waitsince follows schedlink, which follows goid.
	f := goFields{status: l.goid - 8, since: l.goid + 16, reason: l.goid + 24, sysSP: 112, sysPC: 120}
	switch {
	case version == 0 || version >= 26:
		f.parent, f.gopc, f.startpc = 280, 288, 304
	case version >= 25, version == 21, version == 22:
		f.parent, f.gopc, f.startpc = 272, 280, 296
	case version >= 23:
		f.parent, f.gopc, f.startpc = 280, 288, 304
	case version >= 17:
		f.gopc, f.startpc = 296, 312
	default:
		f.gopc, f.startpc = 280, 296
	}
	if version == 0 || version >= 25 {
		f.sysSP, f.sysPC = 104, 112
	}
	f.length = int(f.startpc + 8)
	return f
}

// Census finds a process's goroutines. One goroutine at a time may use it.
type Census struct {
	rt      *Runtime
	mem     io.ReaderAt
	f       goFields
	allgs   uint64   // address of the slice; 0: not found yet
	reasons []string // by number; nil: not found

	said, other []byte   // the list of goroutines as it was, and room for the next one
	addrs       []uint64 // the same, sorted
	halves      [2]half
	raw         []Goroutine // those at addrs; ID 0: a dead one
	places      []int32     // in raw, plus one, by number
	again       bool        // what is not what it was in raw is noted
}

// half reads a part of all goroutines, beside the other one.
type half struct {
	c       *Census
	spans   []rule.Span
	runs    []int // how many g's are in each
	threads []thread
	buf     []byte
	changed []change // those that are not what they were in Census.raw
}

// change is a goroutine that is not what it was: in Census.raw, by its number then (0: it was dead).
type change struct {
	at int
	id uint64
}

// fewGoroutines are read by one goroutine of ours: to start another takes longer.
const fewGoroutines = 1000

// NewCensus makes one that reads the process through mem, whose offsets are
// addresses; two goroutines may read at once. It stops nobody.
func (r *Runtime) NewCensus(mem io.ReaderAt) *Census {
	c := &Census{rt: r, mem: mem, f: fieldsOf(r.table.version, &r.layout)}
	c.halves[0].c, c.halves[1].c = c, c
	return c
}

// Reasons are the runtime's words for what goroutines wait for, by number; nil
// before Goroutines, or where they were not found.
func (c *Census) Reasons() []string { return c.reasons }

// Goroutines appends all goroutines that are not dead to buf, by number. What
// changes meanwhile may be seen before or after; each goroutine is as it was
// at one moment, as far as its fields are read at once. Errors are
// ErrNoGoroutines, and what kept it from reading.
func (c *Census) Goroutines(buf []Goroutine) ([]Goroutine, error) {
	if err := c.Find(); err != nil {
		return buf, err
	}
	if _, err := c.list(); err != nil {
		return buf, err
	}
	c.again = false
	c.reads()
	return c.byID(buf), nil
}

// Again reads all goroutines once more. all is what Goroutines, or Again, has given last,
// and is brought up to date: changed gets the places of those that are not what
// they were. same is false where some came or went: then all is another list.
func (c *Census) Again(all []Goroutine, changed []int) (now []Goroutine, which []int, same bool, err error) {
	same, err = c.list()
	if err != nil {
		return all, changed, false, err
	}
	c.again = true
	c.reads()
	for i := range c.halves {
		for _, x := range c.halves[i].changed {
			g := &c.raw[x.at]
			if g.ID == 0 && x.id == 0 {
				continue
			}
			k, ok := slices.BinarySearchFunc(all, x.id, func(g Goroutine, id uint64) int { return cmp.Compare(g.ID, id) })
			if same = same && ok && g.ID == x.id; !same {
				return c.byID(all[:0]), changed, false, nil
			}
			all[k] = *g
			changed = append(changed, k)
		}
	}
	if !same {
		return c.byID(all[:0]), changed, false, nil
	}
	slices.Sort(changed)
	return all, slices.Compact(changed), true, nil
}

// reads reads the goroutines at c.addrs to c.raw.
func (c *Census) reads() {
	n := len(c.addrs)
	a, b := &c.halves[0], &c.halves[1]
	b.threads, b.changed = b.threads[:0], b.changed[:0]
	if n < fewGoroutines {
		a.read(0, n)
	} else {
		var wg sync.WaitGroup
		wg.Go(func() { b.read(n/2, n) })
		a.read(0, n/2)
		wg.Wait()
	}
	c.numbers()
}

// read reads the goroutines at c.addrs[from:to].
func (h *half) read(from, to int) {
	h.spans, h.runs, h.threads, h.changed = h.spans[:0], h.runs[:0], h.threads[:0], h.changed[:0]
	addrs := h.c.addrs
	size := 0
	for i := from; i < to; {
		// They lie side by side in the heap.
		k := i + 1
		for k < to && addrs[k]-addrs[k-1] <= nearby && addrs[k]-addrs[i] < maxRun {
			k++
		}
		h.spans = append(h.spans, rule.Span{Addr: addrs[i], Len: int(addrs[k-1]-addrs[i]) + h.c.f.length})
		h.runs = append(h.runs, k-i)
		size += h.spans[len(h.spans)-1].Len
		if i = k; size >= maxRun || i == to {
			h.some(from, size)
			h.spans, h.runs, size, from = h.spans[:0], h.runs[:0], 0, i
		}
	}
}

// list reads the addresses of all g's: c.addrs is in ascending order. same is
// false where others came. After an error the list has to be found anew.
func (c *Census) list() (same bool, err error) {
	defer func() {
		if err != nil {
			c.allgs = 0
			c.rt.list.Store(nil)
		}
	}()
	var head [16]byte
	if err := c.read(head[:], c.allgs); err != nil {
		return false, err
	}
	at, n := le(head[:], 0), le(head[:], 8)
	if n > MaxGoroutines || !pointer(at) {
		return false, fmt.Errorf("the Go runtime's list of goroutines is damaged: %d at %#x", n, at)
	}
	list := c.other
	if uint64(cap(list)) < 8*n {
		list = make([]byte, 8*n+8*n/4)
	}
	list = list[:8*n]
	if err := c.read(list, at); err != nil {
		return false, err
	}
	c.other = c.said
	if c.said = list; bytes.Equal(list, c.other) {
		return true, nil
	}
	c.addrs = c.addrs[:0]
	for i := range n {
		if g := le(list, 8*i); pointer(g) {
			c.addrs = append(c.addrs, g)
		}
	}
	slices.Sort(c.addrs)
	if cap(c.raw) < len(c.addrs) {
		c.raw = make([]Goroutine, len(c.addrs), len(c.addrs)+len(c.addrs)/4)
	}
	c.raw = c.raw[:len(c.addrs)]
	clear(c.raw)
	return false, nil
}

// some reads the g's from the first-th on, which lie in h.spans, of size bytes in all,
// h.runs of them in each. Those in a span that cannot be read are read one by one, and what cannot be
// read so is dead.
func (h *half) some(first, size int) {
	if len(h.buf) < size {
		h.buf = make([]byte, size+size/4)
	}
	got := h.c.readSpans(h.spans, h.buf[:size])
	at := 0
	for i, s := range h.spans {
		run := h.c.addrs[first : first+h.runs[i]]
		b := h.buf[at : at+s.Len]
		at += s.Len
		for k, a := range run {
			switch g := b[a-run[0]:]; {
			case at <= got:
				h.take(first+k, g)
			case h.c.read(g[:h.c.f.length], a) == nil:
				h.take(first+k, g)
			default:
				h.set(first+k, &Goroutine{})
			}
		}
		first += len(run)
	}
}

// take notes the i-th goroutine, whose g is in b.
func (h *half) take(i int, b []byte) {
	c := h.c
	var g Goroutine
	switch Status(binary.LittleEndian.Uint32(b[c.f.status:]) &^ scanBit) {
	case GoDead, GoDeadExtra, GoIdle:
	default:
		c.goroutine(&g, b)
	}
	if g.Status == GoRunning || g.Status == GoSyscall {
		if m := le(b, gM); pointer(m) {
			h.threads = append(h.threads, thread{i, m + c.rt.layout.procid})
			g.Thread = c.raw[i].Thread // until numbers
		}
	}
	h.set(i, &g)
}

func (h *half) set(i int, g *Goroutine) {
	if x := &h.c.raw[i]; *x != *g {
		if h.c.again {
			h.changed = append(h.changed, change{i, x.ID})
		}
		*x = *g
	}
}

func (c *Census) goroutine(g *Goroutine, b []byte) {
	l, f := &c.rt.layout, &c.f
	b = b[:f.length]
	g.Status = Status(binary.LittleEndian.Uint32(b[f.status:]) &^ scanBit)
	g.ID, g.Lo, g.Hi = le(b, l.goid), le(b, gStackLo), le(b, gStackHi)
	g.Started, g.Func, g.Locked = le(b, f.gopc), le(b, f.startpc), le(b, l.lockedm) != 0
	g.PC, g.SP, g.FP = le(b, bufPC), le(b, bufSP), le(b, l.bufBP)
	if f.parent != 0 {
		g.Parent = le(b, f.parent)
	}
	switch g.Status {
	case GoWaiting, GoPreempted, GoLeaked:
		g.Since = stack.Time(le(b, f.since))
		g.Reason = b[f.reason]
	case GoSyscall:
		g.PC, g.SP, g.FP = le(b, f.sysPC), le(b, f.sysSP), 0
	}
}

// thread is where the number of the thread is that runs a goroutine, the i-th of Census.raw.
type thread struct {
	i      int
	procid uint64
}

// numbers notes which threads run goroutines.
func (c *Census) numbers() {
	var b [8]byte
	for i := range c.halves {
		h := &c.halves[i]
		for _, t := range h.threads {
			g := c.raw[t.i]
			g.Thread = 0
			if c.read(b[:], t.procid) == nil {
				g.Thread = stack.TID(le(b[:], 0))
			}
			h.set(t.i, &g)
		}
	}
}

// byID appends what is in c.raw to buf, by number. Numbers lie close together mostly, and each is there once.
func (c *Census) byID(buf []Goroutine) []Goroutine {
	all := c.raw
	lo, hi, n := ^uint64(0), uint64(0), 0
	for i := range all {
		if id := all[i].ID; id != 0 {
			lo, hi, n = min(lo, id), max(hi, id), n+1
		}
	}
	if n == 0 {
		return buf
	}
	first := len(buf)
	buf = slices.Grow(buf, n)
	if hi-lo < 8*uint64(n) {
		if n := int(hi - lo + 1); cap(c.places) < n {
			c.places = make([]int32, n+n/4)
		} else {
			clear(c.places[:n])
		}
		places := c.places[:hi-lo+1]
		for i := range all {
			if all[i].ID != 0 {
				places[all[i].ID-lo] = int32(i + 1)
			}
		}
		for _, p := range places {
			if p > 0 {
				buf = append(buf, all[p-1])
			}
		}
		if len(buf)-first == n {
			return buf
		}
		buf = buf[:first] // one was seen twice
	}
	for i := range all {
		if all[i].ID != 0 {
			buf = append(buf, all[i])
		}
	}
	slices.SortFunc(buf[first:], func(a, b Goroutine) int { return cmp.Compare(a.ID, b.ID) })
	return buf
}

// readSpans reads spans into b, one after the other, and gives how many bytes it
// read until the first that could not be.
func (c *Census) readSpans(spans []rule.Span, b []byte) (got int) {
	if many, ok := c.mem.(spanReader); ok {
		return many.ReadSpans(spans, b)
	}
	for _, s := range spans {
		if c.read(b[got:got+s.Len], s.Addr) != nil {
			break
		}
		got += s.Len
	}
	return got
}

// spanReader is memory that reads many spans at once.
type spanReader interface {
	ReadSpans(spans []rule.Span, b []byte) int
}

func (c *Census) read(b []byte, addr uint64) error {
	if addr > maxPointer {
		return fmt.Errorf("read goroutines: %#x is no address", addr)
	}
	if n, err := c.mem.ReadAt(b, int64(addr)); n < len(b) {
		return fmt.Errorf("read goroutines: %d of %d bytes at %#x: %w", n, len(b), addr, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return nil
}

func le(b []byte, off uint64) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

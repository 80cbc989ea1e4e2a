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
	MaxGoroutines = 1 << PlaceBits
	nearby        = 4 << 10   // bytes between two g's that are read in one go
	maxRun        = 128 << 10 // bytes of such a read, that they stay in a CPU's cache
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
//
// Each has a place, a number from 0 on, which is its for as long as it lives: the runtime's list of
// all goroutines only grows, and where one ended another may begin.
type Census struct {
	rt      *Runtime
	mem     io.ReaderAt
	f       goFields
	allgs   uint64   // address of the slice; 0: not found yet
	reasons []string // by number; nil: not found

	said, other []byte      // the list of goroutines as it was, and room for the next one
	order       []uint64    // their places in the order of their addresses, below the address: see list
	all         []Goroutine // by place; ID 0: there is none
	halves      [2]half
	places      []int32 // by number, plus one
}

// half reads a part of all goroutines, beside the other one.
type half struct {
	c       *Census
	spans   []rule.Span
	runs    []int // how many g's are in each
	threads []thread
	buf     []byte
	changed []int // places of those that are not what they were
	lost    int   // those that could not be read
}

const (
	// fewGoroutines are read by one goroutine of ours: to start another takes longer.
	fewGoroutines = 1000
	// PlaceBits are as many as a place has, also in Census.order; above them is the address there, in
	// units that no two g's share.
	PlaceBits = 22
	placeUnit = 32
)

// Birth is the go statement that started g, as a frame; ok is false where that is
// not known: the runtime itself starts the first.
func (g *Goroutine) Birth() (f stack.Frame, ok bool) {
	return stack.Frame{PC: g.Started, Kind: stack.KindGo, Trust: stack.TrustTable}, g.Started != 0 && g.ID != 1
}

// NewCensus makes one that reads the process through mem, whose offsets are
// addresses; two goroutines may read at once. It stops nobody.
func (r *Runtime) NewCensus(mem io.ReaderAt) *Census {
	c := &Census{rt: r, mem: mem, f: fieldsOf(r.table.version, &r.layout)}
	c.halves[0].c, c.halves[1].c = c, c
	return c
}

// Reasons are the runtime's words for what goroutines wait for, by number; nil
// before Read, or where they were not found.
func (c *Census) Reasons() []string { return c.reasons }

// Read reads all goroutines as they are now. all has them by place, until the next Read, and
// ID 0 where there is none; changed gets the places of those that are not what they were at the
// Read before, or were not there. What changes meanwhile may be seen before or after; each goroutine is as it was
// at one moment, as far as its fields are read at once. Errors are
// ErrNoGoroutines, and what kept it from reading.
func (c *Census) Read(changed []int) (all []Goroutine, which []int, err error) {
	if err := c.Find(); err != nil {
		return nil, changed, err
	}
	if err := c.list(); err != nil {
		return nil, changed, err
	}
	n := len(c.order)
	a, b := &c.halves[0], &c.halves[1]
	b.threads, b.changed, b.lost = b.threads[:0], b.changed[:0], 0
	if n < fewGoroutines {
		a.read(c.order)
	} else {
		var wg sync.WaitGroup
		wg.Go(func() { b.read(c.order[n/2:]) })
		a.read(c.order[:n/2])
		wg.Wait()
	}
	c.numbers()
	from := len(changed)
	changed = append(append(changed, a.changed...), b.changed...)
	slices.Sort(changed[from:])
	return c.all, changed[:from+len(slices.Compact(changed[from:]))], nil
}

// Lost is how many of the runtime's list the last Read could not read: they may be goroutines.
func (c *Census) Lost() int { return c.halves[0].lost + c.halves[1].lost }

// read reads the goroutines at some places, in the order of their addresses.
func (h *half) read(order []uint64) {
	h.spans, h.runs, h.threads, h.changed, h.lost = h.spans[:0], h.runs[:0], h.threads[:0], h.changed[:0], 0
	size, from := 0, 0
	for i := 0; i < len(order); {
		// They lie side by side in the heap.
		first := h.c.at(order[i])
		last, k := first, i+1
		for ; k < len(order); k++ {
			a := h.c.at(order[k])
			if a < last || a-last > nearby || a-first >= maxRun {
				break
			}
			last = a
		}
		h.spans = append(h.spans, rule.Span{Addr: first, Len: int(last-first) + h.c.f.length})
		h.runs = append(h.runs, k-i)
		size += h.spans[len(h.spans)-1].Len
		if i = k; size >= maxRun || i == len(order) {
			h.some(order[from:i], size)
			h.spans, h.runs, size, from = h.spans[:0], h.runs[:0], 0, i
		}
	}
}

// at is where the g at a place is, place is that place.
func (c *Census) at(o uint64) uint64 { return le(c.said, 8*uint64(place(o))) }
func place(o uint64) int             { return int(o & (1<<PlaceBits - 1)) }

// list reads where all g's are. After an error the list has to be found anew.
func (c *Census) list() (err error) {
	defer func() {
		if err != nil {
			c.allgs = 0
			c.rt.list.Store(nil)
		}
	}()
	var head [16]byte
	if err := c.read(head[:], c.allgs); err != nil {
		return err
	}
	at, n := le(head[:], 0), le(head[:], 8)
	if n > MaxGoroutines || !pointer(at) {
		return fmt.Errorf("the Go runtime's list of goroutines is damaged: %d at %#x", n, at)
	}
	list := c.other
	if uint64(cap(list)) < 8*n {
		list = make([]byte, 8*n+n)
	}
	list = list[:8*n]
	if err := c.read(list, at); err != nil {
		return err
	}
	c.other = c.said
	if c.said = list; bytes.Equal(list, c.other) {
		return nil
	}
	if !bytes.HasPrefix(list, c.other) {
		clear(c.all) // it has not grown, it is another
	}
	if uint64(len(c.all)) > n {
		c.all = c.all[:n]
	}
	c.all = append(c.all, make([]Goroutine, n-uint64(len(c.all)))...)
	c.order = slices.Grow(c.order[:0], int(n))
	for i := range n {
		if g := le(list, 8*i); pointer(g) {
			c.order = append(c.order, g/placeUnit<<PlaceBits|i)
		} else {
			c.all[i] = Goroutine{}
		}
	}
	slices.Sort(c.order)
	return nil
}

// some reads the g's at some places, which lie in h.spans, of size bytes in all,
// h.runs of them in each. Those in a span that cannot be read are read one by one, and what cannot be
// read so is not there, and counted.
func (h *half) some(order []uint64, size int) {
	if len(h.buf) < size {
		h.buf = make([]byte, size+size/8)
	}
	got := h.c.readSpans(h.spans, h.buf[:size])
	at := 0
	for i, s := range h.spans {
		b := h.buf[at : at+s.Len]
		at += s.Len
		for _, o := range order[:h.runs[i]] {
			a := h.c.at(o)
			switch g := b[a-s.Addr:]; {
			case at <= got:
				h.take(place(o), g)
			case h.c.read(g[:h.c.f.length], a) == nil:
				h.take(place(o), g)
			default:
				h.lost++
				h.set(place(o), &Goroutine{})
			}
		}
		order = order[h.runs[i]:]
	}
}

// take notes the goroutine at place i, whose g is in b.
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
			g.Thread = c.all[i].Thread // until numbers
		}
	}
	h.set(i, &g)
}

func (h *half) set(i int, g *Goroutine) {
	if x := &h.c.all[i]; *x != *g {
		*x = *g
		h.changed = append(h.changed, i)
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

// thread is where the number of the thread is that runs a goroutine, the one at place i.
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
			g := c.all[t.i]
			g.Thread = 0
			if c.read(b[:], t.procid) == nil {
				g.Thread = stack.TID(le(b[:], 0))
			}
			h.set(t.i, &g)
		}
	}
}

// ByID appends the places of all goroutines that the last Read found, by their numbers. Those lie close together
// mostly, and each is there once.
func (c *Census) ByID(buf []int32) []int32 {
	all := c.all
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
		}
		places := c.places[:hi-lo+1]
		clear(places)
		for i := range all {
			if all[i].ID != 0 {
				places[all[i].ID-lo] = int32(i + 1)
			}
		}
		for _, p := range places {
			if p > 0 {
				buf = append(buf, p-1)
			}
		}
		if len(buf)-first == n {
			return buf
		}
		buf = buf[:first] // one was seen twice
	}
	for i := range all {
		if all[i].ID != 0 {
			buf = append(buf, int32(i))
		}
	}
	slices.SortFunc(buf[first:], func(a, b int32) int { return cmp.Compare(all[a].ID, all[b].ID) })
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

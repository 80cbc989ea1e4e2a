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

// Status is the state of a goroutine (the constants from _Gidle on in src/runtime/runtime2.go; 1.16
// … 1.26).
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
	GoLeaked    Status = 10 // will never continue, as the garbage collector found
	GoDeadExtra Status = 11 // kept for threads created by C
)

// scanBit is set in a status while the garbage collector scans the stack.
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

// State returns s in the terms that all runtimes share.
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

// Goroutine is one goroutine at one moment. It has no pointers, because there are many.
type Goroutine struct {
	ID      uint64
	Parent  uint64 // the goroutine that started it; 0: unknown (before 1.21)
	Status  Status
	Reason  uint8      // number of its wait reason: see Census.Reasons; 0: not waiting, or unknown
	Locked  bool       // to its thread, by runtime.LockOSThread
	Thread  stack.TID  // the thread that runs it, as the process itself sees it; 0: none
	Since   stack.Time // start of its wait; 0: unknown (the runtime records it at a garbage collection)
	Started uint64     // PC of the go statement
	Func    uint64     // entry of its first function

	// Where it continues when it runs again, or (GoSyscall) where it entered the call. They are
	// meaningless while it runs.
	PC, SP, FP uint64
	Lo, Hi     uint64 // its stack
}

const (
	// MaxGoroutines bounds a census.
	MaxGoroutines = 1 << PlaceBits
	nearby        = 4 << 10   // maximum gap between two g's read at once, in bytes
	maxRun        = 128 << 10 // size of such a read, in bytes, so that it stays in a CPU's cache
)

// goFields are offsets in g that only a census needs. They come from the DWARF of the versions
// listed at layoutOf.
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
// A goroutine keeps its place, a number from 0 on, as long as it lives. The runtime's list of all
// goroutines only grows. A new goroutine may take the place of one that ended.
type Census struct {
	rt      *Runtime
	mem     io.ReaderAt
	f       goFields
	allgs   uint64   // address of the slice; 0: not found yet
	reasons []string // by number; nil: not found

	said, other []byte      // the current list of goroutines, and the buffer for the next one
	order       []uint64    // places sorted by address, with the address in the upper bits: see list
	all         []Goroutine // by place; ID 0: none
	halves      [2]half
	places      []int32 // by number, plus one
}

// half reads a part of all goroutines, concurrently with the other half.
type half struct {
	c       *Census
	spans   []rule.Span
	runs    []int // number of g's in each span
	threads []thread
	buf     []byte
	changed []int // places that changed
	lost    int   // g's that could not be read
}

const (
	// fewGoroutines are read by one goroutine of ours: starting another one takes longer.
	fewGoroutines = 1000
	// PlaceBits is the number of bits of a place, also in Census.order. The bits above hold the
	// address there, in units that no two g's share.
	PlaceBits = 22
	placeUnit = 32
)

// Birth returns the go statement that started g, as a frame. ok is false if it is unknown. The
// runtime starts the first goroutine itself.
func (g *Goroutine) Birth() (f stack.Frame, ok bool) {
	return stack.Frame{PC: g.Started, Kind: stack.KindGo, Trust: stack.TrustTable}, g.Started != 0 && g.ID != 1
}

// NewCensus returns a census that reads the process through mem, whose offsets are addresses. It
// makes up to two reads at a time. It does not stop the process.
func (r *Runtime) NewCensus(mem io.ReaderAt) *Census {
	c := &Census{rt: r, mem: mem, f: fieldsOf(r.table.version, &r.layout)}
	c.halves[0].c, c.halves[1].c = c, c
	return c
}

// Reasons returns the runtime's texts of wait reasons, by number. It returns nil before Read, or if
// they were not found.
func (c *Census) Reasons() []string { return c.reasons }

// Read reads all goroutines as they are now. all holds them by place, with ID 0 for empty places,
// and is valid until the next Read. The places that changed since the previous Read are appended to
// changed. A change during Read may be included or not. Each goroutine is consistent if its fields
// fit into one read. Errors are ErrNoGoroutines, and failures of reads.
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

// Lost returns how many entries of the runtime's list the last Read could not read. They may be
// goroutines.
func (c *Census) Lost() int { return c.halves[0].lost + c.halves[1].lost }

// read reads the goroutines at some places, in address order.
func (h *half) read(order []uint64) {
	h.spans, h.runs, h.threads, h.changed, h.lost = h.spans[:0], h.runs[:0], h.threads[:0], h.changed[:0], 0
	size, from := 0, 0
	for i := 0; i < len(order); {
		// They are adjacent in the heap.
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

// at returns the address of the g at a place, and place the place itself.
func (c *Census) at(o uint64) uint64 { return le(c.said, 8*uint64(place(o))) }
func place(o uint64) int             { return int(o & (1<<PlaceBits - 1)) }

// list reads the addresses of all g's. After an error the list must be searched again.
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
		clear(c.all) // not a grown list, but another one
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

// some reads the g's at some places. They are in h.spans, with size bytes in total and h.runs[i] of
// them in span i. If a span cannot be read, its g's are read one by one. A g that cannot be read is
// counted and treated as absent.
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

// take records the goroutine at place i, whose g is in b.
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
			g.Thread = c.all[i].Thread // until numbers runs
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

// thread holds the address of the thread number for the goroutine at place i.
type thread struct {
	i      int
	procid uint64
}

// numbers reads which threads run goroutines.
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

// ByID appends the places of all goroutines that the last Read found, sorted by their numbers. It
// is fastest if the numbers are dense and unique, as is usual.
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
		buf = buf[:first] // a number occurs twice
	}
	for i := range all {
		if all[i].ID != 0 {
			buf = append(buf, int32(i))
		}
	}
	slices.SortFunc(buf[first:], func(a, b int32) int { return cmp.Compare(all[a].ID, all[b].ID) })
	return buf
}

// readSpans reads spans into b, packed, and returns the number of bytes read before the first
// failure.
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

// spanReader is memory with batched reads.
type spanReader interface {
	ReadSpans(spans []rule.Span, b []byte) int
}

func (c *Census) read(b []byte, addr uint64) error {
	if addr > maxPointer {
		return fmt.Errorf("read goroutines: invalid address %#x", addr)
	}
	if n, err := c.mem.ReadAt(b, int64(addr)); n < len(b) {
		return fmt.Errorf("read goroutines: %d of %d bytes at %#x: %w", n, len(b), addr, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return nil
}

func le(b []byte, off uint64) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

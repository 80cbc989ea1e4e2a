package gopcln

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
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

// Goroutine is one goroutine at one moment.
type Goroutine struct {
	ID      uint64
	Parent  uint64 // the goroutine that started it; 0: unknown (before 1.21)
	Status  Status
	Wait    string     // why it waits, in the runtime's words; "": it does not, or unknown
	Reason  uint8      // the same as the runtime numbers it: see Census.Reasons
	Since   stack.Time // it waits since; 0: unknown (the runtime notes it at a garbage collection)
	Locked  bool       // to its thread, by runtime.LockOSThread
	Thread  stack.TID  // that runs it, as the process itself sees it; 0: none
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
	maxGoData     = 256 << 20 // data and bss of a program
	maxReasons    = 128       // the reasons to wait; 47 in 1.26
	maxReason     = 64        // bytes of one
	dataChunk     = 1 << 20
	nearby        = 4 << 10   // bytes between two g's that are read in one go
	maxRun        = 256 << 10 // bytes of such a read, that they stay in a CPU's cache
)

// ErrNoGoroutines says that the runtime's list of goroutines was not found.
var ErrNoGoroutines = errors.New("the Go runtime's list of goroutines was not found")

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
	raw         []Goroutine // in the order of their addresses
	places      []int32     // in raw, plus one, by number
}

// half reads a part of all goroutines, beside the other one.
type half struct {
	c       *Census
	spans   []rule.Span
	runs    []int // how many g's are in each
	threads []thread
	buf     []byte
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
	addrs, err := c.list()
	if err != nil {
		c.allgs = 0
		c.rt.list.Store(nil)
		return buf, err
	}
	n := len(addrs)
	if cap(c.raw) < n {
		c.raw = make([]Goroutine, 0, n+n/4)
	}
	a, b := &c.halves[0], &c.halves[1]
	b.threads = b.threads[:0]
	if n < fewGoroutines {
		c.raw = a.read(c.raw[:0], addrs)
	} else {
		var late []Goroutine
		var wg sync.WaitGroup
		wg.Go(func() { late = b.read(c.raw[n/2:n/2:n], addrs[n/2:]) })
		soon := a.read(c.raw[:0:n/2], addrs[:n/2])
		wg.Wait()
		c.raw = append(c.raw[:len(soon)], late...) // to where they are, but for the dead
	}
	c.numbers(c.raw)
	return c.byID(buf), nil
}

// read appends the goroutines at addrs that are not dead to out, which has room for all.
func (h *half) read(out []Goroutine, addrs []uint64) []Goroutine {
	h.spans, h.runs, h.threads = h.spans[:0], h.runs[:0], h.threads[:0]
	size, from := 0, 0
	for i := 0; i < len(addrs); {
		// They lie side by side in the heap.
		k := i + 1
		for k < len(addrs) && addrs[k]-addrs[k-1] <= nearby && addrs[k]-addrs[i] < maxRun {
			k++
		}
		h.spans = append(h.spans, rule.Span{Addr: addrs[i], Len: int(addrs[k-1]-addrs[i]) + h.c.f.length})
		h.runs = append(h.runs, k-i)
		size += h.spans[len(h.spans)-1].Len
		if i = k; size >= maxRun || i == len(addrs) {
			out = h.some(out, addrs[from:i], size)
			h.spans, h.runs, size, from = h.spans[:0], h.runs[:0], 0, i
		}
	}
	return out
}

// list gives the addresses of all g's in ascending order. It is valid until the
// next call.
func (c *Census) list() ([]uint64, error) {
	var head [16]byte
	if err := c.read(head[:], c.allgs); err != nil {
		return nil, err
	}
	at, n := le(head[:], 0), le(head[:], 8)
	if n > MaxGoroutines || !pointer(at) {
		return nil, fmt.Errorf("the Go runtime's list of goroutines is damaged: %d at %#x", n, at)
	}
	list := c.other
	if uint64(cap(list)) < 8*n {
		list = make([]byte, 8*n+8*n/4)
	}
	list = list[:8*n]
	if err := c.read(list, at); err != nil {
		return nil, err
	}
	c.other = c.said
	if c.said = list; bytes.Equal(list, c.other) {
		return c.addrs, nil // nobody has come since
	}
	c.addrs = c.addrs[:0]
	for i := range n {
		if g := le(list, 8*i); pointer(g) {
			c.addrs = append(c.addrs, g)
		}
	}
	slices.Sort(c.addrs)
	return c.addrs, nil
}

// some reads the g's at addrs, which lie in h.spans, of size bytes in all, h.runs of them
// in each. Those in a span that cannot be read are read one by one.
func (h *half) some(out []Goroutine, addrs []uint64, size int) []Goroutine {
	if len(h.buf) < size {
		h.buf = make([]byte, size+size/4)
	}
	got := h.c.readSpans(h.spans, h.buf[:size])
	at := 0
	for i, s := range h.spans {
		run := addrs[:h.runs[i]]
		addrs = addrs[h.runs[i]:]
		b := h.buf[at : at+s.Len]
		at += s.Len
		if at <= got {
			for _, a := range run {
				out = h.add(out, b[a-run[0]:])
			}
			continue
		}
		for _, a := range run {
			if h.c.read(b[:h.c.f.length], a) == nil {
				out = h.add(out, b)
			}
		}
	}
	return out
}

// add appends the goroutine whose g is in b, unless it is none.
func (h *half) add(buf []Goroutine, b []byte) []Goroutine {
	c := h.c
	switch Status(binary.LittleEndian.Uint32(b[c.f.status:]) &^ scanBit) {
	case GoDead, GoDeadExtra, GoIdle:
		return buf
	}
	buf = append(buf, Goroutine{})
	g := &buf[len(buf)-1]
	c.goroutine(g, b)
	if g.Status == GoRunning || g.Status == GoSyscall {
		if m := le(b, gM); pointer(m) {
			h.threads = append(h.threads, thread{g.ID, m + c.rt.layout.procid})
		}
	}
	return buf
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
		if i := int(g.Reason); i < len(c.reasons) {
			g.Wait = c.reasons[i]
		}
	case GoSyscall:
		g.PC, g.SP, g.FP = le(b, f.sysPC), le(b, f.sysSP), 0
	}
}

// thread is where the number of the thread is that runs a goroutine.
type thread struct{ id, procid uint64 }

// numbers notes which threads run goroutines.
func (c *Census) numbers(all []Goroutine) {
	tids := map[uint64]stack.TID{}
	var b [8]byte
	for i := range c.halves {
		for _, t := range c.halves[i].threads {
			if c.read(b[:], t.procid) == nil {
				tids[t.id] = stack.TID(le(b[:], 0))
			}
		}
	}
	if len(tids) == 0 {
		return
	}
	for i := range all {
		if s := all[i].Status; s == GoRunning || s == GoSyscall {
			all[i].Thread = tids[all[i].ID]
		}
	}
}

// byID appends what is in c.raw to buf, by number. Numbers lie close together mostly, and each is there once.
func (c *Census) byID(buf []Goroutine) []Goroutine {
	all := c.raw
	if len(all) == 0 {
		return buf
	}
	lo, hi := all[0].ID, all[0].ID
	for i := range all {
		lo, hi = min(lo, all[i].ID), max(hi, all[i].ID)
	}
	first := len(buf)
	buf = slices.Grow(buf, len(all))
	if hi-lo < 8*uint64(len(all)) {
		if n := int(hi - lo + 1); cap(c.places) < n {
			c.places = make([]int32, n+n/4)
		} else {
			clear(c.places[:n])
		}
		places := c.places[:hi-lo+1]
		for i := range all {
			places[all[i].ID-lo] = int32(i + 1)
		}
		for _, p := range places {
			if p > 0 {
				buf = append(buf, all[p-1])
			}
		}
		if len(buf)-first == len(all) {
			return buf
		}
		buf = buf[:first] // one was seen twice
	}
	buf = append(buf, all...)
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

// found is where a runtime's list of goroutines is, and its words for what they wait for.
type found struct {
	allgs   uint64
	reasons []string
}

// maxCandidates bounds the places of one piece of data that may be the list.
const maxCandidates = 1 << 12

// Find searches the program's data for the slice of all goroutines and for the array of
// reasons to wait, unless somebody has found them already. Both prove themselves, so that
// no symbol is needed. It fails with ErrNoGoroutines, as where the program has just begun;
// Goroutines calls it where nobody did.
func (c *Census) Find() error {
	if c.allgs != 0 {
		return nil
	}
	if l := c.rt.list.Load(); l != nil {
		c.allgs, c.reasons = l.allgs, l.reasons
		return nil
	}
	c.reasons = nil
	b := make([]byte, dataChunk+reasonsLen)
	var maybe []uint64 // where in b the list may be
search:
	for i := range c.rt.table.img.segs {
		s := &c.rt.table.img.segs[i]
		if s.Flags&elf.PF_X != 0 || s.Memsz > maxGoData {
			continue
		}
		for off := uint64(0); off < s.Memsz; off += dataChunk {
			n := min(uint64(len(b)), s.Memsz-off)
			at := s.Vaddr + off + c.rt.bias
			if c.read(b[:n], at) != nil {
				continue // a hole, or unmapped by now
			}
			maybe = maybe[:0]
			for d := (8 - at%8) % 8; d+24 <= n; d += 8 {
				if c.allgs == 0 && s.Flags&elf.PF_W != 0 && mayBeAllgs(b[d:n]) {
					maybe = append(maybe, d)
				}
				if c.reasons == nil && d+reasonsLen <= n && isReasons(b[d:n]) {
					c.reasons = c.readReasons(at + d)
				}
			}
			for len(maybe) > 0 && c.allgs == 0 {
				k := min(len(maybe), maxCandidates)
				if d, ok := c.allgsOf(b, maybe[:k]); ok {
					c.allgs = at + d
				}
				maybe = maybe[k:]
			}
			if c.allgs != 0 && c.reasons != nil {
				break search
			}
		}
	}
	if c.allgs == 0 {
		return ErrNoGoroutines
	}
	c.rt.list.Store(&found{c.allgs, c.reasons})
	return nil
}

// mayBeAllgs reports whether b may begin with a slice of g's.
func mayBeAllgs(b []byte) bool {
	at, n, room := le(b, 0), le(b, 8), le(b, 16)
	return pointer(at) && n > 0 && n <= room && room <= 2*MaxGoroutines
}

// allgsOf tells which of some places in b is that of a slice of g's: the first is number
// 1, runs runtime.main's program and never ends.
func (c *Census) allgsOf(b []byte, at []uint64) (d uint64, ok bool) {
	heads := make([]uint64, len(at))
	for i, d := range at {
		heads[i] = le(b, d)
	}
	first := make([]uint64, len(at))
	c.each(heads, 8, func(i int, b []byte) {
		if p := le(b, 0); pointer(p) {
			first[i] = p
		}
	})
	var of []int
	gs := heads[:0]
	for i, g := range first {
		if g != 0 {
			of, gs = append(of, i), append(gs, g)
		}
	}
	best := len(at)
	c.each(gs, c.f.length, func(i int, g []byte) {
		var f fn
		lo, hi := le(g, gStackLo), le(g, gStackHi)
		start := le(g, c.f.startpc) - c.rt.bias
		if le(g, c.rt.layout.goid) == 1 && lo < hi && hi-lo <= maxStack && c.rt.table.find(start, &f) == nil && f.entry == start {
			best = min(best, of[i])
		}
	})
	if best == len(at) {
		return 0, false
	}
	return at[best], true
}

// each reads size bytes at each of addrs, and calls do for those that can be read.
func (c *Census) each(addrs []uint64, size int, do func(i int, b []byte)) {
	spans := make([]rule.Span, len(addrs))
	for i, a := range addrs {
		spans[i] = rule.Span{Addr: a, Len: size}
	}
	b := make([]byte, len(addrs)*size)
	for from := 0; from < len(spans); from++ { // and over one that cannot be read
		got := c.readSpans(spans[from:], b)
		for k := 0; got >= size; k, got = k+1, got-size {
			do(from, b[k*size:(k+1)*size])
			from++
		}
	}
}

// Lengths of the first reasons: "", "GC assist marking" and "IO wait", the same
// in every version.
var reasonLens = [...]uint64{0, 17, 7}

const reasonsLen = 16 * 3

func isReasons(b []byte) bool {
	for i, n := range reasonLens {
		if le(b, uint64(16*i+8)) != n || i > 0 && !pointerTo(le(b, uint64(16*i))) {
			return false
		}
	}
	return true
}

// pointerTo is pointer for what need not be aligned.
func pointerTo(p uint64) bool { return p >= minPointer && p <= maxPointer }

func (c *Census) readReasons(at uint64) (out []string) {
	var h [16]byte
	var s [maxReason]byte
	for i := range uint64(maxReasons) {
		if c.read(h[:], at+16*i) != nil {
			break
		}
		p, n := le(h[:], 0), le(h[:], 8)
		if n > maxReason || i > 0 && (n == 0 || !pointerTo(p)) || n > 0 && c.read(s[:n], p) != nil || !plainText(s[:n]) {
			break
		}
		out = append(out, string(s[:n]))
	}
	if !slices.Contains(out, "chan receive") || out[1] != "GC assist marking" || out[2] != "IO wait" {
		return nil
	}
	return out
}

func plainText(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

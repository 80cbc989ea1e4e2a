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
	spans       []rule.Span
	runs        []int // how many g's are in each
	threads     []thread
	buf         []byte
}

// NewCensus makes one that reads the process through mem, whose offsets are
// addresses. It stops nobody.
func (r *Runtime) NewCensus(mem io.ReaderAt) *Census {
	return &Census{rt: r, mem: mem, f: fieldsOf(r.table.version, &r.layout)}
}

// Reasons are the runtime's words for what goroutines wait for, by number; nil
// before Goroutines, or where they were not found.
func (c *Census) Reasons() []string { return c.reasons }

// Goroutines appends all goroutines that are not dead to buf, by number. What
// changes meanwhile may be seen before or after; each goroutine is as it was
// at one moment, as far as its fields are read at once. Errors are
// ErrNoGoroutines, and what kept it from reading.
func (c *Census) Goroutines(buf []Goroutine) ([]Goroutine, error) {
	if c.allgs == 0 {
		if err := c.find(); err != nil {
			return buf, err
		}
	}
	addrs, err := c.list()
	if err != nil {
		return buf, err
	}
	first := len(buf)
	buf = slices.Grow(buf, len(addrs))
	c.spans, c.runs, c.threads = c.spans[:0], c.runs[:0], c.threads[:0]
	size, from := 0, 0
	for i := 0; i < len(addrs); {
		// They lie side by side in the heap.
		k := i + 1
		for k < len(addrs) && addrs[k]-addrs[k-1] <= nearby && addrs[k]-addrs[i] < maxRun {
			k++
		}
		c.spans = append(c.spans, rule.Span{Addr: addrs[i], Len: int(addrs[k-1]-addrs[i]) + c.f.length})
		c.runs = append(c.runs, k-i)
		size += c.spans[len(c.spans)-1].Len
		if i = k; size >= maxRun || i == len(addrs) {
			buf = c.some(buf, addrs[from:i], size)
			c.spans, c.runs, size, from = c.spans[:0], c.runs[:0], 0, i
		}
	}
	c.numbers(buf[first:])
	sortByID(buf[first:])
	return buf, nil
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

// some reads the g's at addrs, which lie in c.spans, of size bytes in all, c.runs of them
// in each. Those in a span that cannot be read are read one by one.
func (c *Census) some(buf []Goroutine, addrs []uint64, size int) []Goroutine {
	if len(c.buf) < size {
		c.buf = make([]byte, size+size/4)
	}
	got := c.readSpans(c.spans, c.buf[:size])
	at := 0
	for i, s := range c.spans {
		run := addrs[:c.runs[i]]
		addrs = addrs[c.runs[i]:]
		b := c.buf[at : at+s.Len]
		at += s.Len
		if at <= got {
			for _, a := range run {
				buf = c.add(buf, b[a-run[0]:])
			}
			continue
		}
		for _, a := range run {
			if c.read(b[:c.f.length], a) == nil {
				buf = c.add(buf, b)
			}
		}
	}
	return buf
}

// add appends the goroutine whose g is in b, unless it is none.
func (c *Census) add(buf []Goroutine, b []byte) []Goroutine {
	switch Status(binary.LittleEndian.Uint32(b[c.f.status:]) &^ scanBit) {
	case GoDead, GoDeadExtra, GoIdle:
		return buf
	}
	buf = append(buf, Goroutine{})
	g := &buf[len(buf)-1]
	c.goroutine(g, b)
	if g.Status == GoRunning || g.Status == GoSyscall {
		if m := le(b, gM); pointer(m) {
			c.threads = append(c.threads, thread{g.ID, m + c.rt.layout.procid})
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
	if len(c.threads) == 0 {
		return
	}
	tids := make(map[uint64]stack.TID, len(c.threads))
	var b [8]byte
	for _, t := range c.threads {
		if c.read(b[:], t.procid) == nil {
			tids[t.id] = stack.TID(le(b[:], 0))
		}
	}
	for i := range all {
		if s := all[i].Status; s == GoRunning || s == GoSyscall {
			all[i].Thread = tids[all[i].ID]
		}
	}
}

// sortByID sorts by number. Numbers lie close together mostly, and each is there once.
func sortByID(all []Goroutine) {
	byID := func(a, b Goroutine) int { return cmp.Compare(a.ID, b.ID) }
	if slices.IsSortedFunc(all, byID) {
		return
	}
	lo, hi := all[0].ID, all[0].ID
	for i := range all {
		lo, hi = min(lo, all[i].ID), max(hi, all[i].ID)
	}
	if hi-lo < 8*uint64(len(all)) {
		places := make([]int32, hi-lo+1) // plus one
		for i := range all {
			places[all[i].ID-lo] = int32(i + 1)
		}
		old := slices.Clone(all)
		n := 0
		for _, p := range places {
			if p > 0 {
				all[n] = old[p-1]
				n++
			}
		}
		if n == len(all) {
			return
		}
		copy(all, old) // one was seen twice
	}
	slices.SortFunc(all, byID)
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

// find searches the program's data for the slice of all goroutines and for the
// array of reasons to wait. Both prove themselves, so that no symbol is needed.
func (c *Census) find() error {
	b := make([]byte, dataChunk+reasonsLen)
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
			for d := (8 - at%8) % 8; d+24 <= n; d += 8 {
				if c.allgs == 0 && s.Flags&elf.PF_W != 0 && c.isAllgs(b[d:n]) {
					c.allgs = at + d
				}
				if c.reasons == nil && d+reasonsLen <= n && isReasons(b[d:n]) {
					c.reasons = c.readReasons(at + d)
				}
			}
			if c.allgs != 0 && c.reasons != nil {
				return nil
			}
		}
	}
	if c.allgs == 0 {
		return ErrNoGoroutines
	}
	return nil
}

// isAllgs reports whether b begins with a slice of g's: the first is number
// 1, runs runtime.main's program and never ends.
func (c *Census) isAllgs(b []byte) bool {
	at, n, room := le(b, 0), le(b, 8), le(b, 16)
	if !pointer(at) || n == 0 || n > room || room > 2*MaxGoroutines {
		return false
	}
	var p [8]byte
	if c.read(p[:], at) != nil || !pointer(le(p[:], 0)) {
		return false
	}
	g := make([]byte, c.f.length)
	if c.read(g, le(p[:], 0)) != nil || le(g, c.rt.layout.goid) != 1 {
		return false
	}
	var f fn
	lo, hi := le(g, gStackLo), le(g, gStackHi)
	start := le(g, c.f.startpc) - c.rt.bias
	return lo < hi && hi-lo <= maxStack && c.rt.table.find(start, &f) == nil && f.entry == start
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

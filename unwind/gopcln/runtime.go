package gopcln

import (
	"debug/elf"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	maxTLS     = 16 << 10  // bytes of thread-local storage to search for g
	maxStack   = 1 << 30   // largest stack of a goroutine (runtime.main)
	minPointer = 64 << 10  // nothing is mapped below (vm.mmap_min_addr)
	maxPointer = 1<<56 - 1 // kernel addresses are above
)

// Offsets in bytes of g, equal in 1.16 … 1.26 (src/runtime/runtime2.go; the assembler depends on
// the offsets of the first four fields).
const (
	gStackLo = 0
	gStackHi = 8
	gM       = 48
	gSched   = 56
	bufSP    = gSched
	bufPC    = gSched + 8
	mG0      = 0
)

// layout holds the offsets that depend on the version.
type layout struct {
	bufLR, bufBP          uint64 // in g
	goid, lockedm         uint64 // in g
	procid, gsignal, curg uint64 // in m
}

// layoutOf returns the offsets for a minor version of Go. Version 0 and untested newer versions get
// those of 1.26; they are validated at every thread. Sources: the DWARF of programs built with
// 1.16.15, 1.17.13, 1.18.10, 1.20.14, 1.21.13, 1.22.12, 1.23.12, 1.24.13, 1.25.5 and 1.26.8, which
// is equal on amd64 and arm64. Go 1.25 dropped gobuf.ret, 1.23 added g.syscallbp; g's debugging
// fields before lockedm vary.
func layoutOf(version int) layout {
	l := layout{bufLR: gSched + 40, bufBP: gSched + 48, goid: 152, lockedm: 232, procid: 72, gsignal: 80, curg: 192}
	switch {
	case version == 0 || version >= 25:
		return layout{bufLR: gSched + 32, bufBP: gSched + 40, goid: 152, lockedm: 208, procid: 64, gsignal: 72, curg: 184}
	case version >= 23:
		l.goid, l.lockedm = 160, 216
	case version >= 21:
		l.lockedm = 208
	case version <= 16:
		l.lockedm = 216
	}
	return l
}

// gLen is the number of bytes of a g that are used.
func (l *layout) gLen() int { return int(l.lockedm + 8) }

// tlsHint is the area below (amd64) or above (arm64) the thread pointer that may hold the file's
// thread-local variables.
type tlsHint struct {
	exact bool  // g is at lo
	none  bool  // no TLS in the file: on arm64, only R28 holds g
	lo    int64 // offsets from the thread pointer
	hi    int64
}

// findTLS reads the file's PT_TLS. The program's own block is next to the thread pointer, and a
// library's is anywhere beyond it.
func findTLS(f *elf.File, arch rule.Arch) tlsHint {
	size, align := uint64(0), uint64(1)
	program := f.Type == elf.ET_EXEC
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_TLS:
			size, align = min(p.Memsz, maxTLS), max(p.Align, 1)
		case elf.PT_INTERP:
			program = true
		}
	}
	if align > maxTLS || align&(align-1) != 0 {
		align = 8
	}
	if arch == rule.ARM64 {
		if size == 0 {
			return tlsHint{none: true}
		}
		lo := int64((16 + align - 1) &^ (align - 1))
		if !program {
			return tlsHint{lo: 16, hi: maxTLS}
		}
		return tlsHint{lo: lo, hi: lo + int64(size), exact: size == 8}
	}
	switch size = (size + align - 1) &^ (align - 1); {
	case !program:
		return tlsHint{lo: -maxTLS, hi: 0}
	case size <= 8:
		// The linker places g there, or the runtime does (settls in src/runtime/sys_linux_amd64.s).
		return tlsHint{lo: -8, hi: 0, exact: true}
	}
	return tlsHint{lo: -int64(size), hi: 0}
}

// A Runtime is the Go runtime of one process. Its methods may be called
// concurrently.
type Runtime struct {
	table  *Table
	bias   uint64
	layout layout
	older  bool         // the version is unknown: also try the layouts before 1.25
	tls    atomic.Int64 // offset of g from the thread pointer, plus one; 0: not found yet
	list   atomic.Pointer[found]
}

// NewRuntime returns the Runtime of a process that has the file of t mapped at bias.
func NewRuntime(t *Table, bias uint64) *Runtime {
	r := &Runtime{table: t, bias: bias, layout: layoutOf(t.version), older: t.version == 0}
	if t.tls.exact {
		r.tls.Store(t.tls.lo + 1)
	}
	return r
}

// Func returns the name of the function that contains pc.
func (r *Runtime) Func(pc uint64) (name string, ok bool) {
	_, name, ok = r.table.Func(pc - r.bias)
	return name, ok
}

// Thread returns the state of one thread. tid is its number as the process itself sees it
// (m.procid; the last of the NSpid numbers), 0 if unknown.
func (r *Runtime) Thread(tid stack.TID) *Thread {
	return &Thread{rt: r, tid: uint64(tid), layout: r.layout}
}

// A Thread holds the Go data of one thread. One goroutine at a time may use it.
type Thread struct {
	rt     *Runtime
	tid    uint64
	layout layout

	// Validated once, then constant for the life of a Go thread; 0: not yet.
	m, g0, gsignal uint64

	procid  uint64
	signal  span   // gsignal's stack
	context uint64 // offset below its end at which a handler finds the interrupted SP; 0: not seen yet

	// From the last sample, for Plan's predictions.
	curg    uint64
	parked  span   // the part of a goroutine's stack that was needed
	native  span   // the part of g0's stack that was needed
	rest    uint64 // highest SP at which g0's stack was left
	seeks   int    // remaining searches for its locked goroutine: see seek
	crosses int    // remaining walks for which a goroutine's stack is copied
	next    peek

	// The current walk.
	g    uint64 // from the thread pointer; 0: unknown
	base uint64 // SP of g0 at which the next cgocallback continues; 0: not read yet
}

type span struct{ lo, hi uint64 }

func (s span) has(addr uint64) bool { return addr >= s.lo && addr < s.hi }

// slot returns the address where the thread keeps its g.
func (t *Thread) slot(regs *stack.Regs) (uint64, bool) {
	off := t.rt.tls.Load()
	if off == 0 || regs.TLS == 0 || t.rt.table.tls.none {
		return 0, false
	}
	return regs.TLS + uint64(off-1), true
}

// Begin starts the walk of a sample. mem holds the copy and may fall back on live memory.
func (t *Thread) Begin(regs *stack.Regs, mem rule.Words) {
	t.begin(regs, mem)
	if t.m != 0 && t.seeks > 0 {
		t.seek(mem)
	}
	t.record(mem)
}

// BeginPast is Begin for a copy after which the thread has run: mem holds nothing but the copy.
func (t *Thread) BeginPast(regs *stack.Regs, mem rule.Words) {
	t.begin(regs, mem)
	t.record(mem)
}

// begin finds the thread's g and m.
func (t *Thread) begin(regs *stack.Regs, mem rule.Words) {
	t.g, t.base, t.parked, t.native, t.next.g = 0, 0, span{}, span{}, 0
	t.crosses = max(t.crosses-1, 0)
	if at, ok := t.slot(regs); ok {
		t.g, _ = mem.Word(at)
	} else if t.rt.table.tls.none {
		if regs.Has(goReg) {
			t.g = regs.R[goReg]
		}
	} else if regs.TLS != 0 {
		t.g = t.probe(regs.TLS, mem)
	}
	if t.m == 0 && t.g != 0 {
		t.learn(t.g, mem)
	}
}

// record notes which goroutine the thread runs, for later, when that is locked and waits.
func (t *Thread) record(mem rule.Words) {
	if t.m == 0 {
		return
	}
	t.current(mem)
	if sp, ok := mem.Word(t.g0 + bufSP); ok && sp > t.rest {
		t.rest = sp
	}
}

// goReg is the register in which arm64 code keeps g.
const goReg = 28

// probe searches the file's thread-local storage for a g that passes validation, nearest to the
// thread pointer first: programs without cgo have copies further off, and the thread pointer points
// into m.tls.
func (t *Thread) probe(tls uint64, mem rule.Words) uint64 {
	h := t.rt.table.tls
	for i := int64(8); i <= h.hi-h.lo && i <= maxTLS; i += 8 {
		off := h.hi - i
		if t.rt.table.arch == rule.ARM64 {
			off = h.lo + i - 8
		}
		g, ok := mem.Word(tls + uint64(off))
		if !ok {
			return 0
		}
		if pointer(g) && t.learn(g, mem) {
			t.rt.tls.Store(off + 1)
			return g
		}
	}
	return 0
}

func pointer(p uint64) bool { return p >= minPointer && p <= maxPointer && p%8 == 0 }

// learn accepts g's m as the thread's if it passes validation: g0 and gsignal point back to it, and
// it contains the thread's number.
func (t *Thread) learn(g uint64, mem rule.Words) bool {
	if t.prove(g, t.rt.layout, mem) {
		return true
	}
	return t.rt.older && (t.prove(g, layoutOf(24), mem) || t.prove(g, layoutOf(22), mem))
}

func (t *Thread) prove(g uint64, l layout, mem rule.Words) bool {
	word := func(addr uint64) uint64 {
		if w, ok := mem.Word(addr); ok {
			return w
		}
		return 0
	}
	if !pointer(g) {
		return false
	}
	m := word(g + gM)
	if !pointer(m) {
		return false
	}
	g0, gsignal := word(m+mG0), word(m+l.gsignal)
	if !pointer(g0) || !pointer(gsignal) || word(g0+gM) != m || word(gsignal+gM) != m {
		return false
	}
	id := word(m + l.procid)
	if id == 0 || t.tid != 0 && id != t.tid {
		return false
	}
	t.m, t.g0, t.gsignal, t.procid, t.layout = m, g0, gsignal, id, l
	t.signal, _ = stackOf(gsignal, mem)
	t.rest, t.seeks = 0, 0
	if g, ok := mem.Word(m + l.curg); !ok || g == 0 {
		t.seeks = maxSeeks
		t.seek(mem)
	}
	return true
}

// current returns the goroutine that the thread's m runs, and its stack. g is 0 if it runs none. ok
// is false if the data could not be read or is not plausible.
func (t *Thread) current(mem rule.Words) (g uint64, s span, ok bool) {
	if t.m == 0 {
		return 0, s, false
	}
	// A thread created by C borrows an m and returns it.
	if id, ok := mem.Word(t.m + t.layout.procid); !ok || id != t.procid {
		if !ok || !t.learn(t.g, mem) {
			return 0, s, false
		}
	}
	g, ok = mem.Word(t.m + t.layout.curg)
	if ok && g == 0 {
		if g, ok = t.locked(mem); g != 0 {
			s, ok = stackOf(g, mem)
			return g, s, ok
		}
		ok = ok && t.seeks == 0
	}
	if !ok || g == 0 {
		return 0, s, ok
	}
	t.seeks = 0
	if !pointer(g) {
		return 0, s, false
	}
	m, ok := mem.Word(g + gM)
	if !ok || m != t.m && m != 0 { // 0: just taken up, or about to be left (execute and dropg in src/runtime/proc.go)
		return 0, s, ok // it moved on to another thread
	}
	s, ok = stackOf(g, mem)
	t.curg = g
	return g, s, ok
}

// Goroutine returns the number and the current stack bounds of the goroutine that the thread was
// running, or on whose behalf it ran on g0 or in a signal handler. The stack moves when it grows or
// shrinks (copystack in src/runtime/stack.go). ok is false if there is none.
func (t *Thread) Goroutine(mem rule.Words) (id, lo, hi uint64, ok bool) {
	g, s, ok := t.current(mem)
	if !ok || g == 0 {
		return 0, 0, 0, false
	}
	id, ok = mem.Word(g + t.layout.goid)
	return id, s.lo, s.hi, ok
}

// Current returns the address of that goroutine's g. g is 0 if the thread runs none. ok is false if
// the data could not be read.
func (t *Thread) Current(mem rule.Words) (g uint64, ok bool) {
	g, _, ok = t.current(mem)
	return g, ok
}

// Task returns the goroutine whose g is at addr, according to mem. ok is false if mem lacks it. Its
// wait reason is a number as in Census.Reasons.
func (t *Thread) Task(addr uint64, mem rule.Words) (task stack.Task, ok bool) {
	// atomicstatus, stackLock, goid, schedlink, waitsince and waitreason are consecutive in 1.16 …
	// 1.26.
	id, ok0 := mem.Word(addr + t.layout.goid)
	status, ok1 := mem.Word(addr + t.layout.goid - 8)
	reason, ok2 := mem.Word(addr + t.layout.goid + 24)
	if !ok0 || !ok1 || !ok2 || id == 0 {
		return task, false
	}
	task = stack.Task{ID: id, State: Status(uint32(status) &^ scanBit).State()}
	if task.State == stack.TaskWaiting {
		task.Reason = uint8(reason)
	}
	return task, true
}

// locked returns the goroutine that only this thread may run (runtime.LockOSThread) and that waits
// to continue. Its calls still belong to the thread. It returns 0 if there is none.
func (t *Thread) locked(mem rule.Words) (g uint64, ok bool) {
	if t.curg == 0 {
		return 0, true
	}
	m, ok := mem.Word(t.curg + t.layout.lockedm)
	if !ok || m != t.m {
		return 0, ok
	}
	return t.curg, true
}

// maxSeeks bounds the failed searches for a thread's locked goroutine. After that the thread counts
// as having none.
const maxSeeks = 8

// seek finds the locked goroutine of a thread that has not been seen running it. Until it is found,
// or known not to exist, the owner of the thread's calls is unknown.
func (t *Thread) seek(mem rule.Words) {
	g, ok := t.seekLocked(mem)
	if t.seeks--; ok {
		t.seeks = 0
	}
	if g != 0 {
		t.curg = g
	}
}

// seekLocked searches m for the goroutine. Its place in m depends on the version, but only one
// goroutine has this m in its lockedm. ok is false if m could not be read and the goroutine was not
// found. Words of m may point to unmapped memory.
func (t *Thread) seekLocked(mem rule.Words) (g uint64, ok bool) {
	const within = 1 << 10 // bytes of m to search: lockedg is at 400 to 600 in 1.16 to 1.26
	for at := t.layout.curg + 8; at < within; at += 8 {
		g, ok := mem.Word(t.m + at)
		if !ok {
			return 0, false
		}
		if !pointer(g) {
			continue
		}
		if m, ok := mem.Word(g + t.layout.lockedm); !ok || m != t.m {
			continue
		}
		s, ok := stackOf(g, mem)
		if sp, ok2 := mem.Word(g + bufSP); ok && ok2 && s.has(sp) {
			return g, true
		}
	}
	return 0, true
}

func stackOf(g uint64, mem rule.Words) (s span, ok bool) {
	if s.lo, ok = mem.Word(g + gStackLo); !ok {
		return s, false
	}
	if s.hi, ok = mem.Word(g + gStackHi); !ok {
		return s, false
	}
	return s, s.lo >= minPointer && s.lo < s.hi && s.hi-s.lo <= maxStack
}

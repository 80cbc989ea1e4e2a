package lock

import (
	"fmt"
	"strings"

	"github.com/sliverprof/sliver/wait/kind"
)

// Layouts of the Go runtime. Its threads sleep on a word of their own m (m.park.key),
// whatever their goroutine waits for; the runtime's data shows which wait it is.
// Offsets are from the DWARF of programs built with Go 1.16 to 1.26, equal on amd64 and
// arm64 (src/runtime/runtime2.go). Where versions differ, the offset is found by the
// value that must be there.
const (
	goParkMin, goParkMax = 0x60, 0x400 // m.park.key in m
	goM0                 = 0           // m.g0
	goMLen               = 0x500       // of m, up to and including lockedg

	goStackLo, goStackHi = 0, 8 // in g
	goGM                 = 48   // g.m
	goSchedSP            = 56
	goSchedPC            = 64
	goGLen               = 240

	// g.atomicstatus, 8 bytes before goid (src/runtime/runtime2.go).
	goWaiting  = 4
	goScanning = 0x1000

	goSudogLen  = 112
	goSudogNext = 8
	goSudogElem = 24 // since 1.26 two words; the second one is always set
	goScan      = 1024
	goFrames    = 16
	goQueue     = 64 // bound on the sudogs of a channel that are followed

	goStackMost = 1 << 30
	goLow       = 1 << 16
	goHigh      = 1 << 56
)

// goLockedM are the offsets of g.lockedm, each with the offset of g.goid.
var goLockedM = [...]struct{ lockedm, goid uint64 }{{208, 152}, {216, 160}, {232, 152}}

func goPointer(p uint64) bool { return p >= goLow && p < goHigh && p&7 == 0 }

// golang resolves the wait of the goroutine that is locked to the thread. It reports
// whether there is one.
func (r *recogniser) golang() bool {
	m, ok := r.goM()
	if !ok {
		return false
	}
	g, ok := r.goLocked(m)
	if !ok {
		return false
	}
	r.l.Kind, r.l.Impl, r.l.Basis, r.l.Shared = kind.LockGoRuntime, "go", ByLayout, false
	r.l.Note = fmt.Sprintf("goroutine %d, which is bound to this thread, is blocked", g.id)
	r.l.Holder = Holder{Why: "what its goroutine waits for is not known"}
	if !g.waits {
		r.l.Kind = kind.LockGoScheduler
		r.l.Note = fmt.Sprintf("goroutine %d, which is bound to this thread, is about to go on", g.id)
		r.l.Holder.Why = noOwner(&r.l)
		return true
	}
	if r.w.Function == nil {
		return true
	}
	r.goReason(&g)
	return true
}

// goM finds the m whose word the thread sleeps on; it checks that m.g0.m is m.
func (r *recogniser) goM() (m uint64, ok bool) {
	if r.w.Word&7 != 0 || r.w.Word < goLow+goParkMax {
		return 0, false
	}
	var b [goParkMax]byte
	if !r.m.probe(b[:], r.w.Word-goParkMax) {
		return 0, false
	}
	for off := uint64(goParkMin); off <= goParkMax; off += 8 {
		g0 := u64(b[goParkMax-off:])
		if !goPointer(g0) {
			continue
		}
		if back, ok := r.m.probe64(g0 + goGM); ok && back == r.w.Word-off {
			return back, true
		}
	}
	return 0, false
}

// goroutine holds the fields read from a g.
type goroutine struct {
	addr, id   uint64
	waits      bool   // false: it is runnable
	lo, hi     uint64 // its stack
	sp, pc, bp uint64 // where it resumes
}

// goLocked finds the goroutine that is locked to m: m.lockedg, whose lockedm is m.
func (r *recogniser) goLocked(m uint64) (g goroutine, ok bool) {
	var b [goMLen]byte
	n, _ := r.m.m.ReadAt(b[:], m)
	seen := map[uint64]bool{u64(b[goM0:]): true, 0: true}
	for i := 8; i+8 <= n; i += 8 {
		p := u64(b[i:])
		if seen[p] || !goPointer(p) {
			continue
		}
		seen[p] = true
		var x [goGLen]byte
		if !r.m.probe(x[:], p) {
			continue
		}
		lo, hi, sp := u64(x[goStackLo:]), u64(x[goStackHi:]), u64(x[goSchedSP:])
		if lo >= hi || hi-lo > goStackMost || sp < lo || sp >= hi {
			continue
		}
		for _, o := range goLockedM {
			if u64(x[o.lockedm:]) != m {
				continue
			}
			g = goroutine{addr: p, id: u64(x[o.goid:]), waits: u32(x[o.goid-8:])&^goScanning == goWaiting, lo: lo, hi: hi, sp: sp, pc: u64(x[goSchedPC:])}
			// gobuf.bp is the last word of gobuf, of 6 since 1.25 and of 7 before: in
			// the other versions that word is zero.
			for _, at := range [...]int{96, 104} {
				if bp := u64(x[at:]); bp >= sp && bp < hi && bp&7 == 0 {
					g.bp = bp
					break
				}
			}
			return g, true
		}
	}
	return g, false
}

// A goWait is a function of the runtime or of sync and the wait it performs.
type goWait struct {
	function string
	kind     kind.Lock
	typ      string
	sema     int64  // offset in the lock of the word that the runtime queues at; -1: none
	reason   string // as in a goroutine's stack trace
}

var goWaits = [...]goWait{
	{"sync.(*RWMutex).RLock", kind.LockRW, "Go read", 12, "sync.RWMutex.RLock"},
	{"sync.runtime_SemacquireRWMutexR", kind.LockRW, "Go read", 12, "sync.RWMutex.RLock"}, // RLock is inlined
	{"sync.runtime_SemacquireRWMutex", kind.LockRW, "Go write", 8, "sync.RWMutex.Lock"},
	{"internal/sync.(*Mutex).lockSlow", kind.LockMutex, "Go", 4, "sync.Mutex.Lock"},
	{"sync.(*Mutex).lockSlow", kind.LockMutex, "Go", 4, "sync.Mutex.Lock"},
	{"sync.(*RWMutex).Lock", kind.LockRW, "Go write", 8, "sync.RWMutex.Lock"},
	{"sync.runtime_SemacquireWaitGroup", kind.LockWaitGroup, "Go", 8, "sync.WaitGroup.Wait"},
	{"sync.(*WaitGroup).Wait", kind.LockWaitGroup, "Go", 8, "sync.WaitGroup.Wait"},
	{"sync.(*Cond).Wait", kind.LockCond, "Go", -1, "sync.Cond.Wait"},
	{"runtime.notifyListWait", kind.LockCond, "Go", -1, "sync.Cond.Wait"},
	{"sync.runtime_notifyListWait", kind.LockCond, "Go", -1, "sync.Cond.Wait"},
	{"runtime.chanrecv", kind.LockChannel, "receive from a Go", -1, "chan receive"},
	{"runtime.chanrecv1", kind.LockChannel, "receive from a Go", -1, "chan receive"},
	{"runtime.chanrecv2", kind.LockChannel, "receive from a Go", -1, "chan receive"},
	{"runtime.chansend", kind.LockChannel, "send to a Go", -1, "chan send"},
	{"runtime.chansend1", kind.LockChannel, "send to a Go", -1, "chan send"},
	{"runtime.selectgo", kind.LockSelect, "Go", -1, "select"},
	{"runtime.block", kind.LockSelect, "Go", -1, "select (no cases)"},
	{"time.Sleep", kind.LockSleep, "Go", -1, "sleep"},
	{"runtime.timeSleep", kind.LockSleep, "Go", -1, "sleep"},
	{"internal/poll.runtime_pollWait", kind.LockPoll, "Go", -1, "IO wait"},
	{"runtime.netpollblock", kind.LockPoll, "Go", -1, "IO wait"},
	{"runtime.semacquire1", kind.LockSemaphore, "Go", 0, "semacquire"},
}

// goFunction returns the wait that a function performs.
func goFunction(name string) *goWait {
	for i := range goWaits {
		if goWaits[i].function == name {
			return &goWaits[i]
		}
	}
	return nil
}

// goReason resolves what a goroutine waits for from the functions on its stack. The innermost known
// function decides, except for the semaphore, which all waits of sync use.
func (r *recogniser) goReason(g *goroutine) {
	var found goWait
	for _, pc := range r.goStack(g) {
		w := goFunction(r.w.Function(pc))
		switch {
		case w == nil:
		case found.kind == "" || found.kind == kind.LockSemaphore:
			found = *w
		case found.kind == kind.LockMutex && w.kind == kind.LockRW: // an RWMutex starts with the mutex of its writers
			found.kind, found.typ, found.reason = w.kind, w.typ, w.reason
		}
	}
	if found.kind == "" {
		return
	}
	l := &r.l
	l.Kind, l.Type = found.kind, found.typ
	l.Note = fmt.Sprintf("goroutine %d: %s", g.id, found.reason)
	l.Basis = ByFunction
	l.Holder = Holder{}
	switch {
	case found.kind == kind.LockChannel:
		r.goSudogs(g, func(sudog uint64, b []byte) bool {
			c, ok := r.goChannel(sudog, b)
			if ok {
				l.Addr = c
			}
			return ok
		})
	case found.sema >= 0:
		r.goSudogs(g, func(_ uint64, b []byte) bool {
			elem := u64(b[goSudogElem:])
			if elem == 0 {
				elem = u64(b[goSudogElem+8:])
			}
			if elem < goLow || elem >= goHigh || elem&3 != 0 || uint64(found.sema) >= elem {
				return false // already released: the goroutine is a former holder
			}
			l.Addr = elem - uint64(found.sema)
			r.goState()
			return true
		})
	}
	if l.Addr == r.w.Word && found.kind != kind.LockSleep && found.kind != kind.LockSelect {
		l.Note += "; the address is that of the word that its thread sleeps on"
	}
	if l.Holder.Why == "" {
		l.Holder.Why = noOwner(l)
	}
}

// goStack returns addresses inside the calls on a parked goroutine's stack, leaf first,
// by following its frame pointers (amd64 and arm64 keep them).
func (r *recogniser) goStack(g *goroutine) []uint64 {
	pcs := make([]uint64, 1, goFrames)
	pcs[0] = g.pc
	for bp := g.bp; len(pcs) < goFrames && bp >= g.sp && bp+16 <= g.hi; {
		var b [16]byte
		if !r.m.probe(b[:], bp) {
			break
		}
		ret := u64(b[8:])
		if ret < goLow {
			break
		}
		pcs = append(pcs, ret-1)
		up := u64(b[:])
		if up <= bp {
			break
		}
		bp = up
	}
	return pcs
}

// goSudogs passes candidates for the goroutine's queue entry (sudog) to take until it
// accepts one. The functions that the goroutine is parked in keep the address of the
// sudog on the stack, and the sudog starts with the address of the g.
func (r *recogniser) goSudogs(g *goroutine, take func(addr uint64, b []byte) bool) {
	var s [goScan]byte
	n, _ := r.m.m.ReadAt(s[:min(goScan, g.hi-g.sp)], g.sp)
	seen := map[uint64]bool{g.addr: true}
	for i := 0; i+8 <= n; i += 8 {
		p := u64(s[i:])
		if seen[p] || !goPointer(p) || p >= g.lo && p < g.hi {
			continue
		}
		seen[p] = true
		var b [goSudogLen]byte
		if first, ok := r.m.probe64(p); ok && first == g.addr && r.m.probe(b[:], p) && take(p, b[:]) {
			return
		}
	}
}

// goChannel finds the channel of a sudog: one of the sudog's last words, if the queues
// of the channel lead back to the sudog. struct hchan starts with its element count and
// its capacity.
func (r *recogniser) goChannel(sudog uint64, b []byte) (c uint64, ok bool) {
	const queues, end = 40, 112 // offsets of recvq and sendq in all versions
	for at := 88; at+8 <= len(b); at += 8 {
		p := u64(b[at:])
		var h [end]byte
		if !goPointer(p) || !r.m.probe(h[:], p) || u64(h[:]) > u64(h[8:]) {
			continue
		}
		for q := queues; q+8 <= end; q += 8 {
			next := u64(h[q:])
			for range goQueue {
				if next == sudog {
					return p, true
				}
				if !goPointer(next) {
					break
				}
				if next, ok = r.m.probe64(next + goSudogNext); !ok {
					break
				}
			}
		}
	}
	return 0, false
}

// goState adds the state of a sync.Mutex (internal/sync/mutex.go: bits locked, woken,
// starving, then the number of waiters).
func (r *recogniser) goState() {
	const locked, starving, waiters = 1, 4, 3
	if r.l.Kind != kind.LockMutex {
		return
	}
	v, ok := r.m.probe32(r.l.Addr)
	if !ok {
		return
	}
	r.l.Value = v
	if v&locked == 0 {
		r.l.Holder.Why = "free at this moment: a goroutine is being woken"
		return
	}
	s := []string{"held; sync.Mutex does not say by whom"}
	if v&starving != 0 {
		s = append(s, "starving")
	}
	r.l.Holder.Why = fmt.Sprintf("%s (%d waiting)", strings.Join(s, ", "), v>>waiters)
}

package lock

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/wait/kind"
)

// goImage builds a waiting goroutine that is locked to thread mine: its g, m, a stack
// with two frames, a sudog in the layout of Go 1.26 (wide) or before, and the objects
// it waits for.
func goImage(m *image, lockedm, bp uint64, wide bool) (word, sema, channel uint64) {
	const (
		mAt, g0, g      = base + 0x600, base + 0x100, base + 0x200
		lo, hi, sp, fp  = base + 0x800, base + 0xa00, base + 0x820, base + 0x8a0
		sudog, stale    = base + 0x340, base + 0x3c0
		mutex, hchan    = base + 0x440, base + 0x480
		code            = base + 0x20000 // never read
		waiting, status = 4, 8
	)
	word = mAt + 0x158
	m.put64(mAt, g0)
	m.put64(g0+goGM, mAt)
	m.put64(mAt+0x90, g)
	m.put64(g+goStackLo, lo)
	m.put64(g+goStackHi, hi)
	m.put64(g+goSchedSP, sp)
	m.put64(g+goSchedPC, code+1)
	m.put64(g+bp, fp)
	m.put64(g+lockedm, mAt)
	for _, o := range goLockedM {
		if o.lockedm == lockedm {
			m.put64(g+o.goid, 77)
			m.put32(g+o.goid-status, waiting)
		}
	}
	m.put64(fp, fp+0x40)
	m.put64(fp+8, code+2+1)
	m.put64(fp+0x40, 0)
	m.put64(fp+0x48, code+3+1)
	m.put64(sp+16, stale)
	m.put64(stale, g) // released: in no queue
	m.put64(sp+24, sudog)
	m.put64(sudog, g)
	c := uint64(88)
	if wide {
		m.put64(sudog+goSudogElem+8, mutex+4)
		c = 104
	} else {
		m.put64(sudog+goSudogElem, mutex+4)
	}
	m.put64(sudog+c, hchan)
	m.put64(hchan+56, sudog) // first of a queue
	m.put32(mutex, 1|4|3<<3) // locked, starving, three waiters
	return word, mutex, hchan
}

func TestGoroutine(t *testing.T) {
	for _, v := range []struct {
		name        string
		lockedm, bp uint64
		wide        bool
	}{{"1.26", 208, 96, true}, {"1.25", 208, 96, false}, {"1.24", 216, 104, false}, {"1.18", 232, 104, false}} {
		for _, c := range []struct {
			names [3]string
			want  Lock
			why   string
		}{
			{[3]string{"", "runtime.semacquire1", "internal/sync.(*Mutex).lockSlow"}, Lock{Kind: kind.LockMutex, Type: "Go", Addr: base + 0x440, Note: "goroutine 77: sync.Mutex.Lock"}, "starving (3 waiting)"},
			{[3]string{"runtime.semacquire1", "sync.(*Mutex).lockSlow", "sync.(*RWMutex).Lock"}, Lock{Kind: kind.LockRW, Type: "Go write", Addr: base + 0x440, Note: "goroutine 77: sync.RWMutex.Lock"}, "keeps no owner"},
			{[3]string{"", "runtime.chanrecv", "runtime.chanrecv1"}, Lock{Kind: kind.LockChannel, Type: "receive from a Go", Addr: base + 0x480, Note: "goroutine 77: chan receive"}, "has no holder"},
			{[3]string{"", "", "time.Sleep"}, Lock{Kind: kind.LockSleep, Type: "Go", Note: "goroutine 77: sleep"}, "has no holder"},
			{[3]string{}, Lock{Kind: kind.LockGoRuntime, Note: "goroutine 77, which is bound to this thread, is blocked"}, "not known"},
		} {
			for _, arch := range []string{"amd64", "arm64"} {
				m, target := fixture(arch, AnyLibc)
				word, _, _ := goImage(m, v.lockedm, v.bp, v.wide)
				w := Wait{Futex: Futex{Word: word, Private: true}, NSTID: mine, Go: true, Function: func(addr uint64) string {
					if i := addr - base - 0x20001; i < 3 {
						return c.names[i]
					}
					return ""
				}}
				if c.want.Addr == 0 {
					c.want.Addr = word
				}
				l, err := Recognise(target, &w)
				if err != nil || l.Kind != c.want.Kind || l.Type != c.want.Type || l.Addr != c.want.Addr || l.Note != c.want.Note ||
					l.Impl != "go" || l.Holder.TID != 0 || !strings.Contains(l.Holder.Why, c.why) {
					t.Errorf("%s %s %v: %+v (%v), want %+v", v.name, arch, c.names, l, err, c.want)
				}
			}
		}
	}
	// A goroutine that is ready waits for no lock.
	m, target := fixture("amd64", AnyLibc)
	word, _, _ := goImage(m, 208, 96, true)
	const ready = 1
	for _, o := range goLockedM {
		if o.lockedm == 208 {
			m.put32(base+0x200+o.goid-8, ready)
		}
	}
	if l, err := Recognise(target, &Wait{Futex: Futex{Word: word, Private: true}, NSTID: mine, Go: true}); err != nil || l.Kind != kind.LockGoScheduler || !strings.Contains(l.Note, "goroutine 77") || l.Holder.Why == "" {
		t.Errorf("a goroutine that is ready: %+v (%v)", l, err)
	}
	// An inconsistent layout must not be recognised as Go's.
	m.put64(base+0x100+goGM, 0)
	if l, err := Recognise(target, &Wait{Futex: Futex{Word: word, Private: true}, NSTID: mine, Go: true}); err != nil || l.Note != "" || l.Kind != kind.LockGoRuntime {
		t.Errorf("%+v, %v", l, err)
	}
}

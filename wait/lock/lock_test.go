package lock

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// image is artificial memory.
type image struct {
	base uint64
	b    []byte
}

var errNothing = errors.New("nothing is mapped there")

func (m *image) ReadAt(b []byte, addr uint64) (int, error) {
	if addr < m.base || addr-m.base >= uint64(len(m.b)) {
		return 0, errNothing
	}
	n := copy(b, m.b[addr-m.base:])
	if n < len(b) {
		return n, errNothing
	}
	return n, nil
}

func (m *image) put32(addr uint64, v ...uint32) {
	for i, x := range v {
		binary.LittleEndian.PutUint32(m.b[addr-m.base+uint64(i)*4:], x)
	}
}
func (m *image) put64(addr, v uint64) { binary.LittleEndian.PutUint64(m.b[addr-m.base:], v) }

const (
	mine, other = 100, 101 // TIDs of the target's namespace; ours are 1000 higher
	base        = 0x10000
	stackAt     = base + 0x2000
)

func fixture(arch string, c Libc) (*image, *Target) {
	m := &image{base, make([]byte, 0x4000)}
	return m, &Target{Arch: arch, Libc: c, Mem: m, Thread: func(n int32, _ bool) (stack.TID, bool) {
		return stack.TID(n + 1000), n == mine || n == other
	}}
}

// The fixtures are built by hand from the headers that the package's constants cite:
// arm64, and versions of glibc that the test machine may not have.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		name, arch string
		libc       Libc
		lay        func(m *image)
		futex      Futex
		want       Lock // Addr, Kind, Type, Impl, Mutex, Holder.TID and Readers count
	}{
		{"mutex", "arm64", AnyLibc, func(m *image) { m.put32(base+0x100, 2, 1, other, 1, 1) },
			Futex{Word: base + 0x100, Val: 2, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockMutex, Type: "recursive", Impl: "glibc", Holder: Holder{TID: other + 1000}}},
		{"its own mutex: a deadlock of one", "amd64", Glibc, func(m *image) { m.put32(base+0x100, 2, 0, mine, 1, 0) },
			Futex{Word: base + 0x100, Val: 2, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockMutex, Impl: "glibc", Holder: Holder{TID: mine + 1000}}},
		{"a mutex whose owner has ended", "amd64", Glibc, func(m *image) { m.put32(base+0x100, 2, 0, 55, 1, 0) },
			Futex{Word: base + 0x100, Val: 2, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockUnknown}},
		{"join on arm64", "arm64", AnyLibc, func(m *image) { m.put32(base+0x100+208, other) },
			Futex{Word: base + 0x100 + 208, Op: opWaitBitset, Val: other, Clock: Realtime},
			Lock{Addr: base + 0x100, Kind: kind.LockJoin, Impl: "glibc", Holder: Holder{TID: other + 1000}}},
		{"join of musl on arm64", "arm64", Musl, func(m *image) { m.put64(base+0x100, base+0x100); m.put32(base+0x100+32, other, 0, 2) },
			Futex{Word: base + 0x100 + 40, Val: 2, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockJoin, Impl: "musl", Holder: Holder{TID: other + 1000}}},
		{"condition variable since 2.41", "amd64", Glibc, func(m *image) {
			m.put64(stackAt+0x40, 5)               // wseq
			m.put64(stackAt+0x48, base+0x100)      // cond
			m.put64(stackAt+0x50, base+0x200)      // mutex
			m.put64(stackAt+0x98, stackAt+0x40)    // the cleanup buffer's argument
			m.put64(stackAt+0x10, base+0x100+36-8) // a meaningless word
		}, Futex{Word: base + 0x100 + 36, Op: opWaitBitset, Val: 3, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockCond, Impl: "glibc", Mutex: base + 0x200}},
		{"condition variable without the proof", "amd64", Glibc, func(m *image) {
			m.put64(stackAt+0x48, base+0x100)
			m.put64(stackAt+0x50, base+0x200)
		}, Futex{Word: base + 0x100 + 36, Op: opWaitBitset, Val: 3, Private: true},
			Lock{Addr: base + 0x100 + 36, Kind: kind.LockUnknown}},
		{"PI mutex", "arm64", AnyLibc, func(m *image) { m.put32(base+0x100, wordWaiters|other, 0, other, 1, 32|2) },
			Futex{Word: base + 0x100, Op: opLockPI2, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockMutex, Type: "errorcheck PI", Impl: "kernel", Holder: Holder{TID: other + 1000}}},
		{"PI futex of no libc", "amd64", AnyLibc, func(m *image) { m.put32(base+0x100, wordWaiters|other, 99, 98, 97, 96<<10) },
			Futex{Word: base + 0x100, Op: opLockPI, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockMutex, Type: "PI", Impl: "kernel", Holder: Holder{TID: other + 1000}}},
		{"robust mutex, owner dead", "amd64", Glibc, func(m *image) { m.put32(base+0x100, wordWaiters|wordOwnerDied|other, 0, other, 1, 16) },
			Futex{Word: base + 0x100, Val: wordWaiters | other},
			Lock{Addr: base + 0x100, Kind: kind.LockMutex, Type: "robust", Impl: "glibc"}},
		{"rwlock of readers", "amd64", Glibc, func(m *image) { m.put32(base+0x100, 3<<3, 0, 2, 3) },
			Futex{Word: base + 0x100 + 8, Op: opWaitBitset, Val: 2, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockRW, Type: "write", Impl: "glibc", Holder: Holder{Readers: 3}}},
		{"semaphore of musl 1.2.4", "arm64", Musl, func(m *image) { m.put32(base+0x100, wordWaiters, 2, 128) },
			Futex{Word: base + 0x100, Val: wordWaiters, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockSemaphore, Impl: "musl"}},
		{"rwlock of musl", "amd64", Musl, func(m *image) { m.put32(base+0x100, 0xffffffff, 1, 0) },
			Futex{Word: base + 0x100, Val: 0xffffffff, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockRW, Impl: "musl"}},
		{"arena before 2.27", "amd64", Glibc, func(m *image) {
			m.put32(base+0x100, 2)
			for i := range uint64(127) {
				self := base + 0x100 + 104 + i*16 - 16
				m.put64(self+16, self)
				m.put64(self+24, self)
			}
		}, Futex{Word: base + 0x100, Val: 2, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockLibc, Type: ArenaType, Impl: "glibc"}},
		{"libgomp's barrier", "amd64", Glibc, func(m *image) { m.put32(base+0x100, 4, 24); m.put32(base+0x140, 3, 4) },
			Futex{Word: base + 0x104, Val: 24, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockBarrier, Impl: gomp}},
		{"libgomp's barrier at the end of a region, with tasks", "arm64", Musl, func(m *image) { m.put32(base+0x100, 4, 27); m.put32(base+0x140, 4, 1) },
			Futex{Word: base + 0x104, Val: 24, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockBarrier, Impl: gomp}},
		{"libgomp's pool", "amd64", AnyLibc, func(m *image) {
			m.put32(base+0xc0, base+0x1000, 0, 5, 4)
			m.put32(base+0x100, 4, 24)
			m.put32(base+0x140, 1, 4)
		}, Futex{Word: base + 0x104, Val: 24, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockIdle, Impl: gomp}},
		{"libgomp's barrier, if it were one", "amd64", Glibc, func(m *image) { m.put32(base+0x100, 4, 24); m.put32(base+0x140, 4, 4) },
			Futex{Word: base + 0x104, Val: 24, Private: true},
			Lock{Addr: base + 0x104, Kind: kind.LockUnknown}},
		{"libgomp's mutex", "amd64", Glibc, func(m *image) { m.put32(base+0x100, gompContended) },
			Futex{Word: base + 0x100, Val: gompContended, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockMutex, Impl: gomp}},
		{"libgomp's semaphore", "amd64", Glibc, func(m *image) { m.put32(base+0x100, gompSleepers) },
			Futex{Word: base + 0x100, Val: gompSleepers, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockSemaphore, Impl: gomp}},
		{"zeros", "amd64", AnyLibc, func(m *image) {}, Futex{Word: base + 0x100, Private: true},
			Lock{Addr: base + 0x100, Kind: kind.LockUnknown}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, target := fixture(c.arch, c.libc)
			c.lay(m)
			l, err := Recognise(target, &Wait{Futex: c.futex, NSTID: mine, SP: stackAt})
			if err != nil {
				t.Fatal(err)
			}
			if l.Addr != c.want.Addr || l.Kind != c.want.Kind || l.Type != c.want.Type || l.Impl != c.want.Impl || l.Mutex != c.want.Mutex ||
				l.Holder.TID != c.want.Holder.TID || l.Holder.Readers != c.want.Holder.Readers {
				t.Errorf("%+v, want %+v", l, c.want)
			}
			if (l.Holder.TID == 0) == (l.Holder.Why == "") || (l.Holder.TID != 0) != (l.Holder.By != 0) {
				t.Errorf("holder %+v: either a TID and how it is known, or a reason", l.Holder)
			}
		})
	}
}

func TestRefresh(t *testing.T) {
	m, target := fixture("amd64", Glibc)
	m.put32(base+0x100, 2, 0, other, 1, 0)
	l, err := Recognise(target, &Wait{Futex: Futex{Word: base + 0x100, Val: 2, Private: true}})
	if err != nil || l.Holder.TID != other+1000 {
		t.Fatalf("%+v %v", l, err)
	}
	if changed, err := Refresh(target, &l); changed || err != nil {
		t.Errorf("%v %v", changed, err)
	}
	m.put32(base+0x108, mine)
	if changed, err := Refresh(target, &l); !changed || err != nil || l.Holder.TID != mine+1000 || l.Holder.By != event.KnownByWord {
		t.Errorf("%v %v %+v", changed, err, l)
	}
	m.put32(base+0x100, 0, 0, 0)
	if changed, err := Refresh(target, &l); !changed || err != nil || l.Holder.TID != 0 || l.Holder.Why == "" {
		t.Errorf("%v %v %+v", changed, err, l)
	}
	old := l
	m.b = nil
	if changed, err := Refresh(target, &l); changed || err == nil || l != old {
		t.Errorf("%v %v %+v", changed, err, l)
	}
}

func TestUnreadableWord(t *testing.T) {
	_, target := fixture("amd64", AnyLibc)
	l, err := Recognise(target, &Wait{Futex: Futex{Word: 8}, Names: []string{"pthread_mutex_lock"}})
	if err == nil || l.Kind != kind.LockMutex || l.Basis != ByFunction || l.Holder.TID != 0 || !strings.Contains(l.Holder.Why, "0x8") {
		t.Errorf("%+v %v", l, err)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		names string
		kind  kind.Lock
		typ   string
	}{
		{"__futex_abstimed_wait_common64 __GI___futex_abstimed_wait_cancelable64 ___pthread_cond_wait std::condition_variable::wait", kind.LockCond, ""},
		{"__lll_lock_wait ___pthread_mutex_lock cache_get main", kind.LockMutex, ""},
		{"__lll_lock_wait_private malloc f main", kind.LockLibc, ""},
		{"futex_wait lll_mutex_lock_optimized pthread_mutex_lock@@GLIBC_2.2.5", kind.LockMutex, ""},
		{"__pthread_rwlock_wrlock_full64", kind.LockRW, "write"},
		{"__new_sem_wait_slow64.constprop.0", kind.LockSemaphore, ""},
		{"__timedwait_cp sem_timedwait sem_wait", kind.LockSemaphore, ""},
		{"syscall <std::sys::sync::mutex::futex::Mutex>::lock_contended app::main", kind.LockMutex, ""},
		{"syscall std::sys::unix::locks::futex_mutex::Mutex::lock_contended", kind.LockMutex, ""},
		{"std::sys_common::backtrace std::thread::park", kind.LockPark, ""},
		{"syscall <parking_lot::raw_mutex::RawMutex>::lock_slow", kind.LockPark, "mutex"},
		{"runtime.futex.abi0 runtime.futexsleep runtime.lock2", kind.LockGoRuntime, ""},
		{"runtime.futex.abi0 runtime.futexsleep runtime.notesleep runtime.mPark runtime.stoplockedm runtime.schedule", kind.LockGoRuntime, ""},
		{"runtime.futex runtime.futexsleep runtime.notesleep runtime.mPark runtime.stopm runtime.findRunnable", kind.LockIdle, ""},
		{"runtime.futex runtime.futexsleep runtime.notesleep runtime.templateThread", kind.LockIdle, ""},
		{"__pthread_mutex_unlock_usercnt f", "", ""},
		{"syscall std::__atomic_futex_unsigned_base::_M_futex_wait_until std::__basic_future<int>::_M_get_result", kind.LockEvent, "future"},
		{"syscall std::__detail::__platform_wait<int> std::__atomic_wait_address<int> std::latch::wait", kind.LockEvent, "latch"},
		{"syscall std::__1::__libcpp_atomic_wait std::__1::latch::wait[abi:v160006]() f", kind.LockEvent, "latch"},
		{"syscall std::__atomic_wait_address_v<long,std::__atomic_base<long>::wait()::{lambda()#1}> std::__atomic_base<long>::wait on_value", kind.LockPark, "atomic"},
		{"syscall std::__detail::__platform_wait<int> std::__tree_barrier<std::__empty_completion>::wait", kind.LockBarrier, ""},
		{"syscall std::__atomic_semaphore::_M_acquire std::counting_semaphore<8l>::acquire", kind.LockSemaphore, ""},
		{"syscall libglib-2.0.so.0.7400.6+0x8a1d0 g_mutex_lock f", kind.LockMutex, ""},
		{"syscall g_cond_wait g_async_queue_pop", kind.LockCond, ""},
		{"std::atomic<int>::store main", "", ""},
		{"read main", "", ""},
		{strings.Repeat("f ", maxNames) + "pthread_join", "", ""},
	} {
		if h := hint(strings.Fields(c.names)); h.kind != c.kind || h.typ != c.typ {
			t.Errorf("%s: %+v", c.names, h)
		}
	}
}

// A runtime's thread that waits for work is idle; one that waits in the middle of its work is not.
func TestIdlers(t *testing.T) {
	sem, cond := "__futex_abstimed_wait_common __new_sem_wait_slow64 ", "__futex_abstimed_wait_common __pthread_cond_wait pthread_cond_wait@@GLIBC_2.3.2 "
	for _, c := range []struct {
		names string
		kind  kind.Lock
	}{
		{sem + "PosixSemaphore::wait GangWorker::loop GangWorker::run Thread::call_run", kind.LockIdle},
		{sem + "PosixSemaphore::wait WorkerThread::run Thread::call_run", kind.LockIdle},
		{sem + "PosixSemaphore::wait WaitBarrier::wait G1Task::work WorkerThread::run", kind.LockSemaphore},
		{cond + "PlatformMonitor::wait Monitor::wait_without_safepoint_check WatcherThread::sleep WatcherThread::run", kind.LockIdle},
		{cond + "PlatformMonitor::wait Monitor::wait_without_safepoint_check SuspendibleThreadSet::yield G1ConcurrentMarkThread::run_service", kind.LockCond},
		{cond + "os::PlatformMonitor::wait Monitor::wait_without_safepoint_check JVM_WaitForReferencePendingList", kind.LockIdle},
		{"__lll_lock_wait pthread_mutex_lock CompileQueue::get", kind.LockMutex},
		{sem + "uv_sem_wait node::inspector::(anonymous+namespace)::StartIoThreadMain", kind.LockIdle},
		{cond + "uv_cond_wait node::(anonymous+namespace)::PlatformWorkerThread start_thread", kind.LockIdle},
		{cond + "uv_cond_wait worker start_thread", kind.LockIdle},
		{cond + "worker start_thread", kind.LockCond},
		{cond + "uv_cond_wait somebody worker start_thread", kind.LockCond},
		{"syscall LinuxWaitBarrier::wait SafepointSynchronize::block", kind.LockSafepoint},
	} {
		names := strings.Fields(c.names)
		for i := range names {
			names[i] = strings.ReplaceAll(names[i], "+", " ")
		}
		if h := hint(names); h.kind != c.kind || h.kind == kind.LockIdle && h.note == "" {
			t.Errorf("%s: %+v", c.names, h)
		}
	}
	for _, n := range []string{"_ZN10GangWorker4loopEv", "_ZN2os11signal_waitEv", "_ZN4node9inspector12_GLOBAL__N_117StartIoThreadMainEPv", "JVM_WaitForReferencePendingList",
		"_ZN16LinuxWaitBarrier4waitEi", "_ZNKSt5latch4waitEv", "_ZNSt28__atomic_futex_unsigned_base19_M_futex_wait_untilEPjjbNSt6chrono8durationIlSt5ratioILl1ELl1EEEENS2_IlS3_ILl1ELl1000000000EEEE",
		"_ZN15PlatformMonitor4waitEm", "_ZN2os15PlatformMonitor4waitEl"} {
		if !MayTell([]byte(n)) {
			t.Errorf("%s does not tell", n)
		}
	}
	if MayTell([]byte("_ZN7Monitor4waitEl")) {
		t.Error("each name may tell")
	}
}

// MayTell is held against a plain search, for names of pieces like theirs.
func TestMayTell(t *testing.T) {
	var pieces []string
	for _, p := range tellingParts {
		for n := 1; n <= len(p); n++ {
			pieces = append(pieces, p[:n], p[len(p)-n:])
		}
	}
	rnd, tells := rand.New(rand.NewPCG(1, 2)), 0
	for range 20000 {
		name := "_Z"
		for range 1 + rnd.IntN(5) {
			name += pieces[rnd.IntN(len(pieces))]
		}
		want := slices.ContainsFunc(tellingParts, func(p string) bool { return strings.Contains(name, p) })
		if got := MayTell([]byte(name)); got != want {
			t.Fatalf("%s: %v, want %v", name, got, want)
		}
		if want {
			tells++
		}
	}
	if tells < 2000 || tells > 18000 {
		t.Errorf("%d of 20000 names tell", tells)
	}
}

func TestParseFutex(t *testing.T) {
	f := ParseFutex(&[6]uint64{0x10, opWaitBitset | flagPrivate | flagRealtime, 7, 0x20})
	if f != (Futex{Word: 0x10, Op: opWaitBitset, Val: 7, Private: true, Timeout: 0x20, Clock: Realtime, Words: 1}) || !f.Wait() || f.PI() {
		t.Errorf("%+v", f)
	}
	if f := ParseFutex(&[6]uint64{0x10, 1 | flagPrivate, 7, 0x20}); f.Wait() || f.Timeout != 0 {
		t.Errorf("a waker: %+v", f)
	}
	m, _ := fixture("amd64", AnyLibc)
	m.put64(base, 9)
	m.put64(base+8, 0x77)
	m.put32(base+16, flag2Private|2)
	if f, err := ParseFutexWaitv(m, &[6]uint64{base, 2, 0, 0x20, 1}); err != nil || f.Word != 0x77 || f.Val != 9 || !f.Private || f.Clock != Monotonic || f.Words != 2 {
		t.Errorf("%+v %v", f, err)
	}
	if _, err := ParseFutexWaitv(m, &[6]uint64{1, 2}); err == nil {
		t.Error("no error")
	}
}

// Any memory must give an answer, no panic, and no holder without a thread.
func FuzzRecognise(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, other, 0, 0, 0, 1, 0, 0, 0}, uint32(2), byte(opWait), uint16(0), true, "pthread_mutex_lock")
	f.Add([]byte{0, 0, 0, 0x80, 1, 0, 0, 0, 128}, uint32(wordWaiters), byte(opWait), uint16(0), true, "")
	f.Add([]byte{24, 0, 0, 0, 0, 0, 0, 0, 2}, uint32(2), byte(opWaitBitset), uint16(8), true, "__pthread_rwlock_wrlock")
	m, _ := fixture("amd64", AnyLibc)
	word, _, _ := goImage(m, 208, 96, true)
	f.Add(m.b[:0xb00], uint32(0), byte(opWait|16), uint16(word-base), true, "runtime.chanrecv")
	f.Add(m.b[:0xb00], uint32(0), byte(opWait|16), uint16(word-base), true, "sync.(*Mutex).lockSlow")
	f.Fuzz(func(t *testing.T, b []byte, val uint32, op byte, at uint16, private bool, name string) {
		for _, arch := range []string{"amd64", "arm64"} {
			for _, c := range []Libc{AnyLibc, Glibc, Musl} {
				_, target := fixture(arch, c)
				target.Mem = &image{base, slices.Clone(b)}
				w := Wait{Futex: Futex{Word: base + uint64(at), Val: val, Op: int(op & 15), Private: private}, SP: base, NSTID: mine,
					Go: op&16 != 0, Function: func(uint64) string { return name }}
				if name != "" {
					w.Names = []string{name}
				}
				l, _ := Recognise(target, &w)
				if h := l.Holder; h.TID != 0 && h.TID != mine+1000 && h.TID != other+1000 || (h.TID == 0) == (h.Why == "") {
					t.Errorf("%+v", l)
				}
				Refresh(target, &l)
			}
		}
	})
}

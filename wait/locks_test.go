package wait_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// A lockCase is a kind of lock and the expected result. Each case is tried with and
// without the function names of the stack.
type lockCase struct {
	kind   string
	want   kind.Lock
	typ    string // glibc's and musl's
	musl   string // "-": musl lacks it; otherwise musl's type, if it differs: "=" for none
	holder bool   // glibc keeps the holder
	onMusl bool   // musl does
	name   string // a function on the stack
	by     event.KnownBy
	addr   bool // musl: without names the address of the lock is unknown
}

var lockCases = []lockCase{
	{kind: "normal", want: kind.LockMutex, holder: true, name: "___pthread_mutex_lock"},
	{kind: "timed", want: kind.LockMutex, holder: true, name: "pthread_mutex_timedlock"},
	{kind: "recursive", want: kind.LockMutex, typ: "recursive", holder: true, onMusl: true, name: "pthread_mutex_lock"},
	{kind: "errorcheck", want: kind.LockMutex, typ: "errorcheck", holder: true, onMusl: true, name: "pthread_mutex_lock"},
	{kind: "robust", want: kind.LockMutex, typ: "robust", holder: true, onMusl: true, name: "__pthread_mutex_lock_full"},
	{kind: "pi", want: kind.LockMutex, typ: "PI", holder: true, onMusl: true, name: "pthread_mutex_lock", by: event.KnownByKernel},
	{kind: "robust-pi", want: kind.LockMutex, typ: "robust PI", holder: true, onMusl: true, name: "pthread_mutex_lock", by: event.KnownByKernel},
	{kind: "recursive-pi", want: kind.LockMutex, typ: "recursive PI", holder: true, onMusl: true, name: "pthread_mutex_lock", by: event.KnownByKernel},
	{kind: "shared-", want: kind.LockMutex, holder: true, name: "pthread_mutex_lock"},
	{kind: "shared-recursive", want: kind.LockMutex, typ: "recursive", holder: true, onMusl: true, name: "pthread_mutex_lock"},
	{kind: "shared-robust", want: kind.LockMutex, typ: "robust", holder: true, onMusl: true, name: "pthread_mutex_lock"},
	{kind: "rwlock-write", want: kind.LockRW, typ: "read", musl: "=", holder: true, name: "___pthread_rwlock_rdlock"},
	{kind: "rwlock-read", want: kind.LockRW, typ: "write", name: "pthread_rwlock_wrlock"},
	{kind: "cond", want: kind.LockCond, name: "___pthread_cond_wait"},
	{kind: "cond-timed", want: kind.LockCond, name: "pthread_cond_timedwait"},
	{kind: "sem", want: kind.LockSemaphore, name: "__new_sem_wait_slow64.constprop.0"},
	{kind: "barrier", want: kind.LockBarrier, name: "pthread_barrier_wait", addr: true},
	{kind: "join", want: kind.LockJoin, holder: true, onMusl: true, name: "__pthread_clockjoin_ex"},
	{kind: "stdio", want: kind.LockStdio, holder: true, name: "flockfile", musl: "-"},
	{kind: "arena", want: kind.LockLibc, typ: lock.ArenaType, name: "__lll_lock_wait_private", musl: "-"},
}

func TestLocks(t *testing.T) {
	for _, how := range []string{"gcc", "static", "musl-gcc", "musl-static"} {
		for _, c := range lockCases {
			musl := strings.HasPrefix(how, "musl")
			if musl && c.musl == "-" {
				continue
			}
			t.Run(how+"/"+c.kind, func(t *testing.T) {
				p := testprog.Start(t, build(t, how, "pthread.c"), c.kind)
				var s said
				say(t, p, &s)
				v := look(t, p.PID)
				for _, names := range [][]string{nil, {"__syscall_cancel", c.name, "waiter_main", "start_thread"}} {
					var th wait.Thread
					i := v.resolve(&th, s.Waiters[0], names, "futex")
					checkLock(t, &c, &s, i, musl, names != nil)
				}
				p.Go()
				if st := p.Wait(); !st.Success() {
					t.Errorf("ended with %v", st)
				}
			})
		}
	}
}

func checkLock(t *testing.T, c *lockCase, s *said, i *wait.Info, musl, named bool) {
	t.Helper()
	l := i.Lock
	if i.Kind != kind.WaitLock || l == nil || i.Call != "futex" {
		t.Fatalf("%+v", i)
	}
	typ := c.typ
	if musl && c.musl == "=" && !named {
		typ = ""
	}
	if musl && c.addr && !named && l.Kind == kind.LockUnknown {
		return // nothing near the word identifies the lock, and the result says so
	}
	if l.Kind != c.want || l.Type != typ {
		t.Errorf("named %v: %s %q, want %s %q (%+v)", named, l.Kind, l.Type, c.want, typ, l)
	}
	if a := hexa(t, s.Lock); a != 0 && l.Addr != a && !(musl && c.addr) {
		t.Errorf("named %v: lock at %#x, want %#x (%+v)", named, l.Addr, a, l)
	}
	if m := hexa(t, s.Mutex); m != 0 && l.Mutex != m && !musl {
		t.Errorf("mutex %#x, want %#x", l.Mutex, m)
	}
	if named && l.Basis != lock.ByFunction && l.Basis != lock.ByCall && c.typ != lock.ArenaType {
		t.Errorf("basis %q with names", l.Basis)
	}
	if shared := strings.HasPrefix(c.kind, "shared-"); l.Shared != shared || shared != (l.Key.PID == 0) {
		t.Errorf("shared %v, key %+v", l.Shared, l.Key)
	}
	h := l.Holder
	want := c.holder
	if musl {
		want = c.onMusl
	}
	by := c.by
	if by == 0 {
		by = event.KnownByWord
	}
	switch {
	case want && (h.TID != s.Holder || h.By != by || h.Why != ""):
		t.Errorf("named %v: holder %+v, want %d by %d", named, h, s.Holder, by)
	case !want && (h.TID != 0 || h.Why == ""):
		t.Errorf("named %v: holder %+v, want none, with a reason", named, h)
	}
	if i.Why != "" {
		t.Errorf("why %q", i.Why)
	}
	if timed := c.kind == "timed" || c.kind == "cond-timed"; timed != (i.Timeout > 0) {
		t.Errorf("timeout %v", i.Timeout)
	}
}

func TestFileLocks(t *testing.T) {
	others := 0
	for _, c := range []struct {
		kind, call, typ string
		holder          bool
	}{{"flock", "flock", "exclusive flock", true}, {"fcntl", "fcntl", "write fcntl", true},
		{"ofd", "fcntl", "write open file description", false}} {
		t.Run(c.kind, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.lock")
			p := testprog.Start(t, build(t, "gcc", "pthread.c"), c.kind, "1", path)
			var s said
			say(t, p, &s)
			v := look(t, p.PID)
			var th wait.Thread
			i := v.resolve(&th, s.Waiters[0], nil, c.call)
			l := i.Lock
			if i.Kind != kind.WaitLock || l == nil || l.Kind != kind.LockFile || l.Type != c.typ || l.Path != path || i.File != path {
				t.Fatalf("%+v %+v", i, l)
			}
			if c.holder && (l.Holder.TID != s.Holder || l.Holder.By != event.KnownByKernel) || !c.holder && (l.Holder.TID != 0 || l.Holder.Why == "") {
				t.Errorf("holder %+v, want %d", l.Holder, s.Holder)
			}
			other := "" // the target's own threads need no such name
			if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", p.PID, s.Holder)); err != nil && c.holder {
				comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.Holder))
				if err != nil {
					t.Fatal(err)
				}
				other = fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(comm)), s.Holder)
			}
			if others += len(other); l.Other != other {
				t.Errorf("the holder is %q, want %q", l.Other, other)
			}
			if c.call == "fcntl" && !strings.Contains(i.Args, "bytes 10 to 29") {
				t.Errorf("args %q", i.Args)
			}
			p.Go()
			p.Wait()
		})
	}
	if others == 0 {
		t.Error("no holder was another process: does this test still test it?")
	}
}

func TestOnce(t *testing.T) {
	for _, how := range []string{"gcc", "musl-gcc"} {
		p := testprog.Start(t, build(t, how, "pthread.c"), "once")
		var s said
		say(t, p, &s)
		v := look(t, p.PID)
		var th wait.Thread
		// Only a function name identifies this lock.
		if i := v.resolve(&th, s.Waiters[0], nil, "futex"); i.Lock.Kind != kind.LockUnknown || i.Lock.Holder.TID != 0 || i.Lock.Addr != hexa(t, s.Lock) {
			t.Errorf("%s: %+v", how, i.Lock)
		}
		th = wait.Thread{}
		i := v.resolve(&th, s.Waiters[0], []string{"__pthread_once_slow.isra.0", "___pthread_once"}, "futex")
		if i.Lock.Kind != kind.LockOnce || i.Lock.Addr != hexa(t, s.Lock) || i.Lock.Holder.TID != 0 || i.Lock.Holder.Why == "" {
			t.Errorf("%s: %+v", how, i.Lock)
		}
		p.Kill()
	}
}

func TestCpp(t *testing.T) {
	for _, c := range []struct {
		kind   string
		want   kind.Lock
		typ    string
		holder bool
	}{{"mutex", kind.LockMutex, "", true}, {"recursive_mutex", kind.LockMutex, "recursive", true}, {"timed_mutex", kind.LockMutex, "", true},
		{"shared_mutex-read", kind.LockRW, "read", true}, {"shared_mutex-write", kind.LockRW, "write", true},
		{"condition_variable", kind.LockCond, "", false}} {
		t.Run(c.kind, func(t *testing.T) {
			p := testprog.Start(t, build(t, "g++", "cpp.cc"), c.kind)
			var s said
			say(t, p, &s)
			v := look(t, p.PID)
			var th wait.Thread
			l := v.resolve(&th, s.Waiters[0], nil, "futex").Lock
			if l.Kind != c.want || l.Type != c.typ || l.Addr != hexa(t, s.Lock) || c.holder && l.Holder.TID != s.Holder {
				t.Errorf("%+v, want %+v", l, s)
			}
			p.Go()
			p.Wait()
		})
	}
}

func TestRust(t *testing.T) {
	for _, c := range []struct {
		kind  string
		names []string
		want  kind.Lock
		typ   string
	}{
		{"mutex", nil, kind.LockMutex, ""},
		{"mutex", []string{"syscall", "std::sys::pal::unix::futex::futex_wait", "std::sys::sync::mutex::futex::Mutex::lock_contended"}, kind.LockMutex, ""},
		{"rwlock-read", []string{"syscall", "<std::sys::sync::rwlock::futex::RwLock>::read_contended"}, kind.LockRW, "read"},
		{"rwlock-write", []string{"syscall", "<std::sys::sync::rwlock::futex::RwLock>::write_contended"}, kind.LockRW, "write"},
		{"condvar", []string{"syscall", "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout"}, kind.LockCond, ""},
		{"park", nil, kind.LockPark, ""},
		{"park", []string{"syscall", "std::thread::park"}, kind.LockPark, ""},
		{"join", nil, kind.LockJoin, ""},
	} {
		t.Run(c.kind, func(t *testing.T) {
			p := testprog.Start(t, build(t, "rustc", "rust.rs"), c.kind)
			var s said
			say(t, p, &s)
			v := look(t, p.PID)
			var th wait.Thread
			l := v.resolve(&th, s.Waiters[0], c.names, "futex").Lock
			if l.Kind != c.want || l.Type != c.typ {
				t.Errorf("%+v, want %+v", l, s)
			}
			if a := hexa(t, s.Lock); a != 0 && (l.Addr < a || l.Addr > a+8) {
				t.Errorf("at %#x, want %#x", l.Addr, a)
			}
			switch {
			case c.kind == "join" && l.Holder.TID != s.Holder, c.kind != "join" && (l.Holder.TID != 0 || l.Holder.Why == ""):
				t.Errorf("holder %+v", l.Holder)
			case c.names == nil && c.kind != "join" && l.Basis != lock.Likely:
				t.Errorf("basis %q: it is a guess", l.Basis)
			}
		})
	}
}

func TestGo(t *testing.T) {
	p := testprog.Start(t, build(t, "go", "gosync"))
	var s said
	say(t, p, &s)
	v := look(t, p.PID)
	for _, tid := range s.Waiters {
		var th wait.Thread
		var i *wait.Info
		for i == nil || i.Lock != nil && i.Lock.Kind == kind.LockGoScheduler { // its goroutine does not block yet
			th = wait.Thread{}
			i = v.resolveAs(&th, tid, func(l *wait.Look) { l.Frames = []stack.Frame{{Kind: stack.KindGo}} }, "futex")
		}
		if i.Lock == nil || i.Lock.Kind != kind.LockGoRuntime || i.Lock.Holder.TID != 0 || i.Lock.Holder.Why == "" {
			t.Errorf("%+v %+v", i, i.Lock)
		}
		// The names arrive after the thread has left the wait.
		late, bound := *i, *i
		lock1, lock2 := *i.Lock, *i.Lock
		lock1.Note, lock2.Note = "", ""
		late.Lock, bound.Lock, late.Args, bound.Args = &lock1, &lock2, lock1.String(), lock2.String()
		if late.Name([]string{"runtime.futex", "main.f"}) || late.Lock == nil {
			t.Errorf("by names that say nothing: %+v", late)
		}
		if !late.Name([]string{"runtime.futex", "runtime.notesleep", "runtime.stopm"}) || late.Kind != kind.WaitIdle || late.Lock != nil ||
			late.Args != "idle: no goroutine to run" {
			t.Errorf("an idle thread: %+v", late)
		}
		if !bound.Name([]string{"runtime.futex", "runtime.lock2"}) || bound.Kind != kind.WaitLock || bound.Lock.Note != "a lock of the runtime" ||
			bound.Args != bound.Lock.String() || bound.Name([]string{"runtime.futex", "runtime.stopm"}) {
			t.Errorf("a lock of the runtime: %+v %+v", bound, bound.Lock)
		}
		th = wait.Thread{}
		i = v.resolve(&th, tid, []string{"runtime.futex.abi0", "runtime.futexsleep", "runtime.notesleep", "runtime.mPark", "runtime.stoplockedm"}, "futex")
		if i.Lock.Kind != kind.LockGoRuntime || !strings.Contains(i.Lock.Note, "bound to this thread") {
			t.Errorf("%+v", i.Lock)
		}
	}
}

// changing is the memory of a process in which the rwlock at addr has no holder yet, while on.
type changing struct {
	lock.Memory
	addr uint64
	on   bool
}

func (m *changing) ReadAt(b []byte, addr uint64) (int, error) {
	n, err := m.Memory.ReadAt(b, addr)
	if m.on {
		for at := m.addr + 24; at < m.addr+28; at++ { // __cur_writer
			if at >= addr && at < addr+uint64(n) {
				b[at-addr] = 0
			}
		}
	}
	return n, err
}

// A lock that was handed on to a thread that lacks a CPU identifies nothing until that thread runs.
// However many samples this takes, the waiters name the lock and its holder soon after it.
func TestHandedOn(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "pthread.c"), "rwlock-write")
	var s said
	say(t, p, &s)
	mem := &changing{addr: hexa(t, s.Lock), on: true}
	v := lookAs(t, p.PID, func(c *wait.Config) { mem.Memory = c.Mem; c.Mem = mem })
	var th wait.Thread
	info := v.resolve(&th, s.Waiters[0], nil, "futex")
	for range 1000 {
		v.r.Refresh(&th)
	}
	if th.Proven() || info.Lock == nil || info.Lock.Holder.TID != 0 {
		t.Fatalf("while it changes hands: %+v", info.Lock)
	}
	mem.on = false
	for range wait.LaterAgain {
		v.r.Refresh(&th)
	}
	if l := th.Info().Lock; !th.Proven() || l.Addr != mem.addr || l.Kind != kind.LockRW || l.Holder.TID != s.Holder {
		t.Errorf("after it: %+v", l)
	}
}

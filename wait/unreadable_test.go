package wait_test

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/linux/procdir"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
)

// The memory that a call's arguments point to may be unmapped while the thread still
// sleeps in the call: the result must give the call and the reason for the rest.
func TestMemoryIsGone(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := testprog.Start(t, build(t, "gcc", "gone.c"), fifo)
	var s named
	say(t, p, &s)
	v := look(t, p.PID)
	for _, c := range s.Threads {
		want := map[string]struct {
			calls []string
			kind  kind.Wait
			why   string
		}{
			"futex": {[]string{"futex"}, kind.WaitLock, "the lock word at 0x"},
			"open":  {[]string{"openat"}, kind.WaitCall, "the path at 0x"},
			"poll":  {[]string{"ppoll"}, kind.WaitPoll, "the descriptors at 0x"},
			"sleep": {[]string{"clock_nanosleep"}, kind.WaitSleep, "the timeout at 0x"},
		}[c.Name]
		var th wait.Thread
		i := v.resolve(&th, c.TID, nil, want.calls...)
		if i.Kind != want.kind || i.Call != want.calls[0] || !strings.HasPrefix(i.Why, want.why) || !strings.Contains(i.Why, "cannot be read") {
			t.Errorf("%s: %+v", c.Name, i)
		}
		if c.Name == "futex" && (i.Lock == nil || i.Lock.Addr == 0 || i.Lock.Holder.TID != 0 || i.Lock.Holder.Why == "") {
			t.Errorf("%+v", i.Lock)
		}
	}
}

// denied is unreadable memory.
type denied struct{}

func (denied) ReadAt([]byte, uint64) (int, error) { return 0, syscall.EPERM }

// Without permission to read memory, and with an empty /proc, the result must give the
// call and its arguments, and the reason for the rest.
func TestNoRights(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "pthread.c"), "recursive")
	var s said
	say(t, p, &s)
	v := look(t, p.PID)
	l := v.blocked(s.Waiters[0], "futex")
	empty, err := procdir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	r := wait.New(wait.Config{PID: p.PID, Arch: runtime.GOARCH, Mem: denied{}, Proc: empty, Sys: empty,
		Monotonic: func() int64 { return int64(target.Now()) }, Realtime: func() int64 { return 0 }})
	var th wait.Thread
	i, res := r.Resolve(&th, &l)
	if res != wait.Changed || i.Kind != kind.WaitLock || i.Lock == nil || i.Lock.Addr != hexa(t, s.Lock) || i.Lock.Holder.TID != 0 ||
		!strings.Contains(i.Why, "operation not permitted") || i.Lock.Holder.Why == "" {
		t.Errorf("%v %+v %+v", res, i, i.Lock)
	}
	for name, call := range map[string]stack.Call{
		"read":  {Nr: number(t, "read"), Args: [6]uint64{0, 16, 16}},
		"wait4": {Nr: number(t, "wait4"), Args: [6]uint64{1}},
		"flock": {Nr: number(t, "flock"), Args: [6]uint64{0, 2}},
	} {
		look := l
		look.Call, look.Still = call, nil
		th = wait.Thread{}
		i, res := r.Resolve(&th, &look)
		if res != wait.Changed || i.Call != name || i.Why == "" && (i.Lock == nil || i.Lock.Holder.Why == "") {
			t.Errorf("%s: %v %+v", name, res, i)
		}
	}
}

// A program in its own PID namespace has lock words with TIDs that mean other threads
// outside: the holder must be translated to our TID.
func TestOtherNamespace(t *testing.T) {
	testprog.Need(t, "root")
	for _, kind := range []string{"recursive", "pi", "robust", "join", "shared-recursive"} {
		t.Run(kind, func(t *testing.T) {
			cmd := exec.Command(build(t, "gcc", "pthread.c"), kind)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
			p := testprog.StartCmd(t, cmd)
			var s said
			say(t, p, &s)
			proc, err := target.Open(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer proc.Close()
			all, err := proc.Threads(nil)
			if err != nil {
				t.Fatal(err)
			}
			ours := map[stack.TID]stack.TID{}
			for _, tid := range all {
				in, err := proc.ThreadInfo(tid)
				if err != nil {
					t.Fatal(err)
				}
				ours[stack.TID(in.NSTID)] = tid
			}
			waiter, ok := ours[s.Waiters[0]]
			if !ok || waiter == s.Waiters[0] {
				t.Fatalf("thread %d of %v", s.Waiters[0], ours)
			}
			v := look(t, p.PID)
			var th wait.Thread
			i := v.resolve(&th, waiter, nil, "futex")
			if i.Lock == nil {
				t.Fatalf("%+v", i)
			}
			h := i.Lock.Holder
			if h.NSTID != int32(s.Holder) || h.TID == 0 || h.TID == s.Holder || h.By != event.KnownByWord && h.By != event.KnownByKernel {
				t.Errorf("holder %+v, the program says %d", h, s.Holder)
			}
			if tid, own := ours[s.Holder]; own != !strings.HasPrefix(kind, "shared-") || own && h.TID != tid {
				t.Errorf("holder %+v, want %d", h, tid)
			}
		})
	}
}

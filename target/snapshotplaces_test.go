package target

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// A process in a PID namespace knows its copy by another number.
func TestSnapshotNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		need(t, "root", "makes namespaces")
	}
	for _, flags := range [][]string{{"--pid", "--fork"}, {"--pid", "--fork", "--mount", "--mount-proc"}, {"--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			outer := start(t, "/usr/bin/unshare", append(flags, "--kill-child", build(t, "../testdata/targets/c/copied.c"))...)
			outer.line()
			outer.line()
			inner := children(t, outer.pid())
			if len(inner) != 1 {
				t.Fatalf("children of unshare: %+v", inner)
			}
			p := openProcess(t, inner[0].PID)
			if !p.Facts().Container || p.NSpid() != 1 {
				t.Fatalf("not in a namespace: %+v", p.Facts())
			}
			for range 3 {
				s := snapshot(t, p, SnapshotOptions{})
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range children(t, p.PID()) {
				if c.State == 'Z' && c.Comm == "copied" {
					eventually(t, "the program takes the status of its own child", func() bool {
						_, err := os.Stat(fmt.Sprintf("/proc/%d", c.PID))
						return err != nil
					})
				}
			}
			untraced(t, p.PID())
			whole(t, outer)
		})
	}
}

// In a namespace of its own, a copy's number may be that of the call that waits for it, wait4.
func TestSnapshotNumberedAsCall(t *testing.T) {
	if os.Geteuid() != 0 {
		need(t, "root", "makes namespaces")
	}
	outer := start(t, "/usr/bin/unshare", "--pid", "--fork", "--kill-child", "sleep", "100")
	eventually(t, "the program runs", func() bool {
		c := children(t, outer.pid())
		return len(c) == 1 && c[0].Comm == "sleep" && state(t, c[0].PID, c[0].PID) == 'S'
	})
	p := openProcess(t, children(t, outer.pid())[0].PID)
	met := false
	for range unix.SYS_WAIT4 + 10 {
		s := snapshot(t, p, SnapshotOptions{})
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
		if err != nil {
			t.Fatal(err)
		}
		st, err := ParseStatus(b)
		if err != nil {
			t.Fatal(err)
		}
		met = met || st.NSpid[len(st.NSpid)-1] == unix.SYS_WAIT4
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !met {
		t.Error("no copy had that number")
	}
	eventually(t, "the program sleeps again", func() bool { return state(t, p.PID(), p.PID()) == 'S' }) // it may lack a CPU
	if c := children(t, p.PID()); len(c) > 0 {
		t.Errorf("its children are %+v", c)
	}
}

// A process whose first thread has ended is copied by another one.
func TestSnapshotLeaderEnded(t *testing.T) {
	prog := start(t, build(t, "testdata/life.c"), "leader")
	p := openProcess(t, prog.pid())
	eventually(t, "the first thread has ended", func() bool { return state(t, prog.pid(), prog.pid()) == 'Z' })
	if err := snapshot(t, p, SnapshotOptions{}).Close(); err != nil {
		t.Fatal(err)
	}
	if c := children(t, prog.pid()); len(c) != 0 {
		t.Errorf("children are left: %+v", c)
	}
	prog.in.Close()
	prog.wait()
	if code := prog.cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit status %d, want 9", code)
	}
}

// A thread in vfork does not stop: no copy, and it is let go once it does.
func TestSnapshotVfork(t *testing.T) {
	prog := start(t, build(t, "testdata/life.c"), "vfork")
	prog.line()
	p := openProcess(t, prog.pid())
	if _, err := p.Snapshot(SnapshotOptions{StopFor: 20e6, GateFor: 50e6}); !errors.Is(err, ErrTimeout) {
		t.Errorf("a process with a thread in vfork: %v", err)
	}
	prog.tell("")
	if s := prog.line(); s != "back" {
		t.Error(s)
	}
	eventually(t, "no thread is traced", func() bool { return len(traced(t, prog.pid())) == 0 })
	if err := snapshot(t, p, SnapshotOptions{}).Close(); err != nil {
		t.Error(err)
	}
	prog.in.Close()
	if err := prog.wait(); err != nil {
		t.Error(err)
	}
}

// The registers of both machines for an injected call, and which calls are suited.
func TestInjectRegisters(t *testing.T) {
	args := [6]uint64{1, 2, 3, 4, 5, 6}
	var a [amdWords]uint64
	for i := range a {
		a[i] = 1000 + uint64(i)
	}
	injectAMD64(&a, 0x4000, 56, &args)
	for i, want := range map[int]uint64{amdRAX: 56, amdOrigRAX: ^uint64(0), amdRIP: 0x4000, 14: 1, 13: 2, 12: 3, amdR10: 4, 9: 5, 8: 6,
		amdRSP: 1000 + amdRSP, 0: 1000, 5: 1005} {
		if a[i] != want {
			t.Errorf("amd64: word %d is %d, want %d", i, a[i], want)
		}
	}
	var r [armWords]uint64
	for i := range r {
		r[i] = 1000 + uint64(i)
	}
	injectARM64(&r, 0x4000, 220, &args)
	for i, want := range map[int]uint64{0: 1, 5: 6, 6: 1006, 8: 220, 30: 1030, armSP: 1000 + armSP, armPC: 0x4000, 33: 1033} {
		if r[i] != want {
			t.Errorf("arm64: word %d is %d, want %d", i, r[i], want)
		}
	}

	a[amdRAX], a[amdOrigRAX], a[amdRIP] = ^uint64(516-1), 202, 0x5002
	if c, at, ok := blockedAMD64(&a); !ok || c.Nr != 202 || at != 0x5000 || c.Args[0] != 1 {
		t.Errorf("a futex cut short: %+v at %#x, %v", c, at, ok)
	}
	for _, rax := range []uint64{0, 7, ^uint64(11 - 1)} {
		if a[amdRAX] = rax; true {
			if c, _, ok := blockedAMD64(&a); ok {
				t.Errorf("a call that returned %d: %+v", int64(rax), c)
			}
		}
	}
	before := callBefore{call: stack.Call{Nr: 98, Args: [6]uint64{0x7000}}, pc: 0x6004, sp: 0x7fff0000}
	r[8], r[armPC], r[armSP] = 98, 0x6000, 0x7fff0000
	if c, at, ok := blockedARM64(&r, &before); !ok || c.Nr != 98 || at != 0x6000 {
		t.Errorf("arm64: a futex that is to be made again: %+v at %#x, %v", c, at, ok)
	}
	r[armPC] = 0x6004
	if c, _, ok := blockedARM64(&r, &before); ok {
		t.Errorf("arm64: a futex that has returned: %+v", c)
	}

	for _, c := range []struct {
		call stack.Call
		amd  int
		arm  int
	}{
		{stack.Call{Nr: 202}, suitFutex, suitNone},
		{stack.Call{Nr: 98}, suitNone, suitFutex},
		{stack.Call{Nr: 98, Args: [6]uint64{3: 1}}, suitNone, suitNone}, // with a timeout
		{stack.Call{Nr: 232}, suitBlock, suitNone},
		{stack.Call{Nr: 281, Args: [6]uint64{4: 1}}, suitNone, suitNone}, // with a signal mask
		{stack.Call{Nr: 130}, suitNone, suitNone},                        // rt_sigsuspend
		{stack.Call{Nr: 271}, suitNone, suitNone},                        // ppoll
	} {
		if s := suitAMD64(&c.call); s != c.amd {
			t.Errorf("amd64: call %+v is rated %d, want %d", c.call, s, c.amd)
		}
		if s := suitARM64(&c.call); s != c.arm {
			t.Errorf("arm64: call %+v is rated %d, want %d", c.call, s, c.arm)
		}
	}
}

// A thread of another process that got the number of one that ended is not used, and is let go.
func TestForeignThread(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	prog.line()
	other := start(t, build(t, "testdata/spin.c"), "1")
	tid := atoi(t, other.line())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k := newInjector(openProcess(t, prog.pid()))
	h := &held{tid: tid, before: noCall}
	if errno := seize(tid); errno != 0 {
		need(t, "ptrace", errno.Error())
	}
	k.threads, k.byTID[tid] = append(k.threads, h), h
	if !k.isForeign(h) {
		t.Fatal("it is taken for one of the process")
	}
	if !k.await(h, monotonic()+10e9) {
		t.Fatal("it does not stop")
	}
	if s, _ := k.suit(h); s != suitNone {
		t.Errorf("it is rated %d", s)
	}
	k.release()
	untraced(t, other.pid())
	if s := state(t, other.pid(), tid); s != 'R' && s != 'S' {
		t.Errorf("state %c", s)
	}
}

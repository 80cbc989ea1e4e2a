package target

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// copied starts the program that watches itself; counters is the address of its two.
func copied(t testing.TB, args ...string) (prog *testTarget, counters uint64) {
	t.Helper()
	prog = start(t, build(t, "../testdata/targets/c/copied.c"), args...)
	counters, err := strconv.ParseUint(strings.TrimPrefix(prog.line(), "counter 0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	if s := prog.line(); s != "ready" {
		t.Fatal(s)
	}
	return prog, counters
}

// whole ends the program and holds what it counted against 0.
func whole(t testing.TB, prog *testTarget) (counts map[string]int) {
	t.Helper()
	prog.in.Close()
	counts = map[string]int{}
	for s := prog.line(); s != "end"; s = prog.line() {
		name, v, _ := strings.Cut(s, " ")
		counts[name] = atoi(t, v)
		if counts[name] != 0 && !strings.HasPrefix(name, "n_") {
			t.Errorf("the copied process counted %s", s)
		}
	}
	prog.wait()
	if code := prog.cmd.ProcessState.ExitCode(); code != 17 {
		t.Errorf("exit status %d, want 17", code)
	}
	return counts
}

// children lists processes whose parent is pid, with their states.
func children(t testing.TB, pid int) (all []Stat) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			continue
		}
		if st, err := ParseStat(b); err == nil && st.PPID == pid {
			all = append(all, st)
		}
	}
	return all
}

// snapshot makes one, with patience for a busy machine.
func snapshot(t testing.TB, p *Process, o SnapshotOptions) *Snapshot {
	t.Helper()
	if o.StopFor == 0 {
		o.StopFor = 10e9
	}
	if o.GateFor == 0 {
		o.GateFor = 30e9
	}
	s, err := p.Snapshot(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A process that is copied again and again sees nothing of it, and each copy is of one
// moment.
func TestSnapshotUnseen(t *testing.T) {
	prog, at := copied(t, "16")
	p := openProcess(t, prog.pid())
	read := func(s *Snapshot) (a, b uint64) {
		var buf [16]byte
		if _, err := s.ReadAt(buf[:], int64(at)); err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint64(buf[:]), binary.LittleEndian.Uint64(buf[8:])
	}
	var last, most uint64
	n, tries := rounds(40, 1000), 0
	for i := range n {
		s, err := p.Snapshot(SnapshotOptions{StopFor: 10e9, GateFor: 30e9})
		if err != nil {
			if !p.Alive() {
				t.Fatalf("round %d: %v; the process has ended: %v, %q", i, err, prog.wait(), prog.err.String())
			}
			t.Fatalf("round %d: %v", i, err)
		}
		a, b := read(s)
		if a != b && a != b+1 || a < last {
			t.Fatalf("round %d: counters %d and %d, before %d: not of one moment", i, a, b, last)
		}
		if i%8 == 0 {
			eventually(t, "the process goes on", func() bool {
				var buf [8]byte
				if _, err := p.ReadAt(buf[:], at); err != nil {
					t.Fatal(err)
				}
				return binary.LittleEndian.Uint64(buf[:]) > a+1000
			})
			if a2, b2 := read(s); a2 != a || b2 != b {
				t.Fatalf("round %d: the copy changed: %d and %d, then %d and %d", i, a, b, a2, b2)
			}
		}
		last, most, tries = a, max(most, uint64(s.Frozen)), tries+s.Tries
		if len(s.Threads) < 17 || len(s.Maps()) == 0 {
			t.Errorf("round %d: %d threads, %d mappings", i, len(s.Threads), len(s.Maps()))
		}
		child := s.PID()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", child)); err == nil {
			t.Fatalf("round %d: the copy %d is still there", i, child)
		}
	}
	untraced(t, prog.pid())
	counts := whole(t, prog)
	for _, name := range []string{"n_rseq", "n_signals", "n_sockets", "n_threads", "n_spawns", "n_ticks", "n_calls", "n_waits", "n_regs"} {
		if counts[name] == 0 {
			t.Errorf("%s 0: this test does not test it", name)
		}
	}
	t.Logf("%d copies in %d tries, longest stop %d us; %v", n, tries, most/1000, counts)
}

// Calls that block go on to the same end, as under the sampler's stops.
func TestSnapshotCalls(t *testing.T) {
	prog, p, bs := startCalls(t)
	for range rounds(30, 300) {
		if err := snapshot(t, p, SnapshotOptions{}).Close(); err != nil {
			t.Fatal(err)
		}
	}
	untraced(t, prog.pid())
	verdict(t, prog, 0, func(string) bool { return len(bs) > 0 })
}

// The bytes that the kernel copied are those that the process wrote to.
func TestSnapshotCopied(t *testing.T) {
	prog, _ := copied(t, "64")
	s := snapshot(t, openProcess(t, prog.pid()), SnapshotOptions{})
	before, err := s.Copied()
	if err != nil {
		t.Fatal(err)
	}
	// To read does not copy.
	buf := make([]byte, 1<<20)
	for _, m := range s.Maps() {
		for at := m.Start; m.Write && m.Inode == 0 && at < m.End; at += uint64(len(buf)) {
			if _, err := s.ReadAt(buf[:min(uint64(len(buf)), m.End-at)], int64(at)); err != nil && !errors.Is(err, unix.EFAULT) {
				t.Fatal(err)
			}
		}
	}
	if n, err := s.Copied(); err != nil || n > before+8<<20 {
		t.Errorf("%d bytes copied before the copy was read, %d after, %v", before, n, err)
	}
	prog.tell("dirty")
	if got := prog.line(); got != "dirty" {
		t.Fatal(got)
	}
	after, err := s.Copied()
	if d := after - before; err != nil || before > 32<<20 || d < 60<<20 || d > 80<<20 {
		t.Errorf("%d bytes copied before 64 MiB were written, %d after, %v", before, after, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole(t, prog)
}

// A process that never blocks is copied at a system call instruction of its vDSO.
func TestSnapshotOfABusyProcess(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	prog.line()
	p := openProcess(t, prog.pid())
	for range rounds(10, 200) {
		if err := snapshot(t, p, SnapshotOptions{}).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if c := children(t, prog.pid()); len(c) != 0 {
		t.Errorf("children are left: %+v", c)
	}
	untraced(t, prog.pid())
}

// A gate that stays shut ends in ErrBusy, and the process is as it was.
func TestSnapshotGate(t *testing.T) {
	prog, at := copied(t)
	p := openProcess(t, prog.pid())
	// The counters' upper byte is 0 for the next centuries, and the program's text is not.
	s := snapshot(t, p, SnapshotOptions{Gate: at + 7})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Snapshot(SnapshotOptions{Gate: maps[0].Start, GateFor: 50e6, StopFor: 10e9}) // 0x7f of the ELF header
	if !errors.Is(err, ErrBusy) {
		t.Errorf("a gate that is not 0: %v", err)
	}
	_, err = p.Snapshot(SnapshotOptions{Gate: 8, StopFor: 10e9})
	if !errors.Is(err, unix.EFAULT) && err == nil {
		t.Errorf("a gate that cannot be read: %v", err)
	}
	untraced(t, prog.pid())
	whole(t, prog)
}

// TestSnapshotRefused takes processes that cannot be copied, and checks that they go on.
func TestSnapshotRefused(t *testing.T) {
	spinner := func(t *testing.T) (*testTarget, *Process) {
		prog := start(t, build(t, "testdata/spin.c"), "2")
		prog.line()
		return prog, openProcess(t, prog.pid())
	}
	t.Run("stopped", func(t *testing.T) {
		prog, p := spinner(t)
		if err := unix.Kill(prog.pid(), unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "stopped", func() bool { return state(t, prog.pid(), prog.pid()) == 'T' })
		if _, err := p.Snapshot(SnapshotOptions{GateFor: 1e9}); !errors.Is(err, ErrGroupStop) {
			t.Errorf("a stopped process: %v", err)
		}
		eventually(t, "still stopped", func() bool { return state(t, prog.pid(), prog.pid()) == 'T' })
		if err := unix.Kill(prog.pid(), unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := snapshot(t, p, SnapshotOptions{}).Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("traced", func(t *testing.T) {
		prog := start(t, build(t, "testdata/spin.c"), "2")
		prog.line()
		last := atoi(t, prog.line()) // the others are attached before it is refused
		p := openProcess(t, prog.pid())
		other := seizer(t, last)
		if _, err := p.Snapshot(SnapshotOptions{GateFor: 50e6, StopFor: 10e9}); err == nil {
			t.Error("a copy of a process that another one traces")
		}
		eventually(t, "its other threads are not traced", func() bool { return len(traced(t, prog.pid())) == 1 })
		other.in.Close()
		if err := other.wait(); err != nil {
			t.Fatal(err)
		}
		if err := snapshot(t, p, SnapshotOptions{}).Close(); err != nil {
			t.Error(err)
		}
		untraced(t, prog.pid())
	})
	t.Run("gone", func(t *testing.T) {
		prog, p := spinner(t)
		prog.cmd.Process.Kill()
		prog.wait()
		if _, err := p.Snapshot(SnapshotOptions{}); err == nil {
			t.Error("a copy of a process that is gone")
		}
	})
}

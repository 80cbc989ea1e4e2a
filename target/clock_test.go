package target

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// TestClock copies a spinning thread: once per period of its CPU time, with registers and a stack
// of that moment, and without a stop.
func TestClock(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O2"), "--seconds", "120", "--wait-go")
	p.Ready()
	p.Go()
	proc, err := Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	maps, err := proc.Maps()
	if err != nil {
		t.Fatal(err)
	}
	th, err := proc.Thread(stack.TID(p.PID))
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	const period, size = 2_000_000, 16 << 10
	c, err := th.OpenClock(period, size)
	if errors.Is(err, ErrClockDenied) {
		testprog.Lack(t, "perf", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n, last := 0, ClockCopy{At: Now()}
	lost := uint64(0)
	for begin := time.Now(); n < 200 && time.Since(begin) < time.Minute; {
		fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, 10)
		for {
			x, gone, ok := c.Take()
			lost += gone
			if !ok {
				break
			}
			n++
			if x.At <= last.At || x.Ran <= last.Ran || x.At > Now() {
				t.Fatalf("copy at %v after %d ns, the one before at %v after %d", x.At, x.Ran, last.At, last.Ran)
			}
			if in := mapping(maps, x.Regs.PC); in == nil || !in.Exec {
				t.Fatalf("PC %#x is no code", x.Regs.PC)
			}
			if in := mapping(maps, x.SP()); in == nil || in.Exec || len(x.Stack) == 0 || len(x.Stack) > size || x.SP()+uint64(len(x.Stack)) > in.End {
				t.Fatalf("SP %#x, %d bytes of stack in %+v", x.SP(), len(x.Stack), in)
			}
			last = ClockCopy{At: x.At, Ran: x.Ran}
		}
	}
	if want := last.Ran / period; n == 0 || int64(n)+int64(lost) < want*9/10 || int64(n)+int64(lost) > want+1 {
		t.Errorf("%d copies and %d lost in %d periods", n, lost, want)
	}
	if err := c.SetPeriod(3 * period); err != nil {
		t.Error(err)
	}
	p.Kill()
	p.Wait()
	for more := true; more; { // copies made before the end remain
		_, _, more = c.Take()
	}
	if _, err := th.OpenClock(period, size); !errors.Is(err, ErrGone) {
		t.Errorf("a clock of a thread that is gone: %v", err)
	}
	for _, x := range [][2]int{{0, size}, {period, 0}, {period, MaxClockStack + 1}} {
		if _, err := th.OpenClock(int64(x[0]), x[1]); err == nil {
			t.Errorf("a period of %d ns and %d bytes of stack were accepted", x[0], x[1])
		}
	}
}

// FuzzPerfCopy: a record of any content is parsed within its bounds.
func FuzzPerfCopy(f *testing.F) {
	f.Add(record(64, 40), false)
	f.Add(record(0, 0), true)
	f.Fuzz(func(t *testing.T, b []byte, counted bool) {
		var c perfCopy
		if c.parse(b, counted) && len(c.stack) > len(b) {
			t.Errorf("%d bytes of stack in %d", len(c.stack), len(b))
		}
	})
}

func mapping(maps []stack.Mapping, addr uint64) *stack.Mapping {
	for i := range maps {
		if m := &maps[i]; m.Start <= addr && addr < m.End {
			return m
		}
	}
	return nil
}

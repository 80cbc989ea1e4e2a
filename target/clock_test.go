package target

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
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
	c, err := th.OpenClock(period, size, NoProgram, false)
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
	if _, err := c.SetPeriod(3 * period); err != nil {
		t.Error(err)
	}
	p.Kill()
	p.Wait()
	for more := true; more; { // copies made before the end remain
		_, _, more = c.Take()
	}
	if _, err := th.OpenClock(period, size, NoProgram, false); !errors.Is(err, ErrGone) {
		t.Errorf("a clock of a thread that is gone: %v", err)
	}
	for _, x := range [][2]int{{0, size}, {period, 0}, {period, MaxClockStack + 1}} {
		if _, err := th.OpenClock(int64(x[0]), x[1], NoProgram, false); err == nil {
			t.Errorf("a period of %d ns and %d bytes of stack were accepted", x[0], x[1])
		}
	}
}

// TestPerfCopyKernel: of a call chain, the addresses of the kernel are taken, without marks, those of the thread's own
// code, and more than the limit.
func TestPerfCopyKernel(t *testing.T) {
	const user = ^uint64(0) - 511 // PERF_CONTEXT_USER
	for _, c := range []struct {
		chain, want []uint64
		bad         bool
	}{
		{nil, nil, false},
		{[]uint64{perfContextKernel, 0xffffffff81000010, 0xffffffff81000020}, []uint64{0xffffffff81000010, 0xffffffff81000020}, false},
		{[]uint64{perfContextKernel, 0xffffffff81000010, user, 0x401000}, []uint64{0xffffffff81000010}, false},
		{[]uint64{user, 0x401000}, nil, false},
		{slices.Concat([]uint64{perfContextKernel}, make([]uint64, 3*maxKernelFrames)), make([]uint64, maxKernelFrames), false},
		{[]uint64{1 << 60}, nil, true},
	} {
		b := record(16, 16)
		n := uint64(len(c.chain))
		if c.bad {
			n, c.chain = c.chain[0], nil
		}
		chain := binary.NativeEndian.AppendUint64(nil, n)
		for _, a := range c.chain {
			chain = binary.NativeEndian.AppendUint64(chain, a)
		}
		var x perfCopy
		ok := x.parse(slices.Insert(b, 24, chain...), perfKernel)
		if ok == c.bad || ok && (!slices.Equal(x.kernel, c.want) || len(x.stack) != 16) {
			t.Errorf("%x: %v, %x, %d bytes of stack", c.chain, ok, x.kernel, len(x.stack))
		}
	}
}

// FuzzPerfCopy: a record of any content is parsed within its bounds.
func FuzzPerfCopy(f *testing.F) {
	f.Add(record(64, 40), uint8(0))
	f.Add(record(0, 0), uint8(perfCounted))
	f.Add(slices.Insert(record(8, 8), 24, make([]byte, 16)...), uint8(perfCounted|perfKernel))
	f.Fuzz(func(t *testing.T, b []byte, more uint8) {
		var c perfCopy
		if c.parse(b, more) && (len(c.stack) > len(b) || len(c.kernel) > maxKernelFrames) {
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

// TestMachineClock: threads of a program that switch often are copied in proportion to their CPU time,
// by one clock for all, which ends with its last user.
func TestMachineClock(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "c/duty", "O2"), "pipe", "100", "100", "60")
	p.Line("ready")
	proc, err := Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	tids, err := proc.Threads(nil)
	if err != nil || len(tids) != 2 {
		t.Fatal(tids, err)
	}
	const tick, period = 1_000_000, 2_000_000
	var clocks [2]*Clock
	var threads [2]*Thread
	for i, tid := range tids {
		if threads[i], err = proc.Thread(tid); err != nil {
			t.Fatal(err)
		}
		defer threads[i].Close()
		clocks[i], err = threads[i].OpenMachineClock(tick, period, NoProgram, i == 0)
		if errors.Is(err, ErrClockDenied) {
			testprog.Lack(t, "perf", err.Error())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer clocks[i].Close()
	}
	if _, err := threads[0].OpenMachineClock(tick, period, NoProgram, false); err == nil {
		t.Error("a thread got two clocks")
	}
	if _, err := threads[0].OpenMachineClock(3*tick, period, NoProgram, false); !errors.Is(err, ErrClockPeriod) {
		t.Errorf("another period: %v", err)
	}
	cpu := func(i int) int64 {
		var c Counters
		if err := threads[i].Counters(&c); err != nil {
			t.Fatal(err)
		}
		return c.CPU
	}
	began := [2]int64{cpu(0), cpu(1)}
	var n, inKernel [2]int64
	var last [2]stack.Time
	for begin := time.Now(); n[0] < 300 && time.Since(begin) < time.Minute; {
		_, _ = unix.Poll(nil, 10)
		for i, c := range clocks {
			for {
				x, lost, ok := c.Take()
				n[i] += int64(lost)
				if !ok {
					break
				}
				if x.At < last[i] || x.At > Now() || len(x.Stack) == 0 {
					t.Fatalf("a copy at %v with %d bytes of stack after one at %v", x.At, len(x.Stack), last[i])
				}
				last[i] = x.At
				n[i]++
				if len(x.Kernel) > 0 {
					inKernel[i]++
				}
				if slices.ContainsFunc(x.Kernel, func(a uint64) bool { return a>>63 == 0 || a >= perfContexts }) {
					t.Fatalf("not all of these are addresses of the kernel: %#x", x.Kernel)
				}
			}
		}
	}
	for i := range n {
		used := cpu(i) - began[i]
		// The mean period of the clock is that asked for; 4.5 standard deviations, and a tenth for rounding.
		want := float64(used) / period
		// The second thread runs for some µs after each of its timers: the kernel runs the clock's timer
		// in the same interrupt, before the thread, and so it has too few copies.
		if d := math.Abs(float64(n[i]) - want); i == 0 && d > 4.5*math.Sqrt(want)+.1*want+3 || float64(n[i]) > want+4.5*math.Sqrt(want)+.1*want+3 {
			t.Errorf("thread %d: %d copies in %d ns of CPU time, want %.0f", i, n[i], used, want)
		}
		// Half of the ticks that meet a thread are copied.
		if met := float64(clocks[i].Met()) / tick; math.Abs(float64(n[i])-met/2) > 4.5*math.Sqrt(met/4)+3 {
			t.Errorf("thread %d: %d copies at %.0f ticks", i, n[i], met)
		}
	}
	// Both make system calls; the kernel's part of the stack was asked for of one.
	if inKernel[0] == 0 || inKernel[0] == n[0] || inKernel[1] > 0 {
		t.Errorf("%d and %d of %d and %d copies have the kernel's part of the stack", inKernel[0], inKernel[1], n[0], n[1])
	}
	if MachineClockOthers() == 0 {
		t.Error("no thread of another program was seen on a CPU")
	}
	clocks[0].Close()
	clocks[0].Close()
	if c, err := threads[0].OpenMachineClock(tick, period, NoProgram, false); err != nil {
		t.Error("after Close:", err)
	} else {
		c.Close()
	}
	clocks[1].Close()
	if machine.clock != nil {
		t.Error("the clock runs on without users")
	}
	c, err := threads[0].OpenMachineClock(tick, period, NoProgram, false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := threads[1].OpenMachineClock(tick, period, NoProgram, true); !errors.Is(err, ErrClockPeriod) {
		t.Errorf("the kernel's part of the stack from a clock that does not copy it: %v", err)
	}
}

// TestMachineDraw: however far the drawings of new periods are apart, the mean time between ticks is right: within 4.5
// standard deviations, which are below 0.1 % here.
func TestMachineDraw(t *testing.T) {
	const mean = 1e6
	for _, c := range []struct{ least, most float64 }{{8, 8.5}, {8, 20}, {8, 100}, {30, 31}} {
		rnd := rand.New(rand.NewPCG(1, uint64(c.most)))
		var d machineDraw
		at, ticks := stack.Time(1), 0
		next := float64(at) + d.next(at, mean)
		for range 100_000 {
			end := float64(at) + mean*(c.least+rnd.Float64()*(c.most-c.least))
			for ; next < end; next += d.period {
				ticks++
			}
			at = stack.Time(end)
			next = end + d.next(at, mean)
		}
		if got := float64(at) / float64(ticks); math.Abs(got/mean-1) > .005 {
			t.Errorf("drawn each %.0f to %.0f periods: %.4f of the period", c.least, c.most, got/mean)
		}
	}
}

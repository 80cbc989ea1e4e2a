package target

import (
	"math"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// soon plans n ticks of 2 ms from now on, with a long time for each.
func soon(p *Process, n int, items ...AheadItem) *Ahead {
	a := &Ahead{Process: p, Items: items, Pause: math.MaxInt64, Long: math.MaxInt64}
	from := monotonic()
	for i := range n {
		a.Due = append(a.Due, from+stack.Time(i+1)*2_000_000)
		a.End = append(a.End, math.MaxInt64)
	}
	return a
}

// soonRunning is soon for a thread that has run since its last stop: one that is still being woken
// from a stop does not count as running.
func soonRunning(t *testing.T, p *Process, n int, it AheadItem) *Ahead {
	t.Helper()
	var before, now Counters
	if err := it.Thread.Counters(&before); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the thread runs", func() bool { return it.Thread.Counters(&now) == nil && now.CPU > before.CPU })
	return soon(p, n, it)
}

// runs returns an item for a running thread, with a block of known bytes on its stack.
func runs(th *Thread, block uint64) AheadItem {
	return AheadItem{Thread: th, Runs: true, StackLow: block - 1<<20, StackHigh: block + 4096, Deadline: 10e9}
}

func address(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func goAhead(t *testing.T, tr *Tracer, a *Ahead) {
	t.Helper()
	if !tr.GoAhead(a, 64<<10) {
		t.Fatal("it was not begun")
	}
}

// A stopper takes the samples of a running thread on its own, each at its time.
func TestAheadStops(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c", "-no-pie"), "regs")
	block := address(t, prog.line())
	p := openProcess(t, prog.pid())
	th := openThread(t, p, prog.pid())
	tr := tracer(t)
	w := NewWindow(64 << 10)
	eventually(t, "the program's loop", func() bool {
		capture(t, tr, th, w)
		return w.Regs.R[3] == 0x1111111111111103
	})
	// A thread that is still being woken from the previous stop does not count as running: on a
	// busy machine a round may end early.
	whole := 0
	for round := 0; whole < 20 && round < 200; round++ {
		a := soon(p, MaxAheadStops, runs(th, block))
		goAhead(t, tr, a)
		if a.Err != nil || a.Ticks != a.Stops || a.Done != 0 {
			t.Fatalf("round %d: %d ticks, %d stops, %d of the next, %v", round, a.Ticks, a.Stops, a.Done, a.Err)
		}
		if a.Ticks == MaxAheadStops {
			whole++
		}
		last := Counters{}
		for i := range a.Stops {
			w := tr.Taken(i)
			if w.Regs.R[3] != 0x1111111111111103 || w.Regs.TLS == 0 || len(w.Stack()) < 4096 || w.Asked < a.Due[i] || w.Asked < a.At[i] || w.Resumed <= w.Asked {
				t.Fatalf("stop %d: register %#x, %d bytes, asked %d, due %d", i, w.Regs.R[3], len(w.Stack()), w.Asked, a.Due[i])
			}
			if w.Counters.CPU < last.CPU || w.Counters.Switches == 0 {
				t.Fatalf("stop %d: %+v after %+v", i, w.Counters, last)
			}
			last = w.Counters
		}
	}
	untraced(t, prog.pid())
	if whole < 20 {
		t.Errorf("%d whole rounds", whole)
	}

	// If the stack is at another place than planned, or shorter, the run ends after that stop.
	for _, it := range []AheadItem{runs(th, block-1<<30), runs(th, block+1<<30)} {
		a := soonRunning(t, p, 3, it)
		goAhead(t, tr, a)
		if a.Ticks != 1 || a.Stops != 1 {
			t.Errorf("%d ticks, %d stops with a stack that is elsewhere", a.Ticks, a.Stops)
		}
	}
	// The run ends once the stops have used up their time.
	a := soonRunning(t, p, MaxAheadStops, runs(th, block))
	a.Pause = 0
	goAhead(t, tr, a)
	if a.Ticks != 1 || a.Stops != 1 {
		t.Errorf("with nothing to spend: %d ticks, %d stops", a.Ticks, a.Stops)
	}
	// A tick that is over is not started.
	a = soonRunning(t, p, 3, runs(th, block))
	a.End[1] = a.Due[0]
	goAhead(t, tr, a)
	if a.Ticks != 1 || a.Done != 0 {
		t.Errorf("%d ticks where the second one was over", a.Ticks)
	}
	// A thread that may have slept too long since its last look, by its counters, is not stopped.
	ran := func(ago stack.Time) AheadItem {
		it := runs(th, block)
		if err := th.Counters(&it.Counters); err != nil {
			t.Fatal(err)
		}
		it.At = monotonic() - ago
		return it
	}
	a = soonRunning(t, p, 3, ran(200_000_000))
	a.Slept = 100_000_000
	goAhead(t, tr, a)
	if a.Ticks != 0 || a.Stops != 0 {
		t.Errorf("%d ticks after it may have slept", a.Ticks)
	}
	a = soonRunning(t, p, 3, ran(0))
	a.Slept = 100_000_000
	a.Due[1], a.Due[2] = a.Due[0]+150_000_000, a.Due[0]+300_000_000 // in which it runs, or waits for a CPU
	goAhead(t, tr, a)
	if a.Ticks != 3 || a.Stops != 3 {
		t.Errorf("%d ticks, %d stops of one that ran all the time", a.Ticks, a.Stops)
	}
	// A wake ends it, and is consumed.
	for range 3 {
		a = soonRunning(t, p, 3, runs(th, block))
		for i := range a.Due {
			a.Due[i] += 60e9
		}
		timer := time.AfterFunc(time.Millisecond, tr.Wake)
		goAhead(t, tr, a)
		timer.Stop()
		if a.Ticks != 0 || a.Stops != 0 {
			t.Errorf("%d ticks before they were due", a.Ticks)
		}
	}
	if tr.SleepUntil(monotonic()+1_000_000) != false {
		t.Error("the wake was kept")
	}
	// The process ends in between.
	a = soonRunning(t, p, MaxAheadStops, runs(th, block))
	for i := range a.Due {
		a.Due[i] += stack.Time(i) * 20_000_000
	}
	time.AfterFunc(30*time.Millisecond, func() { _ = prog.cmd.Process.Kill() })
	goAhead(t, tr, a)
	if a.Ticks == MaxAheadStops {
		t.Error("it went on with a process that was killed")
	}
	if a.Err != nil && a.Err != ErrGone {
		t.Errorf("error %v", a.Err)
	}
}

// A sleeping thread is not stopped, and ends the run when it has run; so does the process's
// clock.
func TestAheadSleeps(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c", "-no-pie"), "0") // it reads
	const block = 1 << 40
	p := openProcess(t, prog.pid())
	th := openThread(t, p, prog.pid())
	tr := tracer(t)
	w := NewWindow(0)
	asleep := func() Counters {
		eventually(t, "it sleeps", func() bool {
			ok, err := th.ReadBlocked(w)
			return ok && err == nil
		})
		return w.Counters
	}
	for _, byClock := range []bool{false, true} {
		a := soon(p, 10, AheadItem{Thread: th, Counters: asleep()})
		a.ByClock = byClock
		goAhead(t, tr, a)
		if a.Ticks != 10 || a.Stops != 0 || a.Err != nil {
			t.Fatalf("clock %v: %d ticks, %d stops, %v", byClock, a.Ticks, a.Stops, a.Err)
		}
		if byClock && a.Stood < a.At[9] {
			t.Errorf("it stood at %d, looked at %d", a.Stood, a.At[9])
		}
		a = soon(p, 100, AheadItem{Thread: th, Counters: asleep()})
		a.ByClock = byClock
		time.AfterFunc(20*time.Millisecond, func() { prog.tell("y") })
		goAhead(t, tr, a)
		if a.Ticks < 2 || a.Ticks == 100 || a.Done != 0 {
			t.Errorf("clock %v: %d ticks, %d of the next", byClock, a.Ticks, a.Done)
		}
		// A thread that was expected to run and sleeps is not stopped.
		asleep()
		a = soon(p, 4, runs(th, block))
		goAhead(t, tr, a)
		if a.Ticks != 0 || a.Stops != 0 || a.Err != nil {
			t.Errorf("%d ticks, %d stops of a thread that sleeps, %v", a.Ticks, a.Stops, a.Err)
		}
	}
}

// A stopper that is killed during a run leaves no thread stopped, and another stopper replaces
// it.
func TestAheadStopperKilled(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c", "-no-pie"), "regs")
	block := address(t, prog.line())
	p := openProcess(t, prog.pid())
	th := openThread(t, p, prog.pid())
	tr := tracer(t)
	capture(t, tr, th, NewWindow(0))
	killed := tr.resting.proc
	a := soon(p, MaxAheadStops, runs(th, block))
	for i := range a.Due {
		a.Due[i] += 60e9
	}
	time.AfterFunc(5*time.Millisecond, func() { _ = unix.Kill(killed, syscall.SIGKILL) })
	goAhead(t, tr, a)
	if a.Ticks != 0 || a.Stops != 0 {
		t.Errorf("%d ticks", a.Ticks)
	}
	untraced(t, prog.pid())
	eventually(t, "stops by another one", func() bool {
		a = soon(p, 4, runs(th, block))
		goAhead(t, tr, a)
		return a.Stops == 4
	})
	if tr.resting == nil || tr.resting.proc == killed {
		t.Error("the one that was killed is still there")
	}
}

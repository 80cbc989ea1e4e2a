package session

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// A thread that is in one state most of the time, and logs when, must be recorded in
// that state.
func TestStatesTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	const interval = 4 * time.Millisecond
	for _, c := range []struct {
		name  string
		is    func(p *picture) bool
		exact bool // its times are compared too
	}{
		{"running", func(p *picture) bool { return p.state == stack.StateRunning || p.state == stack.StateRunnable }, false},
		{"blocked", func(p *picture) bool {
			return p.state == stack.StateBlocked && p.wait.Call == "read" && p.wait.Kind == "pipe"
		}, true},
		{"fault", func(p *picture) bool { return p.state == stack.StateFault && p.wait.Kind == "page fault" }, true},
		{"disk", func(p *picture) bool { return p.state == stack.StateDisk && p.wait.Call == "vfork" }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var v *verdict
			for try := 0; try == 0 || try < tries && (v.waits < 2 || v.samples < 20); try++ { // on a busy machine another try decides
				rec, log := recordTurns(t, testprog.Build(t, "c/states", "O2"), interval, c.name, "1", "20000")
				v = judge(rec, log, interval, 2*interval, func(p *picture, w *turn) bool { return c.is(p) })
				t.Log(v)
			}
			if !c.exact {
				v.short, v.long, v.lost = 0, 0, 0 // the time between two of them is as short as an interval
			}
			v.checkFew(t, false)
		})
	}
}

// Threads that share a CPU: each thread's wait for it must be recorded as counted by
// the kernel, and samples must say so. (A thread without a CPU when its sample is due
// is often sampled too late: those ticks are gaps.)
func TestRunnableTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	rec, log := recordTurns(t, testprog.Build(t, "c/states", "O2"), 4*time.Millisecond, "runnable", "2", "1")
	for i := range rec.Threads {
		th := &rec.Threads[i]
		// delay returns how long the thread has waited for a CPU by a time.
		delay := func(at stack.Time) (d float64, ok bool) {
			var before, after *turn
			for i := range log.holds {
				switch h := &log.holds[i]; {
				case h.tid != th.TID:
				case h.from <= at && (before == nil || h.from > before.from):
					before = h
				case h.from > at && (after == nil || h.from < after.from):
					after = h
				}
			}
			if before == nil || after == nil {
				return 0, false
			}
			return float64(before.lock) + float64(after.lock-before.lock)*float64(at-before.from)/float64(after.from-before.from), true
		}
		var recorded, from, to float64
		began, runnable := false, 0
		for e := range rec.Events(th.Seq) {
			switch e.Kind() {
			case event.State:
				if st, _ := event.StateFields(e.Payload()); st == stack.StateRunnable {
					runnable++
				}
			case event.Sched: // it covers the time since the previous one
				d, ok := delay(e.Time)
				_, ns := event.SchedFields(e.Payload())
				switch {
				case !ok:
				case !began:
					began, from, to = true, d, d
				default:
					recorded, to = recorded+float64(ns), d
				}
			}
		}
		if !slices.Contains(log.threads, th.TID) {
			continue
		}
		truth := to - from
		t.Logf("%d: waited for a CPU for %v, recorded %v; %d times runnable", th.TID, time.Duration(truth), time.Duration(recorded), runnable)
		if slack := max(truth/20, 30e6); !began || truth < 50e6 || recorded-truth > slack || truth-recorded > slack || runnable == 0 {
			t.Errorf("%d: waited for a CPU for %v, recorded %v; %d times runnable", th.TID, time.Duration(truth), time.Duration(recorded), runnable)
		}
	}
}

// A process that its user stops and continues: the recording must show the start and
// end of the stop, to an interval, and must not end the stop.
func TestStoppedTruth(t *testing.T) {
	testprog.Need(t, "ptrace")
	const interval = 4 * time.Millisecond
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O2"), "--seconds", "600", "--wait-go")
	p.Ready()
	p.Go()
	letter := func() string {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "stat"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		return rest[:1]
	}
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(p.PID, s); err != nil {
			t.Fatal(err)
		}
	}
	rounds := 8
	if os.Getenv("SLIVER_LONG") != "" {
		rounds = 200
	}
	var at, from uint64
	phase, round := 0, 0
	rec := recordUntil(t, p.PID, interval, func(s stack.ThreadStats) bool {
		switch {
		case phase == 0 && s.Samples > from+20:
			signal(syscall.SIGSTOP)
			phase = 1
		case phase == 1:
			if letter() == "T" {
				phase = 2
			}
		case phase == 2: // s was counted after it had stopped
			at, from, phase = s.Stops, s.Samples, 3
		case phase == 3 && s.Samples > from+20:
			if l := letter(); l != "T" {
				t.Errorf("round %d: it was stopped and is in state %s", round, l)
			}
			// One may have been under way, and one is for the whole stack.
			if n := s.Stops - at; n > 2 {
				t.Errorf("round %d: %d stops of a thread that stood still", round, n)
			}
			signal(syscall.SIGCONT)
			at, phase = s.Stops, 4
		case phase == 4 && s.Stops > at+5: // it runs again
			from, phase = s.Samples, 0
			round++
			return round == rounds
		}
		return false
	})
	signal(syscall.SIGKILL)
	k := tracks(rec)[stack.TID(p.PID)]
	var seen []stack.State
	for _, q := range k.pics {
		if n := len(seen); n == 0 || seen[n-1] != q.state {
			seen = append(seen, q.state)
		}
	}
	stopped := 0
	for i, s := range seen {
		if s != stack.StateStopped {
			continue
		}
		stopped++
		if i == 0 || i == len(seen)-1 {
			t.Errorf("stopped at an end of the recording: %v", seen)
		}
	}
	if stopped != rounds {
		t.Errorf("states %v, want stopped %d times, with something before and after each", seen, rounds)
	}
	for i, q := range k.pics {
		if q.state == stack.StateStopped && q.fresh && i+1 < len(k.pics) {
			if d := time.Duration(k.pics[i+1].from - q.from); d < 15*interval {
				t.Errorf("stopped for %v, want about %v", d, 20*interval)
			}
		}
	}
}

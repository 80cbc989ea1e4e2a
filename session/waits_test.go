package session

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// recordUntil records a process until ready returns true for the sampler's statistics.
func recordUntil(t *testing.T, pid int, interval time.Duration, ready func(stack.ThreadStats) bool) *trace.Recording {
	t.Helper()
	return recordWith(t, pid, Options{Interval: interval, Jitter: .1}, ready)
}

// recordWith is recordUntil with options; it sets outputs and the like itself.
func recordWith(t *testing.T, pid int, o Options, ready func(stack.ThreadStats) bool) *trace.Recording {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	file := filepath.Join(t.TempDir(), "run.sliver")
	out, err := export.ParseOutput(file, "")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	o.Outputs, o.Started = []export.Output{out}, func() { close(started) }
	s, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx)
		ended <- err
	}()
	<-started
	tick := time.NewTicker(o.Interval)
	defer tick.Stop()
	most := time.Minute
	if long() {
		most = 3 * time.Minute
	}
	for limit := time.Now().Add(most); !ready(s.Status().Total) && time.Now().Before(limit); <-tick.C {
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish("test"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	rec, err := openRecording(f)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// slept holds the waits in a thread's events.
type slept struct {
	waits, locks []uint64 // payloads in order
	holder       stack.TID
	exits, stops int
}

func sleptOf(rec *trace.Recording, tid stack.TID) (x slept) {
	for i := range rec.Threads {
		if rec.Threads[i].TID != tid {
			continue
		}
		for e := range rec.Events(rec.Threads[i].Seq) {
			switch e.Kind() {
			case event.Wait:
				x.waits = append(x.waits, e.Payload())
			case event.Lock:
				x.locks = append(x.locks, e.Payload())
			case event.Holder:
				x.holder, _ = event.HolderFields(e.Payload())
			case event.Exit:
				x.exits++
			case event.Pause:
				x.stops++
			}
		}
	}
	return x
}

// Threads that queue for a mutex: each one's wait must be reported once, with the lock
// and its holder, even if a thread must be stopped for its stack (frame pointers): the
// wake-up for that must not be taken for another wait.
func TestWaitsAreRecorded(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, variant := range []string{"O2", "fp"} {
		t.Run(variant, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "locks/pthread", variant), "normal", "4")
			var said struct {
				Lock    string
				Holder  stack.TID
				Waiters []stack.TID
			}
			if err := json.Unmarshal([]byte(p.Line("{")), &said); err != nil {
				t.Fatal(err)
			}
			addr, err := strconv.ParseUint(said.Lock, 0, 64)
			if err != nil {
				t.Fatal(err)
			}
			rec := recordUntil(t, p.PID, 5*time.Millisecond, func(s stack.ThreadStats) bool { return s.Samples > 6*60 })
			for _, tid := range said.Waiters {
				x := sleptOf(rec, tid)
				// The first samples may have seen it on its way to the wait; the name
				// of the lock may have come a little later.
				if len(x.locks) == 0 || x.locks[len(x.locks)-1] != addr || len(x.locks) > 3 || x.holder != said.Holder || len(x.waits) == 0 || len(x.waits) > 6 {
					t.Fatalf("%d: %+v; want lock %#x held by %d", tid, x, addr, said.Holder)
				}
				w, ok := rec.Waits[int(x.waits[len(x.waits)-1])]
				if !ok || w.Kind != "lock" || w.Call != "futex" || variant == "O2" && w.Symbol != "own" || !strings.Contains(w.Args, "mutex") {
					t.Errorf("%d: %+v", tid, w)
				}
				// More than one or two if many threads compete for the CPUs: a thread
				// woken for its stack does not sleep until it has had a CPU. Taken for
				// a wait each time, it would be 60.
				if x.stops > 10 || x.exits > 12 {
					t.Errorf("%d: stopped %d times, %d frames left, in one wait", tid, x.stops, x.exits)
				}
			}
			p.Go()
			if st := p.Wait(); !st.Success() {
				t.Errorf("ended with %v", st)
			}
		})
	}
}

// Threads that take turns: each wait in their recording is compared with their own log.
func TestTurnsAreRecorded(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "locks/contend", "O2"), "normal", "4", "2")
	var said struct {
		Lock    string
		Threads []stack.TID
	}
	if err := json.Unmarshal([]byte(p.Line("{")), &said); err != nil {
		t.Fatal(err)
	}
	addr, err := strconv.ParseUint(said.Lock, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	p.Go()
	rec := recordUntil(t, p.PID, time.Millisecond, func(stack.ThreadStats) bool {
		select {
		case <-p.Exited():
			return true
		default:
			return false
		}
	})
	var log struct{ Turns [][4]int64 } // TID, wanted, got, left
	for _, line := range p.Output() {
		if strings.HasPrefix(line, `{"turns"`) {
			if err := json.Unmarshal([]byte(line), &log); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The holder is read a little after the sample that it is recorded at.
	const behind = 20_000_000
	waits, named, holders, wrong := 0, 0, 0, 0
	for i := range rec.Threads {
		tid := rec.Threads[i].TID
		if !slices.Contains(said.Threads, tid) {
			continue
		}
		var since, seen stack.Time // of the state; since 0: it is not blocked
		var lock, state uint64
		repeats := false // a Sync is followed by the state again
		for e := range rec.Events(rec.Threads[i].Seq) {
			switch e.Kind() {
			case event.Sync:
				repeats = true
			case event.State:
				if repeats && e.Payload() == state {
					repeats = false
					continue
				}
				state, repeats = e.Payload(), false
				if since != 0 && slices.ContainsFunc(log.Turns, func(turn [4]int64) bool {
					return stack.TID(turn[0]) == tid && turn[1] <= int64(since) && int64(seen) < turn[2]
				}) {
					waits++
					if lock == addr {
						named++
					}
				}
				since, lock = 0, 0
				if st, _ := event.StateFields(e.Payload()); st == stack.StateBlocked {
					since, seen = e.Time, e.Time
				}
			case event.Seen:
				seen = e.Time
			case event.Lock:
				lock = e.Payload()
			case event.Holder:
				h, _ := event.HolderFields(e.Payload())
				if h == 0 {
					continue
				}
				holders++
				if !slices.ContainsFunc(log.Turns, func(turn [4]int64) bool {
					return stack.TID(turn[0]) == h && turn[2] <= int64(e.Time)+behind && int64(e.Time) <= turn[3]
				}) {
					wrong++
				}
			}
		}
	}
	t.Logf("%d waits, the lock right in %d; %d holders, %d wrong", waits, named, holders, wrong)
	if named*100 < waits*99 || waits < 50 || holders < 50 || wrong*100 > holders {
		t.Errorf("%d waits, the lock right in %d; %d holders, %d wrong", waits, named, holders, wrong)
	}
}

package session

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// wakesLog is what testdata/targets/c/wakes.c did.
type wakesLog struct {
	Threads []struct {
		Name        string
		TID         stack.TID
		From, To    stack.Time // the span that Ran and Queued are of
		Ran, Queued int64      // by schedstat
		Waits       [][3]int64 // waker, begin, end
	}
	Child stack.TID
}

// recordWakes records a run of wakes.c with context switches.
func recordWakes(t *testing.T, o SwitchOptions, rounds, us int) (*trace.Recording, *wakesLog) {
	t.Helper()
	return recordWakesOf(t, "all", o, rounds, us)
}

func recordWakesOf(t *testing.T, threads string, o SwitchOptions, rounds, us int) (*trace.Recording, *wakesLog) {
	t.Helper()
	only, err := sampler.ParseSelection(threads)
	if err != nil {
		t.Fatal(err)
	}
	testprog.Need(t, "gcc", "ptrace")
	if err := kernel.CheckSched(); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	p := testprog.Start(t, testprog.Build(t, "c/wakes", "O2"), strconv.Itoa(rounds), strconv.Itoa(us))
	p.Ready()
	l := &wakesLog{}
	o.Need = true
	rec := recordWhole(t, p.PID, Options{Interval: 10 * time.Millisecond, Jitter: .5, Selection: only, Switches: &o}, func(*Session) {
		p.Go()
		if err := json.Unmarshal([]byte(p.Line(`{"threads"`)), l); err != nil {
			t.Fatal(err)
		}
	})
	p.Go()
	if st := p.Wait(); !st.Success() {
		t.Fatalf("ended with %v: %q", st, p.Errors())
	}
	return rec, l
}

func openSwitched(t *testing.T, rec *trace.Recording, tid stack.TID) (all []trace.Switch) {
	t.Helper()
	for s, err := range rec.Switched(tid) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// wakerOf is the TID of a waker, 0 for a timer.
func wakerOf(rec *trace.Recording, s *trace.Switch) stack.TID {
	if s.By&event.ByTimer != 0 {
		return 0
	}
	if s.Waker < 0 {
		return -1
	}
	return rec.Wakers[s.Waker].TID
}

// within reports whether a is within 1 % of b, or a bit of time.
func within(a, b int64, slack time.Duration) bool {
	d := max(a-b, b-a)
	return d <= b/100+int64(slack)
}

// TestSwitchesTruth: each wait that the program logged has one record with the logged waker, and the times off the
// CPUs are those of the log and of schedstat within 1 %.
func TestSwitchesTruth(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	var wrong []string
	for try := 0; try == 0 || try < tries && len(wrong) > 0; try++ { // on a busy machine another try decides
		rec, l := recordWakes(t, SwitchOptions{}, 100, 8000)
		wrong = compareSwitches(t, rec, l)
	}
	for _, s := range wrong {
		t.Error(s)
	}
}

// compareSwitches returns what differs between a recording and the log.
func compareSwitches(t *testing.T, rec *trace.Recording, l *wakesLog) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if x := rec.Switches; x == nil || x.Full+x.Rate != 0 || len(x.Lost) != 0 || x.Records == 0 || len(rec.Problems) > 0 {
		t.Fatalf("%+v, %q", x, rec.Problems)
	}
	v := view.New(rec, view.Options{})
	for _, th := range l.Threads {
		all := openSwitched(t, rec, th.TID)
		if !slices.ContainsFunc(all, func(s trace.Switch) bool { return s.Out > th.From }) {
			t.Fatalf("%s: no switches in its span", th.Name)
		}
		var logged, off, wrong int64
		for _, w := range th.Waits {
			from, to := stack.Time(w[1]), stack.Time(w[2])
			logged += int64(to - from)
			asleep := false
			for i := range all {
				s := &all[i]
				if s.Out < from || s.In > to || s.Open {
					continue
				}
				off += int64(s.In - s.Out)
				// Something may end a sleep early, as the stop of a sample: the last one is the program's.
				if s.State == stack.StateBlocked {
					if got := wakerOf(rec, s); got == stack.TID(w[0]) {
						asleep = true
					}
				}
			}
			if !asleep {
				wrong++
			}
		}
		// A waiter may find its event there already; all others slept.
		if n := int64(len(th.Waits)); n == 0 || wrong > n/20 {
			say("%s: %d of %d waits without the waker that the program logged", th.Name, wrong, n)
		}
		if !within(off, logged, time.Duration(len(th.Waits))*60*time.Microsecond) {
			say("%s: off the CPUs for %v in its waits, by its log %v", th.Name, time.Duration(off), time.Duration(logged))
		}
		var gone, queued int64
		for i := range all {
			s := &all[i]
			clip := func(from, to stack.Time) int64 { return int64(max(min(to, th.To)-max(from, th.From), 0)) }
			gone += clip(s.Out, s.In)
			if s.Wake != 0 {
				queued += clip(s.Wake, s.In)
			}
		}
		// On a virtual machine, schedstat leaves out the time that the host took.
		if want := int64(th.To-th.From) - th.Ran; !within(gone, want, 2*time.Millisecond) {
			say("%s: off the CPUs for %v, by schedstat %v", th.Name, time.Duration(gone), time.Duration(want))
		}
		// The kernel's account of waits for a CPU counts some in the next one, and some not at all.
		if d := max(queued-th.Queued, th.Queued-queued); d > th.Queued/10 && d > 10e6 {
			say("%s: waited for a CPU for %v, by schedstat %v", th.Name, time.Duration(queued), time.Duration(th.Queued))
		}
		// The states that outputs show are made of the same records.
		x, ok := v.ByTID(th.TID)
		if !ok {
			t.Fatalf("%s is not in the view", th.Name)
		}
		w := view.New(rec, view.Options{From: th.From, To: th.To})
		st := w.States(x)
		slack := time.Duration(int64(th.To-th.From)-st.Observed) + time.Millisecond // the last sample was a while before the end
		if ran := int64(th.To-th.From) - gone; slack > time.Second || !within(st.Running, ran, slack) || !within(st.Runnable, queued, slack) ||
			!within(st.Blocked+st.Disk+st.Stopped, gone-queued, slack) {
			say("%s: states %+v, by the records %v on a CPU and %v waiting for one", th.Name, st, time.Duration(ran), time.Duration(queued))
		}
	}
	outsider := slices.IndexFunc(rec.Wakers, func(w trace.Waker) bool { return w.TID == l.Child })
	if outsider < 0 || rec.Wakers[outsider].Name != "outsider" || rec.Wakers[outsider].PID != int(l.Child) {
		say("the child is not among the wakers %+v", rec.Wakers)
	}
	return out
}

// TestSwitchesIntervals: the intervals of a thread that outputs show have its waits with their exact times, what the
// samples found in them, and what ended them.
func TestSwitchesIntervals(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	rec, l := recordWakes(t, SwitchOptions{}, 60, 15000)
	v := view.New(rec, view.Options{})
	names := map[string]string{"pipe": "driver", "event": "driver", "futex": "driver", "child": "process outsider", "nap": "a timer"}
	for _, th := range l.Threads {
		x, ok := v.ByTID(th.TID)
		if !ok || names[th.Name] == "" {
			continue
		}
		var all []view.Interval
		in := &view.Intervals{Yield: func(i *view.Interval) { all = append(all, *i) }}
		in.Close(v.Slices(x, intervalsOf{in}))
		found, described, n := 0, 0, 0
		for _, w := range th.Waits {
			from, to := stack.Time(w[1]), stack.Time(w[2])
			if len(all) == 0 || to > all[len(all)-1].End { // after the thread's last sample
				break
			}
			n++
			for i := range all {
				b := &all[i]
				state, _ := b.Waiting.State()
				if !b.Exact || state != stack.StateBlocked || b.Begin < from || b.End > to || !strings.HasPrefix(v.Woken(b.Woken), names[th.Name]) {
					continue
				}
				found++
				if v.What(&b.Waiting) != "" {
					described++
				}
				break
			}
		}
		if n < len(th.Waits)/2 || found < n*9/10 || described < n/3 {
			t.Errorf("%s: %d of %d waits are exact and have their waker, %d have what they were for", th.Name, found, n, described)
		}
		for i := 1; i < len(all); i++ {
			if all[i].Begin < all[i-1].End {
				t.Fatalf("%s: interval %+v begins before %+v ends", th.Name, all[i], all[i-1])
			}
		}
	}
}

// intervalsOf passes on events that do not change a stack's shape.
type intervalsOf struct{ *view.Intervals }

func (intervalsOf) Begin(stack.Time, int, *trace.Slice) {}
func (intervalsOf) End(stack.Time, int, *trace.Slice)   {}

// TestSwitchesLost: a ring that is too small loses records. The recording says how many, the next record of the
// thread has their sums, and the totals are still those of schedstat.
func TestSwitchesLost(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	rec, l := recordWakes(t, SwitchOptions{Kernel: kernel.SchedOptions{Ring: os.Getpagesize()}}, 400, 300)
	if rec.Switches.Full == 0 {
		t.Fatalf("nothing is lost: %+v", rec.Switches)
	}
	v := view.New(rec, view.Options{})
	if !slices.ContainsFunc(v.Losses(), func(s string) bool { return strings.Contains(s, "the kernel's buffer was full") }) {
		t.Errorf("the losses do not say it: %q", v.Losses())
	}
	skipped := uint64(0)
	for _, th := range l.Threads {
		var gone int64
		if th.Name == "child" || th.Name == "nap" { // they end early, and have sums of the wait after that too
			continue
		}
		for i, s := range openSwitched(t, rec, th.TID) {
			if i > 0 || s.Skipped == 0 {
				gone += int64(s.Asleep+s.Queued) + int64(min(s.In, th.To)-min(max(s.Out, th.From), min(s.In, th.To)))
			}
			skipped += s.Skipped
			if s.Skipped > 0 && s.Why&trace.SwitchFull == 0 {
				t.Errorf("%s: %d are skipped for no reason: %+v", th.Name, s.Skipped, s)
			}
		}
		if want := int64(th.To-th.From) - th.Ran; !within(gone, want, 20*time.Millisecond) {
			t.Errorf("%s: off the CPUs for %v, by schedstat %v", th.Name, time.Duration(gone), time.Duration(want))
		}
	}
	if skipped < rec.Switches.Full/2 {
		t.Errorf("%d are in sums, %d were lost", skipped, rec.Switches.Full)
	}
}

// TestSwitchesOnly: only the chosen threads have switches.
func TestSwitchesOnly(t *testing.T) {
	rec, l := recordWakesOf(t, "pipe,nap", SwitchOptions{}, 60, 2000)
	found := 0
	for _, th := range l.Threads {
		switch all := openSwitched(t, rec, th.TID); th.Name {
		case "pipe", "nap":
			found++
			// What wakes them has a name, chosen or not.
			if !slices.ContainsFunc(all, func(s trace.Switch) bool { return wakerOf(rec, &s) >= 0 }) {
				t.Errorf("%s: %d switches, none with its waker", th.Name, len(all))
			}
		default:
			if len(all) > 0 {
				t.Errorf("%s: %d switches", th.Name, len(all))
			}
		}
	}
	if found != 2 || rec.Switches.Records == 0 {
		t.Errorf("%d of the chosen threads, %+v", found, rec.Switches)
	}
}

// TestSwitchesRate: threads that switch more often than the limit allows have sums for the rest.
func TestSwitchesRate(t *testing.T) {
	const most = 10 // in 100 ms
	rec, l := recordWakes(t, SwitchOptions{Kernel: kernel.SchedOptions{PerThread: most}}, 1000, 200)
	if rec.Switches.Rate == 0 || rec.Switches.Full != 0 {
		t.Fatalf("%+v", rec.Switches)
	}
	for _, th := range l.Threads {
		short := map[stack.Time]int{}
		for _, s := range openSwitched(t, rec, th.TID) {
			if s.In-s.Out < stack.Time(time.Millisecond) {
				short[s.In/stack.Time(100*time.Millisecond)]++
			}
		}
		for w, n := range short {
			if n > 3*most { // the thread's windows do not begin with these
				t.Errorf("%s: %d records in window %d", th.Name, n, w)
			}
		}
	}
}

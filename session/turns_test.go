package session

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// turn is a line in the log of a program that includes turns.h: a wait or a time range
// in which a lock was held.
type turn struct {
	tid      stack.TID
	lock     uint64
	from, to stack.Time
}

func (x *turn) UnmarshalJSON(b []byte) error {
	var v [4]uint64
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*x = turn{stack.TID(v[0]), v[1], stack.Time(v[2]), stack.Time(v[3])}
	return nil
}

// turnsLog is the output of such a program.
type turnsLog struct {
	lock         uint64
	threads      []stack.TID
	waits, holds []turn
}

// recordTurns records a program that includes turns.h until it ends.
func recordTurns(t *testing.T, path string, interval time.Duration, args ...string) (*trace.Recording, *turnsLog) {
	t.Helper()
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, path, args...)
	var said struct {
		Lock    string
		Threads []stack.TID
	}
	if err := json.Unmarshal([]byte(p.Line("{")), &said); err != nil {
		t.Fatal(err)
	}
	l := &turnsLog{threads: said.Threads}
	var err error
	if l.lock, err = strconv.ParseUint(said.Lock, 0, 64); err != nil {
		t.Fatal(err)
	}
	rec := l.record(t, p, Options{Interval: interval, Jitter: .1})
	if len(l.waits)+len(l.holds) == 0 {
		t.Fatal("nobody waited")
	}
	return rec, l
}

// record records p, which begins when each of its threads has been seen, to its end,
// and reads its log after that.
func (l *turnsLog) record(t *testing.T, p *testprog.Proc, o Options) *trace.Recording {
	t.Helper()
	going := false
	rec := recordWith(t, p.PID, o, func(s stack.ThreadStats) bool {
		if !going && s.Samples > 20*uint64(len(l.threads)) {
			going = true
			p.Go()
		}
		select {
		case <-p.Exited():
			return true
		default:
			return false
		}
	})
	if st := p.Wait(); !st.Success() {
		t.Fatalf("ended with %v: %q", st, p.Errors())
	}
	var log struct{ Waits, Holds []turn }
	if err := json.Unmarshal([]byte(p.Line(`{"waits"`)), &log); err != nil {
		t.Fatal(err)
	}
	l.waits, l.holds = log.Waits, log.Holds
	return rec
}

// picture is the state of a thread in a recording from a time on.
type picture struct {
	from   stack.Time
	state  stack.State
	wait   trace.Wait
	lock   uint64
	holder stack.TID
	by     event.KnownBy
	fresh  bool // starts a new wait
}

// track holds one thread's pictures in order, and the unknown ranges.
type track struct {
	pics  []picture
	edges map[stack.Time]stack.Time // of a picture that changes the state: the last sample before it
	gaps  [][2]stack.Time
	first stack.Time
	stops int
}

// tracks reads the waits of the threads.
func tracks(rec *trace.Recording) map[stack.TID]*track {
	out := map[stack.TID]*track{}
	for i := range rec.Threads {
		k := &track{edges: map[stack.Time]stack.Time{}}
		out[rec.Threads[i].TID] = k
		var now picture
		var at stack.Time // of the last sample
		var state uint64
		repeats := false // a Sync is followed by the state again
		put := func(t stack.Time) {
			now.from = t
			if n := len(k.pics); n > 0 && k.pics[n-1].from == t {
				fresh := k.pics[n-1].fresh || now.fresh
				k.pics[n-1] = now
				k.pics[n-1].fresh = fresh
				return
			}
			k.pics = append(k.pics, now)
		}
		for e := range rec.Events(rec.Threads[i].Seq) {
			switch e.Kind() {
			case event.Sync:
				repeats = true
			case event.Seen:
				at = e.Time
			case event.State:
				same := repeats && e.Payload() == state
				repeats = false
				if same {
					continue
				}
				state = e.Payload()
				st, _ := event.StateFields(state)
				now = picture{state: st, fresh: true}
				if k.first == 0 {
					k.first = e.Time
				}
				k.edges[e.Time] = at
				put(e.Time)
				now.fresh = false
			case event.Wait:
				now.wait = rec.Waits[int(e.Payload())]
				put(e.Time)
			case event.Lock:
				if e.Payload() == now.lock {
					continue // a Sync repeats it
				}
				now.fresh = e.Payload() != 0 // another sleep
				now.lock, now.holder, now.by = e.Payload(), 0, 0
				put(e.Time)
				now.fresh = false
			case event.Holder:
				now.holder, now.by = event.HolderFields(e.Payload())
				put(e.Time)
			case event.Mark:
				if why := stack.Why(e.Payload()); why == stack.WhyGone {
					now = picture{state: stack.StateDead, fresh: true}
					k.edges[e.Time] = at
					put(e.Time)
				}
			case event.Pause:
				k.stops++
			case event.Gap:
				_, ns := event.GapFields(e.Payload())
				k.gaps = append(k.gaps, [2]stack.Time{min(at, e.Time-stack.Time(ns)), e.Time})
			}
		}
	}
	return out
}

// at returns the picture at time t.
func (k *track) at(t stack.Time) picture {
	i, found := slices.BinarySearchFunc(k.pics, t, func(p picture, t stack.Time) int {
		switch {
		case p.from < t:
			return -1
		case p.from > t:
			return 1
		}
		return 0
	})
	if found {
		return k.pics[i]
	}
	if i == 0 {
		return picture{}
	}
	return k.pics[i-1]
}

// awakeUntil reports whether a thread that is not blocked at time at is shown so until to.
func (k *track) awakeUntil(at, to stack.Time) bool {
	return !slices.ContainsFunc(k.pics, func(p picture) bool {
		return p.from > at && p.from <= to && p.state == stack.StateBlocked
	})
}

// unseen reports whether no sample came between two times, as far as can be known: the
// state changed at the next one, and the previous one was earlier.
func (k *track) unseen(from, to stack.Time) bool {
	for i := range k.pics {
		if p := &k.pics[i]; p.from > to {
			before, ok := k.edges[p.from]
			return ok && before < from
		}
	}
	return false
}

// late reports whether samples are missing between two times.
func (k *track) late(from, to stack.Time) bool {
	return slices.ContainsFunc(k.gaps, func(g [2]stack.Time) bool { return g[0] <= to && g[1] >= from })
}

// verdict counts agreements and differences of a recording and a program's log.
type verdict struct {
	waits, excused           int // waits of three intervals or longer; those with missing samples at their edges
	unseen                   int // intervals inside such waits without a sample
	samples, right           int // inside such waits; with the right lock
	awake                    int // samples inside such waits at which the thread was not blocked; no sample up to their end
	held, holder, wrong      int // samples at which one thread held the lock for long enough; that one named; another named
	short, long, lost, split int // waits that are more than an interval shorter, longer than they were; neither found nor excused; seen as several
	causes                   map[string]int
}

func (v *verdict) String() string {
	return fmt.Sprintf("%d waits (%d excused), %d samples in them (%d missing): lock right in %d, awake in %d; held in %d: holder right in %d, wrong in %d; %d too short, %d too long, %d not found, %d in pieces; %v",
		v.waits, v.excused, v.samples, v.unseen, v.right, v.awake, v.held, v.holder, v.wrong, v.short, v.long, v.lost, v.split, v.causes)
}

// judge compares a recording with the log. is reports whether a picture has the lock of a wait. The
// second duration is the time after which a holder of the lock must be named.
func judge(rec *trace.Recording, log *turnsLog, interval, told time.Duration, is func(*picture, *turn) bool) *verdict {
	v := &verdict{causes: map[string]int{}}
	every := stack.Time(interval)
	step := every + every/8 // between two samples: the jitter is a tenth of the interval
	ks := tracks(rec)
	for i := range log.waits {
		w := &log.waits[i]
		k := ks[w.tid]
		if k == nil || k.first == 0 || w.from < k.first || w.to-w.from < 3*every || !slices.Contains(log.threads, w.tid) {
			continue
		}
		v.waits++
		for at := w.from + step; at < w.to; at += every {
			if k.late(at-step, at) || k.unseen(w.from, at) {
				v.unseen++
				continue
			}
			p := k.at(at)
			if p.state == stack.StateTraced {
				v.unseen++ // held by a stop that came late
				continue
			}
			v.samples++
			switch {
			case is(&p, w):
				v.right++
			case p.state != stack.StateBlocked:
				v.awake++
				if k.awakeUntil(at, w.to) {
					v.samples-- // it was woken without a CPU: in its log the wait ends when it got one
				}
				v.causes[fmt.Sprintf("%v, %v before the end", p.state, time.Duration(w.to-at).Round(interval))]++
				continue
			default:
				v.causes[fmt.Sprintf("%v %#x, %v after the beginning", p.wait, p.lock, time.Duration(at-w.from).Round(interval))]++
			}
			for j := range log.holds {
				h := &log.holds[j]
				if h.lock != w.lock || h.from > at-stack.Time(told) || h.to < at {
					continue
				}
				v.held++
				switch p.holder {
				case h.tid:
					v.holder++
				case 0:
				default:
					v.wrong++
					v.causes[fmt.Sprintf("holder %d in place of %d, who had it for %v", p.holder, h.tid, time.Duration(at-h.from).Round(interval))]++
				}
			}
		}
		v.length(k, w, step, is)
	}
	return v
}

// length compares the duration of a wait with that in the recording, to the distance of
// the samples around its ends.
func (v *verdict) length(k *track, w *turn, step stack.Time, is func(*picture, *turn) bool) {
	var first, last stack.Time
	slack := step
	pieces := 0
	for i := range k.pics {
		p := &k.pics[i]
		if p.from > w.to {
			break
		}
		if p.from < w.from || !is(p, w) {
			continue
		}
		// All events of one sleep count from its start, even if its lock was reported
		// later.
		if first == 0 {
			j := i
			for j > 0 && !k.pics[j].fresh {
				j--
			}
			first = k.pics[j].from
			slack = max(slack, first-k.edges[first])
		}
		if p.fresh {
			pieces++
		}
		last = 0
		if i+1 < len(k.pics) {
			last = k.pics[i+1].from
		}
	}
	if first == 0 || last == 0 {
		if k.late(w.from, w.to) || k.unseen(w.from, w.to) {
			v.excused++
			return
		}
		v.lost++
		v.causes[fmt.Sprintf("%v long, not found", time.Duration(w.to-w.from))]++
		return
	}
	if before, ok := k.edges[last]; ok {
		slack = max(slack, last-before)
	}
	if p := k.at(last); last < w.to && p.state != stack.StateBlocked && k.at(w.to).state != stack.StateBlocked {
		last = w.to // it was woken without a CPU
	}
	if k.late(w.from-step, first) || k.late(w.to-step, last) {
		v.excused++
		return
	}
	if pieces > 1 {
		v.split++
	}
	switch d := (last - first) - (w.to - w.from); {
	case d < -slack:
		v.short++
		v.causes[fmt.Sprintf("%v too short: %v at its beginning, %v at its end", time.Duration(-d), time.Duration(first-w.from), time.Duration(last-w.to))]++
	case d > slack:
		v.long++
		v.causes[fmt.Sprintf("%v too long", time.Duration(d))]++
	}
}

// turnsCase is a program with a kind of lock, and the expected recording.
type turnsCase struct {
	program, variant, kind string
	threads                int
	want                   string // the kind in the description
	holder                 bool   // the lock keeps one
	always                 bool   // in the short form
}

var turnsCases = []turnsCase{
	{"locks/turns", "O2", "normal", 4, "mutex", true, true},
	{"locks/turns", "fp", "normal", 4, "mutex", true, false},
	{"locks/turns", "static", "normal", 4, "mutex", true, false},
	{"locks/turns", "O2", "normal", 50, "mutex", true, false}, // a convoy
	{"locks/turns", "O2", "recursive", 4, "recursive mutex", true, false},
	{"locks/turns", "O2", "errorcheck", 4, "errorcheck mutex", true, false},
	{"locks/turns", "O2", "adaptive", 4, "adaptive mutex", true, false},
	{"locks/turns", "O2", "timed", 4, "mutex", true, false},
	{"locks/turns", "O2", "pi", 4, "PI mutex", true, true},
	{"locks/turns", "O2", "robust", 4, "robust mutex", true, true},
	{"locks/turns", "O2", "robust-pi", 4, "robust PI mutex", true, false},
	{"locks/turns", "O2", "shared-", 3, "mutex", true, true},
	{"locks/turns", "O2", "shared-robust", 3, "robust mutex", true, false},
	{"locks/turns", "O2", "shared-recursive", 3, "recursive mutex", true, false},
	{"locks/turns", "O2", "rwlock", 4, "rwlock", true, true},
	{"locks/turns", "O2", "rwlock-mixed", 4, "rwlock", true, false},
	{"locks/turns", "O2", "cond", 4, "condition variable", false, true},
	{"locks/turns", "O2", "cond-timed", 4, "condition variable", false, false},
	{"locks/turns", "O2", "sem", 4, "semaphore", false, true},
	{"locks/turns", "O2", "barrier", 4, "barrier", false, true},
	{"locks/turns", "O2", "join", 3, "join", true, true},
	{"locks/turns", "O2", "once", 4, "once", false, false},
	{"locks/turns", "O2", "stdio", 4, "stdio", true, false},
	{"locks/turns", "O2", "flock", 2, "exclusive flock", true, true},
	{"locks/turns", "O2", "fcntl", 1, "write fcntl lock", true, true},
	{"locks/turns", "O2", "ofd", 2, "write open file description lock", false, false},
	{"locks/turns", "musl", "normal", 4, "mutex", false, true},
	{"locks/turns", "musl", "recursive", 4, "recursive mutex", true, false},
	{"locks/turns", "musl", "errorcheck", 4, "errorcheck mutex", true, false},
	{"locks/turns", "musl", "pi", 4, "PI mutex", true, false},
	{"locks/turns", "musl", "robust", 4, "robust mutex", true, false},
	{"locks/turns", "musl", "shared-recursive", 3, "recursive mutex", true, false},
	{"locks/turns", "musl", "rwlock", 4, "rwlock", false, false},
	{"locks/turns", "musl", "cond", 4, "condition variable", false, false},
	{"locks/turns", "musl", "sem", 4, "semaphore", false, false},
	{"locks/turns", "musl", "barrier", 4, "barrier", false, false},
	{"locks/turns", "musl", "join", 3, "join", true, false},
	{"locks/turns", "musl-static", "recursive", 4, "recursive mutex", true, false},
	{"locks/cppturns", "O2", "mutex", 4, "mutex", true, true},
	{"locks/cppturns", "O2", "recursive_mutex", 4, "recursive mutex", true, false},
	{"locks/cppturns", "O2", "timed_mutex", 4, "mutex", true, false},
	{"locks/cppturns", "O2", "shared_mutex", 4, "rwlock", true, true},
	{"locks/cppturns", "O2", "shared_mutex-mixed", 4, "rwlock", true, false},
	{"locks/cppturns", "O2", "condition_variable", 4, "condition variable", false, false},
	{"locks/rustturns", "release", "mutex", 4, "mutex", false, true},
	{"locks/rustturns", "release", "rwlock", 4, "rwlock", false, false},
	{"locks/rustturns", "release", "rwlock-mixed", 4, "rwlock", false, false},
	{"locks/rustturns", "release", "condvar", 4, "condition variable", false, false},
	{"locks/goturns", "default", "mutex", 3, "Go mutex main.mu", false, true},
	{"locks/goturns", "default", "rwmutex", 3, "rwlock (Go ", false, false},
	{"locks/goturns", "default", "receive", 3, "receive from a Go channel", false, true},
	{"locks/goturns", "default", "send", 3, "send to a Go channel", false, false},
	{"locks/goturns", "default", "select", 3, "Go select", false, false},
	{"locks/goturns", "default", "cond", 3, "Go condition variable", false, false},
	{"locks/goturns", "default", "waitgroup", 3, "Go wait group", false, false},
	{"locks/goturns", "default", "sleep", 3, ": sleep", false, false},
	{"locks/goturns", "pie", "mutex", 3, "Go mutex main.mu", false, false},
	{"locks/goturns", "stripped", "mutex", 3, "Go mutex goturns+0x", false, false}, // functions still have names, variables do not
	{"locks/goturns", "stripped", "receive", 3, "receive from a Go channel", false, false},
}

// Threads take turns with a lock and log when. At least 99 of 100 samples inside a wait
// must have the right lock, and the right holder if the kind keeps one. A wait must be
// as long as it was, to an interval.
func TestTurnsTruth(t *testing.T) {
	testprog.Whole(t, "package session/internal/live tests the holders of locks one by one")
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	for _, c := range turnsCases {
		t.Run(strings.TrimPrefix(c.program, "locks/")+"/"+c.variant+"/"+c.kind+"-"+fmt.Sprint(c.threads), func(t *testing.T) {
			if os.Getenv("SLIVER_LONG") == "" && !c.always {
				t.Skip("the short form takes some kinds only; SLIVER_LONG=1 takes all")
			}
			const interval = 4 * time.Millisecond
			args := []string{c.kind, fmt.Sprint(c.threads), "1", "16000"}
			const told = 2 * interval // a sample may come at any time of its tick
			var file string
			switch c.kind {
			case "flock", "fcntl", "ofd":
				file = filepath.Join(t.TempDir(), "x.lock")
				args = append(args, file)
			}
			var v *verdict
			for try := 0; try == 0 || try < tries && v.few(c.holder); try++ {
				rec, log := recordTurns(t, testprog.Build(t, c.program, c.variant), interval, args...)
				v = judge(rec, log, interval, told, func(p *picture, w *turn) bool {
					if file != "" {
						return p.wait.Kind == "lock" && p.wait.File == file && strings.Contains(p.wait.Args, c.want)
					}
					switch {
					case strings.HasPrefix(c.kind, "cond") && (strings.HasPrefix(p.wait.Args, "mutex") || strings.Contains(p.wait.Args, "signalled")):
						return true // woken, it needs its mutex again
					case c.variant == "musl" && c.kind == "barrier":
						return strings.Contains(p.wait.Args, c.want) // only its first thread knows the address
					}
					return strings.Contains(p.wait.Args, c.want) && (p.lock == w.lock || w.lock == 0)
				})
				t.Log(v)
			}
			v.check(t, c.holder)
		})
	}
}

// few reports whether a recording of a second has too few waits for a verdict, or fails
// the requirements: on a busy machine another one decides.
func (v *verdict) few(holder bool) bool {
	return v.waits < 10 || v.samples < 50 || v.unlike() || holder && (v.held-v.holder)*100 > v.held || v.short+v.long+v.lost > 1+v.waits/50
}

// unlike reports whether more than one of a hundred samples has the wrong lock.
func (v *verdict) unlike() bool { return (v.samples-v.right-1)*100 > v.samples }

func (v *verdict) check(t *testing.T, holder bool) {
	t.Helper()
	if v.waits < 10 || v.samples < 50 {
		t.Errorf("%d waits, %d samples in them, %d missing", v.waits, v.samples, v.unseen)
	}
	v.checkFew(t, holder)
}

// checkFew is check for tests in which few waits are enough.
func (v *verdict) checkFew(t *testing.T, holder bool) {
	t.Helper()
	if v.waits < 2 || v.samples < 20 {
		t.Errorf("%d waits, %d samples in them, %d missing", v.waits, v.samples, v.unseen)
	}
	// One is allowed: of so few samples it may be more than a hundredth.
	if v.unlike() {
		t.Errorf("the right lock in %d of %d samples", v.right, v.samples)
	}
	if holder && (v.held-v.holder-1)*100 > v.held || (v.wrong-1)*100 > v.held {
		t.Errorf("the right holder in %d of %d samples, a wrong one in %d", v.holder, v.held, v.wrong)
	}
	if bad := v.short + v.long + v.lost; bad > 1+v.waits/50 {
		t.Errorf("%d of %d waits are not as long as they were", bad, v.waits-v.excused)
	}
}

package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// TestRubyLoad samples a busy program in Ruby: of 1,000 stacks, 999 must be complete, down to the
// function with which the program began, also if an Enumerator runs in a Fiber.
func TestRubyLoad(t *testing.T) {
	testprog.Need(t, "ptrace")
	want := uint64(4000)
	if os.Getenv("SLIVER_LONG") != "" {
		want = 20_000
	}
	sel, err := sampler.ParseSelection("main")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"ruby3.1", "ruby3.3", "ruby3.4"} {
		t.Run(v, func(t *testing.T) {
			if v != "ruby3.4" {
				testprog.Whole(t, "the newest version")
			}
			program := filepath.Join(testprog.Root(t), "lang", "ruby", "testdata", "load.rb")
			p := testprog.Start(t, testprog.Tool(t, v), program, "0", "3600")
			p.Line("ready")
			rec := recordWith(t, p.PID, Options{Interval: time.Millisecond, Jitter: .2, Selection: sel}, func(s stack.ThreadStats) bool { return s.Stopped() > want })
			total := rec.Stats.Total()
			if total.Truncated*1000 > total.Samples {
				t.Errorf("%d of %d stacks are not complete%s", total.Truncated, total.Samples, errorFrames(rec))
			}
			r := &roots{n: trace.NewNames(rec), of: map[string]int{}}
			for i := range rec.Threads {
				r.stack = nil
				rec.Replay(rec.Threads[i].Seq, r.n, r)
			}
			wrong := r.none
			for root, n := range r.of {
				if root != "<main>" {
					t.Logf("%d stacks begin with %s", n, root)
					wrong += n
				}
			}
			if uint64(wrong)*1000 > total.Samples || r.of["<main>"] == 0 {
				t.Errorf("%d of %d stacks do not begin with the program: %v, %d without Ruby", wrong, total.Samples, r.of, r.none)
			}
			per := float64(total.Stops) / float64(total.Stopped())
			t.Logf("%d samples, %d by a stop, %.3f stops each; %d with gaps; %d with another beginning; pauses %v mean, walks %v",
				total.Samples, total.Stopped(), per, total.Truncated, wrong, time.Duration(total.PauseNS/int64(total.Stops)), time.Duration(total.WalkNS/int64(total.Samples-total.Unrun)))
			if per > 1.25 {
				t.Errorf("%.2f stops a sample", per)
			}
			checkReads(t, total, 1.25)
		})
	}
}

// roots counts the samples by their outermost function of Ruby.
type roots struct {
	n     *trace.Names
	stack []string // functions of Ruby; "": others
	of    map[string]int
	none  int // samples without one
}

func (r *roots) Begin(_ stack.Time, depth int, s *trace.Slice) {
	name := ""
	if s.Loc != nil && s.Loc.Word.Kind() == stack.KindRuby {
		name = r.n.Func(&s.Frame).Name
	}
	r.stack = append(r.stack[:depth], name)
}

func (r *roots) End(_ stack.Time, depth int, _ *trace.Slice) { r.stack = r.stack[:depth] }

func (r *roots) Other(e event.Event) {
	if e.Kind() != event.Seen {
		return
	}
	_, n, _ := event.SeenFields(e.Payload())
	for _, name := range r.stack {
		if name != "" {
			r.of[name] += n
			return
		}
	}
	r.none += n
}

// TestRubyWaitsRecorded: a recording of threads that wait in Ruby's own calls must have the mutexes with the
// threads that hold them, and the sleeps.
func TestRubyWaitsRecorded(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, v := range []string{"ruby3.1", "ruby3.3", "ruby3.4"} {
		t.Run(v, func(t *testing.T) {
			p := testprog.Start(t, testprog.Tool(t, v), filepath.Join(testprog.Root(t), "lang", "ruby", "testdata", "waits.rb"))
			p.Line("ready")
			tids := map[string]stack.TID{}
			for _, line := range p.Output() {
				if f := strings.Fields(line); len(f) == 6 && f[0] == "wait" {
					tid, err := strconv.Atoi(f[2])
					if err != nil {
						t.Fatal(err)
					}
					tids[f[1]] = stack.TID(tid)
				}
			}
			// With 14 threads, each is sampled some hundred times.
			rec := recordWith(t, p.PID, Options{Interval: 5 * time.Millisecond}, func(s stack.ThreadStats) bool { return s.Samples > 3000 })
			v := view.New(rec, view.Options{})
			c := contend.Of(v)
			waits := map[string]int{} // by the lock's type and its holder
			for i := range c.Locks {
				l := &c.Locks[i]
				for _, s := range l.Sightings {
					if strings.HasPrefix(l.Name, "Ruby mutex at 0x") && s.By == event.KnownByRuntime {
						waits[fmt.Sprint("mutex of ", s.TID)] += len(l.Waits)
					}
				}
			}
			for _, w := range c.Waits {
				if name := c.Locks[w.Lock].Name; strings.HasPrefix(name, "Ruby mutex") && (w.Asker < 0 || !strings.HasPrefix(v.Names.Funcs[w.Asker].Name, "block ")) {
					t.Errorf("%s is not wanted in a block of the program: %d", name, w.Asker)
				}
			}
			for _, holder := range []string{"holder", "owner", "left", "right"} {
				if waits[fmt.Sprint("mutex of ", tids[holder])] == 0 {
					t.Errorf("no mutex of %s (%d): %v", holder, tids[holder], waits)
				}
			}
			sleeps := 0
			for _, w := range rec.Waits {
				if w.Kind == "sleep" && w.Args == "Kernel#sleep" {
					sleeps++
				}
				if strings.Contains(w.Args, "Thread.sleep") {
					t.Errorf("a wait %+v", w)
				}
			}
			if sleeps == 0 {
				t.Errorf("no sleep among %+v", rec.Waits)
			}
		})
	}
}

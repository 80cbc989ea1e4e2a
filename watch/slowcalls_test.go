package watch

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch/control"
)

// TestSlowCall: a traced call that takes too long makes the recorder dump, with the call and the samples around it.
// Shorter calls of the function are counted alone.
func TestSlowCall(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	p := trouble(t)
	countable(t, p)
	r := begin(t, fixed(t, p.PID), nil, "call slow_request slower=150ms,cool=0s,threads=worker-*", "call slow_* slower=1h", "crash no")
	r.samples(50)
	exactly := func(s *control.Status) bool {
		return len(s.Dumps) > 0 && strings.Contains(s.Dumps[len(s.Dumps)-1].Text, " was in slow_request for ")
	}
	ask := func(what string, ms string, done func(*control.Status) bool) *control.Status {
		return r.until(what, func(s *control.Status) bool {
			if done(s) {
				return true
			}
			p.Say("slow " + ms)
			p.Line("slow")
			return false
		})
	}
	// Its tables are read first: until then samples alone find such calls.
	before := ask("for the first call that is traced", "200", exactly)
	// With nothing under way, a short call does not fire, and a long one does.
	quiet := *before
	for last := -1; last != quiet.Fired; { // dumps of the calls before that one may still come
		last = quiet.Fired
		r.samples(quiet.Targets[0].Samples + 500)
		quiet = r.Status()
	}
	p.Say("slow 20")
	p.Line("slow")
	r.samples(quiet.Targets[0].Samples + 300)
	if s := r.Status(); s.Fired != quiet.Fired {
		t.Errorf("a short call fired: %+v", s)
	}
	begun := target.Now()
	p.Say("slow 300")
	p.Line("slow")
	s := r.until("for the dump", func(s *control.Status) bool { return len(s.Dumps) > len(quiet.Dumps) && exactly(s) })
	d := s.Dumps[len(s.Dumps)-1]
	if d.Reason != "call" || s.Fired != quiet.Fired+1 {
		t.Errorf("%+v", s)
	}
	rec := open(t, d.Files[0])
	x := rec.Triggers[0]
	if rec.Traced == nil || x.Kind != "call" || x.Rule != "call slow_request slower=150ms,cool=0s,threads=worker-*" {
		t.Fatalf("%+v, %+v", rec.Traced, x)
	}
	var found, all int
	for c, err := range rec.Calls() {
		if err != nil {
			t.Fatal(err)
		}
		all++
		if took := time.Duration(c.Duration()); took < 150*time.Millisecond {
			t.Errorf("a call of %v is in the dump", took)
		}
		if c.Enter >= begun && c.TID == x.TID && time.Duration(c.Duration()) >= 300*time.Millisecond {
			found++
			if l := look(rec, x.TID, "slow_request"); l.longest < 150*time.Millisecond {
				t.Errorf("by samples, it took %v", l.longest)
			}
			if rec.ThreadOf(c.TID, c.Exit) < 0 {
				t.Errorf("its thread %d is not in the dump", c.TID)
			}
		}
	}
	if f := rec.Traced.Functions; found != 1 || len(f) != 1 || f[0].Name != "slow_request" || int(f[0].Calls) <= all || rec.Traced.Slower != int64(150*time.Millisecond) {
		t.Errorf("%d of %d calls; %+v", found, all, rec.Traced)
	}
}

// TestSlowCallTooOften: a function that is called all the time is traced only for a moment, and the log says so.
func TestSlowCallTooOften(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/traced", "O2"), "hot", "1")
	p.Ready()
	countable(t, p)
	log := &sent{all: make(chan string, 1000)}
	r := begin(t, fixed(t, p.PID), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }, "call probed slower=1h", "crash no")
	r.samples(1)
	p.Say("go")
	log.waits(t, "traces calls")
	log.waits(t, "called too often to be traced")
	r.samples(r.Status().Targets[0].Samples + 20) // it goes on
}

// TestSlowCallLater: a function of a library that is loaded later is traced from then on.
func TestSlowCallLater(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	lib := testprog.Build(t, "c/laterlib", "O2")
	p := testprog.Start(t, testprog.Build(t, "c/latecalls", "O2"), "300", lib)
	p.Ready()
	countable(t, p)
	log := &sent{all: make(chan string, 1000)}
	r := begin(t, fixed(t, p.PID), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }, "call later slower=1h", "crash no")
	log.waits(t, "no function of this name can be traced so far")
	p.Say("load")
	p.Line("loaded")
	log.waits(t, filepath.Base(lib)) // it traces calls of a function of this file
	p.Say("call")
	p.Line("called")
	p.Say("unload")
	r.samples(1)
}

// sent sends each log line to a channel.
type sent struct{ all chan string }

// waits waits for a line.
func (l *sent) waits(t *testing.T, what string) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case line := <-l.all:
			if strings.Contains(line, what) {
				return
			}
		case <-limit:
			t.Fatalf("the log does not say %q", what)
		}
	}
}

func (l *sent) Write(b []byte) (int, error) {
	select {
	case l.all <- string(b):
	default: // the test reads no more lines
	}
	return len(b), nil
}

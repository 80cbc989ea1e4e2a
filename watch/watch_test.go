package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/watch/dumps"
	"github.com/sliverprof/sliver/watch/trigger"
)

// logged is a log that is shown when the test fails.
type logged struct {
	mu sync.Mutex
	t  *testing.T
	ok bool
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ok {
		l.t.Logf("%s", strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

// running is a Watcher in progress.
type running struct {
	*Watcher
	t     *testing.T
	dir   string
	ended chan error
	stop  context.CancelFunc
}

func rules(t *testing.T, texts ...string) (out []*trigger.Rule) {
	t.Helper()
	for _, x := range texts {
		kind, text, _ := strings.Cut(x, " ")
		r, err := trigger.Parse(trigger.Kind(kind), text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// begin watches src with options that the test changes.
func begin(t *testing.T, src Source, change func(*Options), texts ...string) *running {
	t.Helper()
	dir := t.TempDir()
	sel, err := sampler.ParseSelection("all")
	if err != nil {
		t.Fatal(err)
	}
	log := &logged{t: t}
	o := Options{Name: "test", Keep: 30 * time.Second, RingDir: t.TempDir(), Rules: rules(t, texts...), Store: &dumps.Store{Dir: dir},
		Session: session.Options{Interval: 20 * time.Millisecond, Jitter: .1, Groups: 3, Selection: sel},
		Log:     slog.New(slog.NewTextHandler(log, nil))}
	if change != nil {
		change(&o)
	}
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{w, t, dir, make(chan error, 1), cancel}
	go func() { r.ended <- w.Run(ctx, src) }()
	t.Cleanup(func() {
		cancel()
		if err, ok := <-r.ended; ok && err != nil {
			t.Errorf("the watcher ended: %v", err)
		}
		log.mu.Lock()
		log.ok = true
		log.mu.Unlock()
	})
	return r
}

// until waits for a condition of the watcher's state.
func (r *running) until(what string, cond func(*control.Status) bool) *control.Status {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.Now().Add(time.Minute)
	for {
		s := r.Status()
		if cond(&s) {
			return &s
		}
		if time.Now().After(limit) {
			r.t.Fatalf("it waits in vain: %s; %+v", what, s)
		}
		<-tick.C
	}
}

// samples waits for n samples.
func (r *running) samples(n uint64) {
	r.t.Helper()
	r.until(fmt.Sprintf("for %d samples", n), func(s *control.Status) bool { return len(s.Targets) > 0 && s.Targets[0].Samples >= n })
}

func open(t *testing.T, path string) *trace.Recording {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(f, fi.Size())
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Problems) > 0 || rec.End == nil || rec.Symbols == nil {
		t.Fatalf("%s: problems %v, end %v", path, rec.Problems, rec.End)
	}
	return rec
}

// found is the appearance of a function in a dump: its longest slice, and whether a mark is inside it.
type found struct {
	n       *trace.Names
	fn      string
	begin   stack.Time
	longest time.Duration
	marks   []stack.Time
	at      int
}

func (f *found) Begin(t stack.Time, depth int, s *trace.Slice) {
	if f.n.Func(&s.Frame).Name == f.fn && f.at < 0 {
		f.begin, f.at = t, depth
	}
}
func (f *found) End(t stack.Time, depth int, _ *trace.Slice) {
	if depth == f.at {
		f.longest, f.at = max(f.longest, time.Duration(t-f.begin)), -1
	}
}
func (f *found) Other(e event.Event) {
	if e.Kind() == event.Mark && stack.Why(e.Payload()) == stack.WhyTrigger {
		f.marks = append(f.marks, e.Time)
	}
}

func look(rec *trace.Recording, tid stack.TID, fn string) *found {
	f := &found{n: trace.NewNames(rec), fn: fn, at: -1}
	for i := range rec.Threads {
		if tid == 0 || rec.Threads[i].TID == tid {
			rec.Replay(rec.Threads[i].Seq, f.n, f)
		}
	}
	return f
}

// fixed is a Source of one process.
func fixed(t *testing.T, pid int) Source {
	t.Helper()
	p, err := target.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return Source{Fixed: []*target.Process{p}, What: "nothing more"}
}

func trouble(t *testing.T) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/trouble", "O2"))
	p.Line("serving")
	return p
}

// Each problem fires its trigger, once, and the dump shows the problem. Before that, a healthy server
// fires nothing: for ten minutes with SLIVER_LONG=1, and in time then.
func TestTriggers(t *testing.T) {
	p := trouble(t)
	file := filepath.Join(t.TempDir(), "flag")
	texts := []string{"stall 600ms,cool=0s", "slow slow_request>300ms", "blocked 500ms,threads=worker-*", "deadlock 400ms",
		"cpu 8%,checks=2,every=400ms,threads=burner", "memory 50%,checks=3,every=200ms", "fds 60%,checks=2,every=200ms",
		"call marker_function", "file " + file, "crash yes"}
	src := fixed(t, p.PID)
	u, err := src.Fixed[0].Usage(target.ResourceMemory|target.ResourceFDs, new(target.Shared))
	if err != nil {
		t.Fatal(err)
	}
	r := begin(t, src, func(o *Options) { o.MemLimit = 128 << 20 }, texts...)
	healthy := uint64(4 * 50 * 2)
	long := os.Getenv("SLIVER_LONG") != ""
	if long {
		healthy = 4 * 50 * 600
		deadline := time.NewTimer(10 * time.Minute)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for waiting := true; waiting; {
			select {
			case <-tick.C:
				if s := r.Status(); s.Fired > 0 {
					t.Fatalf("fired on a healthy server: %+v", s.Dumps)
				}
			case <-deadline.C:
				waiting = false
			}
		}
		healthy = healthy / 2 // some may be late on a busy machine
	}
	r.samples(healthy)
	if s := r.Status(); s.Fired > 0 || len(s.Dumps) > 0 {
		t.Fatalf("fired on a healthy server: %+v", s.Dumps)
	}
	for i, c := range []struct {
		say, reason, fn string
		least           time.Duration // minimum that the dump shows of fn
		limit           time.Duration // of the rule
	}{
		{"spin 1500", "stall", "compute_report", 400 * time.Millisecond, 600 * time.Millisecond},
		{"sleep 1500", "stall", "wait_for_disk", 400 * time.Millisecond, 600 * time.Millisecond},
		{"slow 1000", "slow", "slow_request", 250 * time.Millisecond, 300 * time.Millisecond},
		{"lock 1500", "blocked", "take_ledger", 400 * time.Millisecond, 500 * time.Millisecond},
		{"deadlock", "deadlock", "lock_second", 300 * time.Millisecond, 400 * time.Millisecond},
		{"burn 3000", "cpu", "burn", 300 * time.Millisecond, 800 * time.Millisecond},
		{"leak 80", "memory", "", 0, 600 * time.Millisecond},
		{"fds " + fmt.Sprint(u.FDLimit*7/10), "fds", "", 0, 400 * time.Millisecond},
		{"mark", "call", "marker_function", 0, 0},
		{"write " + file, "file", "", 0, 0},
	} {
		if c.reason == "memory" && u.Known.Group || c.reason == "fds" && u.FDLimit > 20_000 {
			continue // a limit that cannot be reached here
		}
		// Between two problems it must be healthy.
		st := r.Status()
		r.samples(st.Targets[0].Samples + 100)
		before := len(st.Dumps)
		p.Say(c.say)
		word, _, _ := strings.Cut(c.say, " ")
		said := p.Line(word + " ")
		of := func(d control.Dump) bool { return d.Reason == c.reason }
		// These problems are in the event loop: on a busy machine it may stall in them, too.
		more := func(d control.Dump) bool {
			return d.Reason == "stall" && (c.reason == "memory" || c.reason == "fds")
		}
		s := r.until("for a dump of "+c.say, func(s *control.Status) bool {
			return slices.ContainsFunc(s.Dumps[before:], func(d control.Dump) bool { return of(d) || !more(d) })
		})
		got := slices.DeleteFunc(slices.Clone(s.Dumps[before:]), more)
		if len(got) != 1 || !of(got[0]) {
			t.Fatalf("%s: %+v, want one for %s", c.say, s.Dumps[before:], c.reason)
		}
		d := got[0]
		rec := open(t, d.Files[0])
		if len(rec.Triggers) != 1 || rec.Triggers[0].Kind != c.reason || rec.Triggers[0].Text == "" || rec.Triggers[0].Rule == "" || len(rec.Triggers[0].Values) == 0 {
			t.Errorf("%s: triggers %+v", c.say, rec.Triggers)
			continue
		}
		tr := &rec.Triggers[0]
		f := look(rec, tr.TID, c.fn)
		if c.fn != "" && f.longest < c.least {
			t.Errorf("%s: the dump shows %v of %s: %s", c.say, f.longest, c.fn, tr.Text)
		}
		if c.fn != "" && c.reason != "deadlock" && c.reason != "blocked" && c.reason != "cpu" && !strings.Contains(tr.Text, c.fn) {
			t.Errorf("%s: %q does not name %s", c.say, tr.Text, c.fn)
		}
		if c.reason == "blocked" && !strings.Contains(tr.Text, "held by") {
			t.Errorf("%s: %q does not name the holder", c.say, tr.Text)
		}
		if marks := look(rec, 0, "").marks; !slices.Equal(marks, []stack.Time{tr.At}) {
			t.Errorf("%s: marked at %v, fired at %d", c.say, marks, tr.At)
		}
		var begun int64
		fmt.Sscan(strings.TrimPrefix(said, word), &begun)
		late := time.Duration(int64(tr.At)-begun) - c.limit
		t.Logf("%d: %s: %v after its time; %s", i, c.say, late.Round(time.Millisecond), tr.Text)
		if long && late > 2*time.Second {
			t.Errorf("%s fired %v late", c.say, late)
		}
	}
	fired := r.Status().Fired
	p.Say("crash")
	s := r.until("for the dump of the crash", func(s *control.Status) bool { return len(s.Targets) == 0 })
	if s.Fired == fired && kernelBefore(6, 15) {
		t.Log("the kernel does not tell how a process ended: no dump of the crash")
		return
	}
	d := s.Dumps[len(s.Dumps)-1]
	if d.Reason != "crash" || !strings.Contains(d.Text, "SIGSEGV") || s.Fired != fired+1 {
		t.Fatalf("crash: %+v", d)
	}
	rec := open(t, d.Files[0])
	if f := look(rec, stack.TID(p.PID), "broken_handler"); f.longest < 20*time.Millisecond {
		t.Errorf("crash: the dump shows %v of broken_handler", f.longest)
	}
}

func kernelBefore(major, minor int) bool {
	var a, b int
	fmt.Sscanf(target.ReadHost().Kernel, "%d.%d", &a, &b)
	return a < major || a == major && b < minor
}

// The recorder waits for a missing target, and watches it again after it restarts; several are watched
// at once.
func TestRestart(t *testing.T) {
	testprog.Need(t, "ptrace")
	name := fmt.Sprintf("trb-%d", os.Getpid())
	b, err := os.ReadFile(testprog.Build(t, "c/trouble", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	match, err := target.Named("trb-*")
	if err != nil {
		t.Fatal(err)
	}
	mine := func(f *target.Found) bool { return match(f) && f.Comm == name }
	r := begin(t, Source{Find: target.NewFinder(mine).Find, What: "a process named " + name}, nil, "crash yes")
	r.until("for nothing", func(s *control.Status) bool { return s.Waiting != "" && len(s.Targets) == 0 })
	if _, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil); err == nil || !strings.Contains(err.Error(), "waiting for a process named") {
		t.Errorf("dump of nothing: %v", err)
	}
	for range 2 {
		p := testprog.Start(t, path)
		p.Line("serving")
		q := testprog.Start(t, path)
		q.Line("serving")
		s := r.until("for two targets", func(s *control.Status) bool {
			return len(s.Targets) == 2 && s.Targets[0].Samples > 20 && s.Targets[1].Samples > 20
		})
		if s.Targets[0].PID == s.Targets[1].PID || s.Targets[0].RingFile == "" {
			t.Errorf("%+v", s.Targets)
		}
		if _, err := os.Stat(s.Targets[0].RingFile); err != nil {
			t.Error(err)
		}
		ds, err := r.Dump(context.Background(), control.Request{Kind: "request", Target: fmt.Sprint(p.PID)}, nil)
		if err != nil || len(ds) != 1 || ds[0].PID != p.PID {
			t.Fatalf("%+v, %v", ds, err)
		}
		if rec := open(t, ds[0].Files[0]); rec.Process.PID != p.PID {
			t.Errorf("recorded %d, want %d", rec.Process.PID, p.PID)
		}
		if _, err := r.Dump(context.Background(), control.Request{Kind: "request", Target: "frob"}, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v", err)
		}
		// Among all targets, those that have just ended are omitted.
		all := func(want int) {
			t.Helper()
			ds, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil)
			if err != nil || len(ds) != want || want == 2 && ds[0].Files[0] == ds[1].Files[0] {
				t.Errorf("%d dumps for %d targets: %+v, %v", len(ds), want, ds, err)
			}
		}
		ended := func(i int, yes bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			x := r.targets[i]
			x.askMu.Lock()
			defer x.askMu.Unlock()
			x.over = yes
		}
		all(2)
		ended(0, true)
		all(1)
		ended(1, true)
		if _, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil); !errors.Is(err, errNotWatched) {
			t.Errorf("of none: %v", err)
		}
		ended(0, false)
		ended(1, false)
		p.Say("exit")
		q.Say("exit")
		r.until("for the end of both", func(s *control.Status) bool { return len(s.Targets) == 0 })
		if _, err := os.Stat(s.Targets[0].RingFile); err == nil {
			t.Error("the ring file stays")
		}
	}
	if s := r.Status(); s.Fired != 0 || len(s.Dumps) != 2*4 {
		t.Errorf("%+v", s)
	}
}

// Dumps have unique names, even if processes of one name dump at once.
func TestMoment(t *testing.T) {
	w := &Watcher{}
	w.o.Store = &dumps.Store{}
	seen := map[string]bool{}
	begun := time.Now().Add(-time.Millisecond)
	for range 50 {
		at := w.moment()
		if at.Before(begun) {
			t.Fatal("before now")
		}
		seen[w.o.Store.Stem("worker", at, "stall")] = true
	}
	if len(seen) != 50 {
		t.Errorf("%d names for 50 dumps", len(seen))
	}
}

// Recipients of notifications; the limits of the folder; a full disk.
func TestDumpsAndNotices(t *testing.T) {
	p := trouble(t)
	out := filepath.Join(t.TempDir(), "told")
	var hook struct {
		Recorder, Reason, Text string
		PID                    int
		Files                  []string
		Triggers               []trace.Trigger
	}
	hooked := make(chan error, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		hooked <- json.Unmarshal(b, &hook)
	}))
	defer srv.Close()
	socket := filepath.Join(t.TempDir(), "journal")
	journal, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	r := begin(t, fixed(t, p.PID), func(o *Options) {
		o.Formats = []string{".folded"}
		o.Store.Max = 2
		o.Notify = Notify{Exec: "echo $SLIVER_REASON $SLIVER_PID $SLIVER_DUMP >> " + out, Webhook: srv.URL, Journal: socket}
	})
	r.samples(50)
	for range 3 {
		ds, err := r.Dump(context.Background(), control.Request{Kind: "request", Text: "for the test"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-hooked; err != nil {
			t.Error(err)
		}
		if hook.Recorder != "test" || hook.PID != p.PID || hook.Reason != "request" || hook.Text != "for the test" || len(hook.Files) != 2 ||
			hook.Files[0] != ds[0].Files[0] || len(hook.Triggers) != 1 {
			t.Errorf("the web hook got %+v", hook)
		}
		b := make([]byte, 4096)
		if n, err := journal.Read(b); err != nil || !strings.Contains(string(b[:n]), "SLIVER_DUMP="+ds[0].Files[0]+"\n") || !strings.Contains(string(b[:n]), "MESSAGE=trouble") {
			t.Errorf("the journal got %q, %v", b[:n], err)
		}
	}
	all, err := r.o.Store.List()
	if err != nil || len(all) != 2 || len(all[0].Files) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	var told []string
	r.until("for the command", func(*control.Status) bool {
		b, _ := os.ReadFile(out)
		told = strings.Split(strings.TrimSpace(string(b)), "\n")
		return len(told) == 3
	})
	if !strings.HasPrefix(told[0], fmt.Sprintf("request %d %s", p.PID, r.dir)) {
		t.Errorf("the command was told %q", told)
	}
	var sent strings.Builder
	if _, err := r.Dump(context.Background(), control.Request{Kind: "request"}, &sent); err != nil || !strings.HasPrefix(sent.String(), trace.Magic) {
		t.Errorf("sent %d bytes, %v", sent.Len(), err)
	}
	if again, err := r.o.Store.List(); err != nil || len(again) != 2 {
		t.Errorf("a dump that was sent stays: %+v, %v", again, err)
	}
	// A missing folder costs the dump, not the recording.
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil); err == nil {
		t.Error("no error of a folder that is gone")
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if s := r.Status(); s.Failed != 1 || s.Trouble == "" {
		t.Errorf("%+v", s)
	}
	n := r.Status().Targets[0].Samples
	r.samples(n + 20)
	if _, err := r.Dump(context.Background(), control.Request{Kind: "request"}, nil); err != nil {
		t.Error(err)
	}
	<-hooked
}

// Rules can be replaced at run time.
func TestReload(t *testing.T) {
	p := trouble(t)
	r := begin(t, fixed(t, p.PID), nil)
	r.samples(100)
	p.Say("mark")
	p.Line("mark")
	if err := r.Reload(rules(t, "slow slow_request>200ms"), Notify{}); err != nil {
		t.Fatal(err)
	}
	if s := r.Status(); len(s.Triggers) != 1 || s.Fired != 0 {
		t.Errorf("%+v", s)
	}
	r.until("for a dump by the new rule", func(s *control.Status) bool {
		if len(s.Dumps) == 0 {
			p.Say("slow 400") // the new rules apply from the next look on
		}
		return len(s.Dumps) > 0 && s.Dumps[0].Reason == "slow"
	})
}

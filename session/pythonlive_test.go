package session

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/unwind/managed"
)

// pythonPlaces returns the locations of rec's threads in functions of Python.
func pythonPlaces(rec *trace.Recording) (out []naming.Place) {
	for i := range rec.Threads {
		for e := range rec.Events(rec.Threads[i].Seq) {
			if k := e.Kind(); k == event.Enter || k == event.Move {
				if w := event.Word(e.Payload()); w.Kind() == stack.KindPython {
					out = append(out, naming.Place{Addr: w.Lookup(), At: e.Time})
				}
			}
		}
	}
	return out
}

// namesOf returns the names of Python's functions by location.
func namesOf(rec *trace.Recording, s *trace.Symbols) map[uint64]symbol.Frame {
	out := map[uint64]symbol.Frame{}
	for k, fs := range s.Locs {
		if rec.Modules[k.Module].Path == managed.Of(stack.KindPython).Module {
			f := s.Funcs[fs[0].Func]
			out[k.Addr] = symbol.Frame{Func: f.Name, File: fs[0].File, Line: fs[0].Line, StartFile: f.File, StartLine: f.StartLine, Start: f.Start}
		}
	}
	return out
}

// TestPythonNames: functions must have the same names while a recording grows, when it
// is done, and when it was cut off and the program is gone.
func TestPythonNames(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Tool(t, "python3"), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "busy.py"), "objects", "matching", "waiting")
	p.Ready()
	p.Go()
	p.Line("busy")
	var growing map[uint64]symbol.Frame
	live := map[uint64]symbol.Frame{}
	rec := recordWhole(t, p.PID, Options{Interval: 2 * time.Millisecond, Live: true}, func(s *Session) {
		await(t, "some samples", func() bool { return s.Status().Total.Samples > 500 })
		now, release, err := s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		growing = namesOf(now, now.Symbols)
		places := pythonPlaces(now)
		s.names.Name(context.Background(), places, func(i int, module string, _ uint64, fs []symbol.Frame) {
			if len(fs) > 0 {
				live[places[i].Addr] = fs[0]
			}
			if module != managed.Of(stack.KindPython).Module {
				t.Errorf("%#x is in %s", places[i].Addr, module)
			}
		})
	})
	p.Kill()
	done := namesOf(rec, rec.Symbols)
	if len(growing) < 20 || len(done) < len(growing) {
		t.Errorf("%d places while it grew, %d then", len(growing), len(done))
	}
	for _, a := range pythonPlaces(rec) {
		if f := done[a.Addr]; f.Func == "" || f.File == "" {
			t.Errorf("%#x is %+v", a.Addr, f)
		}
	}
	for a, f := range growing {
		if done[a] != f || live[a] != f {
			t.Errorf("%#x: %+v while it grew, %+v on the page, %+v then", a, f, live[a], done[a])
		}
	}
	cut, problems := naming.Symbols(rec, SameFiles{}, naming.Options{Captured: rec.Captured})
	if got := namesOf(rec, cut); !reflect.DeepEqual(got, done) || len(problems) > 0 {
		t.Errorf("from what was kept there are %d of %d names: %q", len(got), len(done), problems)
	}
}

// TestPythonKept: a flight recorder's dump must have the names too, and so must its triggers.
func TestPythonKept(t *testing.T) {
	testprog.Need(t, "ptrace")
	prog := testprog.Start(t, testprog.Tool(t, "python3"), filepath.Join(testprog.Root(t), "testdata", "targets", "python", "busy.py"), "objects")
	prog.Ready()
	prog.Go()
	prog.Line("busy")
	p, err := target.Open(prog.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	mem, err := ringfile.New(16 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close(true)
	f, err := NewFlight(p, Options{Interval: 2 * time.Millisecond, Groups: 2}, time.Second, mem)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := f.Run(ctx)
		ended <- err
	}()
	defer func() { cancel(); <-ended }()
	await(t, "some samples", func() bool { s := f.Stats(); return s.Total().Samples > 300 })
	file := filepath.Join(t.TempDir(), "run.sliver")
	out, err := export.ParseOutput(file, "")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := f.Dump(Dump{Outputs: []export.Output{out}}); err != nil || len(d.Problems) > 0 {
		t.Fatal(err, d.Problems)
	}
	r, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rec, err := openRecording(r)
	if err != nil {
		t.Fatal(err)
	}
	names := namesOf(rec, rec.Symbols)
	n := f.Namer()
	defer n.Close()
	seen := map[string]bool{}
	for i := range rec.Threads {
		for e := range rec.Events(rec.Threads[i].Seq) {
			w := event.Word(e.Payload())
			if k := e.Kind(); k != event.Enter && k != event.Move || w.Kind() != stack.KindPython {
				continue
			}
			name := names[w.Lookup()].Func
			if live := n.Funcs(w, e.Time); name == "" || len(live) != 1 || live[0] != name {
				t.Fatalf("%#x is %q, and %q to triggers", w.Lookup(), name, live)
			}
			seen[name] = true
		}
	}
	if !seen["objects"] {
		t.Errorf("functions %v", seen)
	}
}

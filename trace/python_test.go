package trace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// summary is the output of testdata/read_recording.py for a thread.
type summary struct {
	Seq       int            `json:"seq"`
	Name      string         `json:"name"`
	Slices    int            `json:"slices"`
	Samples   int            `json:"samples"`
	Events    int            `json:"events"`
	Functions map[string]int `json:"functions"`
}

// counter builds a summary of the replay.
type counter struct {
	summary
	rec   *trace.Recording
	names *trace.Names
}

func (c *counter) Enter(t stack.Time, _ int, f diff.Frame) {
	c.Slices++
	c.Functions[c.name(f.Word, f.Entered)]++
}

func (c *counter) Exit(stack.Time, int, diff.Frame) {}
func (c *counter) Move(stack.Time, int, diff.Frame) {}

func (c *counter) Other(e event.Event) {
	if e.Kind() == event.Seen {
		_, n, _ := event.SeenFields(e.Payload())
		c.Samples += n
	}
}

// name returns the name of the innermost function; ? if unnamed.
func (c *counter) name(w event.Word, t stack.Time) string {
	if w.Kind() == stack.KindError {
		return fmt.Sprintf("[reason %d]", w.Addr())
	}
	frames := c.rec.Symbols.Locs[c.names.Resolve(w, t).Key]
	if len(frames) == 0 {
		return "?"
	}
	return c.rec.Symbols.Funcs[frames[0].Func].Name
}

// TestPythonReader verifies docs/recording-format.md: a reader written from it, in
// another language, reads a recording of a live process with the same result as this
// package.
func TestPythonReader(t *testing.T) {
	testprog.Need(t, "ptrace", "go", "python3")
	path := record(t, testprog.Build(t, "go/chain", "default"))
	out, err := exec.Command(testprog.Tool(t, "python3"), "testdata/read_recording.py", path).Output()
	if err != nil {
		t.Fatalf("read_recording.py: %v%s", err, stderr(err))
	}
	var got []summary
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	rec := open(t, path)
	if len(got) != len(rec.Threads) || len(got) < 3 {
		t.Fatalf("%d threads, want %d", len(got), len(rec.Threads))
	}
	bySeq := map[int]summary{}
	for _, g := range got {
		bySeq[g.Seq] = g
	}
	names, slices, samples := trace.NewNames(rec), 0, 0
	for _, th := range rec.Threads {
		want := counter{summary{Seq: th.Seq, Name: th.Name, Functions: map[string]int{}}, rec, names}
		var r diff.Replayer
		for e := range rec.Events(th.Seq) {
			want.Events++
			r.Apply(e, &want)
		}
		g := bySeq[th.Seq]
		if g.Name != want.Name || g.Slices != want.Slices || g.Samples != want.Samples || g.Events != want.Events ||
			!maps.Equal(g.Functions, want.Functions) {
			t.Errorf("thread %d:\nPython %+v\nGo     %+v", th.TID, g, want.summary)
		}
		slices += want.Slices
		samples += want.Samples
	}
	total := rec.Stats.Total()
	if slices == 0 || total.Overwritten == 0 && uint64(samples) != total.Samples {
		t.Errorf("%d slices; events tell of %d samples, the accounts of %d", slices, samples, total.Samples)
	}

	// A file truncated by a kill is readable up to the tear.
	torn := filepath.Join(t.TempDir(), "torn.sliver")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(torn, whole[:len(whole)*2/3], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.Command(testprog.Tool(t, "python3"), "testdata/read_recording.py", torn).Output(); err != nil {
		t.Errorf("torn recording: %v%s", err, stderr(err))
	}
	if err := os.WriteFile(torn, bytes.Repeat([]byte("no"), 20), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.Command(testprog.Tool(t, "python3"), "testdata/read_recording.py", torn).Output(); err == nil {
		t.Error("it reads what is no recording")
	}
}

// stderr returns a failed program's standard error.
func stderr(err error) string {
	if e, ok := err.(*exec.ExitError); ok {
		return "\n" + string(e.Stderr)
	}
	return ""
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
		t.Fatalf("recording: problems %v, end %v, symbols %v", rec.Problems, rec.End, rec.Symbols != nil)
	}
	return rec
}

// record samples a chain program while it runs its script.
func record(t *testing.T, program string) (path string) {
	t.Helper()
	prog := testprog.StartChain(t, program, "--seconds", "1", "--threads", "2", "--seed", "3")
	prog.Ready()
	p, err := target.Open(prog.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	path = filepath.Join(t.TempDir(), "run.sliver")
	out, err := export.ParseOutput(path, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.New(p, session.Options{Version: "test", Interval: 5 * time.Millisecond, Outputs: []export.Output{out}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	type result struct {
		reason string
		err    error
	}
	ended := make(chan result, 1)
	go func() {
		reason, err := s.Run(ctx)
		ended <- result{reason, err}
	}()
	prog.Go()
	prog.Done()
	stop()
	r := <-ended
	if r.err != nil {
		t.Fatal(r.err)
	}
	if _, err := s.Finish(r.reason); err != nil {
		t.Fatal(err)
	}
	prog.Finish()
	return path
}

package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// calledFuncs are the slices of functions whose names start with a prefix.
type calledFuncs struct {
	names  *trace.Names
	prefix string
	got    []calledFunc
}

type calledFunc struct {
	name     string
	from, to stack.Time
}

func (c *calledFuncs) Begin(stack.Time, int, *trace.Slice) {}
func (c *calledFuncs) Other(event.Event)                   {}
func (c *calledFuncs) End(t stack.Time, _ int, s *trace.Slice) {
	if name := c.names.Func(&s.Frame).Name; strings.HasPrefix(name, c.prefix) || strings.Contains(name, "[anon]") {
		c.got = append(c.got, calledFunc{name, s.Entered, t})
	}
}

func callsOf(rec *trace.Recording, prefix string) []calledFunc {
	c := &calledFuncs{names: trace.NewNames(rec), prefix: prefix}
	for _, th := range rec.Threads {
		if th.Main {
			rec.Replay(th.Seq, c.names, c)
		}
	}
	return c.got
}

// reused are functions of jitreuse, one after another at one address.
var reused = []string{"phase0", "phase1", "phase2", "phase3", "phase4"}

// counts returns the number of samples, and how many of them took a stop.
func (s *Session) counts() (samples, stops uint64) {
	n := s.Status().Total
	return n.Samples, n.Stops
}

// phase is a time range in which a program certainly ran a function; the function had
// been sampled by the time seen.
type phase struct {
	name           string
	from, to, seen stack.Time
}

// runPhases steps jitreuse or gdbjit from phase to phase. It waits until each phase, and the pause
// after it, is sampled and the map is read, for three reasons: a call from the same code at the
// same address would be taken for the previous one, entries written between two looks count from
// the first look on, and the number of reuses per time is bounded.
func runPhases(t *testing.T, prog *testprog.Proc, names []string, jit *perfMap, counts func() (samples, stops uint64)) (out []phase) {
	t.Helper()
	for _, name := range names {
		prog.Go()
		prog.Line("begins " + name)
		stopped := func(more uint64) {
			t.Helper()
			_, was := counts()
			await(t, "stops", func() bool { _, n := counts(); return n >= was+more })
		}
		stopped(2) // the first one may have been before the call
		x := phase{seen: target.Now()}
		stopped(20)
		prog.Go()
		line := prog.Line(name + " ")
		if n, _ := fmt.Sscan(line, &x.name, &x.from, &x.to); n != 3 {
			t.Fatalf("%q", line)
		}
		out = append(out, x)
		rests := target.Now()
		was, _ := counts()
		await(t, "samples of its rest, and a look at the map", func() bool {
			jit.mu.Lock()
			defer jit.mu.Unlock()
			samples, _ := counts()
			return samples >= was+2 && jit.looked > rests && jit.looked >= jit.noted+stack.Time(jit.apart)
		})
	}
	return out
}

// checkPhases compares a recording of such a program with the program's own log: each
// phase must be there under its name, at its time, and nothing else.
func checkPhases(t *testing.T, rec *trace.Recording, phases []phase, first int) {
	t.Helper()
	calls := callsOf(rec, "phase")
	for i, x := range phases {
		var had stack.Time
		for _, c := range calls {
			in := min(c.to, x.to) - max(c.from, x.from)
			if in <= 0 {
				continue
			}
			if c.name == x.name {
				had += in
			} else {
				t.Errorf("%v of %s are called %s", time.Duration(in), x.name, c.name)
			}
		}
		if i >= first && had < x.to-x.seen {
			t.Errorf("of %s's %v only %v are there", x.name, time.Duration(x.to-x.seen), time.Duration(had))
		}
	}
	if t.Failed() {
		t.Logf("calls: %v\n%d generations, %d parts\n%v", calls, len(rec.Maps), len(rec.Captured), phases)
	}
}

// An address that a JIT compiler reuses must have the name that it had at the time,
// also after the program has ended and its map is gone.
func TestAddressReuse(t *testing.T) {
	t.Run("perf map", func(t *testing.T) { addressReuse(t) })
	t.Run("jitdump", func(t *testing.T) { addressReuse(t, t.TempDir()) })
}

func addressReuse(t *testing.T, folder ...string) {
	testprog.Need(t, "ptrace")
	prog := testprog.Start(t, testprog.Build(t, "c/jitreuse", "O2"), append([]string{"5"}, folder...)...)
	t.Cleanup(func() { os.Remove(fmt.Sprintf("/tmp/perf-%d.map", prog.PID)) }) // the program may be killed before it does that
	prog.Ready()
	var phases []phase
	rec := recordWhole(t, prog.PID, Options{Interval: 2 * time.Millisecond, Groups: 2}, func(s *Session) {
		phases = runPhases(t, prog, reused, s.jit, s.counts)
		prog.Go()
		if st := prog.Wait(); !st.Success() {
			t.Errorf("ended with %v", st)
		}
	})
	checkPhases(t, rec, phases, 0)
}

// The same for the last seconds, which end before the program does.
func TestAddressReuseKept(t *testing.T) {
	t.Run("perf map", func(t *testing.T) { addressReuseKept(t) })
	t.Run("jitdump", func(t *testing.T) { addressReuseKept(t, t.TempDir()) })
}

func addressReuseKept(t *testing.T, folder ...string) {
	testprog.Need(t, "ptrace")
	prog := testprog.Start(t, testprog.Build(t, "c/jitreuse", "O2"), append([]string{"6"}, folder...)...)
	t.Cleanup(func() { os.Remove(fmt.Sprintf("/tmp/perf-%d.map", prog.PID)) }) // the program may be killed before it does that
	prog.Ready()
	p, err := target.Open(prog.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	mem, err := ringfile.New(64 << 20)
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
	await(t, "first samples", func() bool { return f.Stats().Pause.Count > 0 || f.Threads() > 0 })
	phases := runPhases(t, prog, reused, f.jit, func() (uint64, uint64) {
		st := f.Stats()
		n := st.Total()
		return n.Samples, n.Stops
	})
	file := filepath.Join(t.TempDir(), "run.sliver")
	out, err := export.ParseOutput(file, "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Dump(Dump{Outputs: []export.Output{out}})
	if err != nil || len(d.Problems) > 0 {
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
	checkPhases(t, rec, phases, 4)
}

// A reuse that is detected only after the next change of the memory must be recorded
// before it, and the change must be recorded again.
func TestReusedBefore(t *testing.T) {
	m := newModules(nil, nil)
	for at := stack.Time(0); at <= 40; at += 10 {
		m.generation([]stack.Mapping{{Start: uint64(at), Exec: true}}, at, at == 30)
	}
	m.reused(25)
	m.reused(45)
	close(m.queue)
	got := ""
	for g := range m.queue {
		got += fmt.Sprintf("%d:%d,%v,%v ", g.at, g.maps[0].Start, g.exec, g.reused)
	}
	if want := "0:0,false,false 10:10,false,false 20:20,false,false 30:30,true,false 40:40,false,false " +
		"25:20,false,true 30:30,true,false 40:40,false,false 45:40,false,true "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Generations must not exceed their rate, and their distance must grow with their
// number. The losses from that and from the bounds must be reported.
func TestPerfMapBounds(t *testing.T) {
	ms := stack.Time(time.Millisecond)
	m := newModules(nil, nil)
	m.generation(nil, 0, false)
	<-m.queue
	x := &perfMap{mods: m, take: func(trace.Captured) {}, gdb: newGDBJIT(nil, nil, nil), apart: lookEvery, left: 10}
	var noted []stack.Time
	at := stack.Time(time.Second)
	for i := range 400 {
		x.part(at, fmt.Appendf(nil, "1000 40 f%d\n", i))
		select {
		case g := <-x.mods.queue:
			noted = append(noted, g.at)
		default:
		}
		at += 10 * ms
	}
	// The first part uses no generation; then ten are 50 ms apart, all others 100 ms.
	if n := len(noted); n < 40 || n > 46 || noted[1]-noted[0] != 50*ms || noted[n-1]-noted[n-2] != 100*ms || x.merged != 399-n {
		t.Errorf("%d generations, %d merged: %v", n, x.merged, noted)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintf(f, "1000 40 whole\n2000 40 unfinished\nno entry\n3000 40 last\n")
	const size = 32 + 1 + 9 + 13
	// A hole of 100 GB, and an entry after it.
	const far = 100 << 30
	if _, err := f.WriteAt([]byte("4000 40 far\n"), far); err != nil {
		t.Fatal(err)
	}
	file, err := safefile.Root("").Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var got []string
	x.take, x.f = func(c trace.Captured) { got = append(got, string(c.Data)) }, file
	x.read(30, at, at, false)
	x.read(31, at, at, false)
	x.read(31, at, at, true)
	x.read(42, at, at, false) // the rest of a line, and an invalid line
	x.read(size, at, at, false)
	x.read(far+12, at, at, false)
	kept := x.kept
	x.size, x.kept = 42, maxPerfMap
	x.read(size, at, at, true)
	if s := fmt.Sprintf("%q", got); s != `["1000 40 whole\n" "2000 40 unfinishe" "3000 40 last\n" "4000 40 far\n"]` ||
		x.dropped != 13 || x.bad != 2 || kept != 14+17+13+12 || x.lines != 3 {
		t.Errorf("%s, %d dropped, %d kept, %d lines, %d are none", s, x.dropped, kept, x.lines, x.bad)
	}
	x.reuse.Dropped = 3
	if p := x.problems(); len(p) != 4 {
		t.Errorf("%q", p)
	}
}

package flight

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

const ms = 1_000_000

// program is an artificial thread: its samples at given times.
type program struct {
	rnd   *rand.Rand
	stack []stack.Frame
	cpu   int64
}

func (p *program) sample(at stack.Time) *stack.Sample {
	for p.rnd.IntN(3) > 0 && len(p.stack) > 1 {
		p.stack = p.stack[1:]
	}
	for len(p.stack) < 2+p.rnd.IntN(8) {
		depth := uint64(len(p.stack))
		fn := 0x1000 + uint64(p.rnd.IntN(20))*0x100
		p.stack = slices.Insert(slices.Clone(p.stack), 0, stack.Frame{Func: fn, PC: fn + uint64(p.rnd.IntN(0x80)), CFA: 0x7fff_0000 - depth*0x100})
	}
	p.cpu += 10 * ms
	return &stack.Sample{Time: at, CPU: p.cpu, State: stack.StateRunning, Call: stack.Call{Nr: -1}, Stack: slices.Clone(p.stack)}
}

// collector collects the calls of a thread with their times.
type collector struct {
	tid  stack.TID
	open []string
	out  map[string]bool
	from stack.Time
	last stack.Time // confirmed
}

func (c *collector) Begin(t stack.Time, depth int, s *trace.Slice) {
	c.open = append(c.open[:depth], fmt.Sprintf("%d: %#x at depth %d from %d", c.tid, s.Loc.Addr, depth, t))
}
func (c *collector) End(t stack.Time, depth int, s *trace.Slice) {
	if t >= c.from {
		c.out[fmt.Sprintf("%s to %d", c.open[depth], t)] = true
	}
	c.open = c.open[:depth]
}
func (c *collector) Other(e event.Event) {
	if e.Kind() == event.Seen {
		c.last = max(c.last, e.Time)
	}
}

// calls returns the calls that are completely after from, and the last confirmed time
// of each thread.
func calls(t *testing.T, b []byte, from stack.Time) (out map[string]bool, last map[stack.TID]stack.Time, rec *trace.Recording) {
	t.Helper()
	rec, err := trace.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Problems) > 0 || rec.End == nil {
		t.Fatalf("problems %v, end %v", rec.Problems, rec.End)
	}
	out, last = map[string]bool{}, map[stack.TID]stack.Time{}
	n := trace.NewNames(rec)
	for i := range rec.Threads {
		c := &collector{tid: rec.Threads[i].TID, out: map[string]bool{}, from: from}
		rec.Replay(rec.Threads[i].Seq, n, c)
		for k := range c.out {
			out[k] = true
		}
		last[c.tid] = c.last
	}
	for k := range out { // calls open at the start were seen to begin there
		var tid int
		var addr, depth, begin, end uint64
		fmt.Sscanf(k, "%d: 0x%x at depth %d from %d to %d", &tid, &addr, &depth, &begin, &end)
		if stack.Time(begin) < from {
			delete(out, k)
		}
	}
	return out, last, rec
}

func write(t *testing.T, c *Copy, ts ...trace.Trigger) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.Write(&b, ts, "test"); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A Copy must show the last seconds as a Recorder that keeps everything does, and the
// file must have the same content at every moment.
func TestCopyIsTheEndOfTheWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rings")
	mem, err := ringfile.Create(path, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close(true)
	const keep = 30_000 * ms
	r := New(trace.Process{PID: 7, Comm: "made-up"}, Options{Keep: keep, Memory: mem})
	var whole bytes.Buffer
	w, err := trace.NewWriter(&whole)
	if err != nil {
		t.Fatal(err)
	}
	full, err := trace.NewRecorder(w, trace.Process{PID: 7}, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	var programs []*program
	var sinks []*Sink
	var fulls []*trace.Sink
	r.Maps(trace.Maps{}, nil)
	for i := range 6 {
		programs = append(programs, &program{rnd: rand.New(rand.NewPCG(uint64(i), 1))})
		th := trace.Thread{TID: stack.TID(100 + i), Name: "t", Main: i == 0, Since: 1 * ms}
		sinks = append(sinks, r.Thread(th))
		fulls = append(fulls, full.Thread(th))
	}
	now := stack.Time(1 * ms)
	for round := range 12_000 {
		for i, p := range programs {
			if round%(i*i+1) != 0 {
				continue // some change often, some rarely
			}
			x := p.sample(now)
			sinks[i].Sample(x)
			fulls[i].Sample(x)
		}
		if round%100 == 0 {
			r.Tidy(now)
		}
		now += 10 * ms
	}
	if s := r.Short(); s != 0 {
		t.Errorf("%d rings were too small", s)
	}
	at := now - 10*ms
	got, last, rec := calls(t, write(t, r.Copy(at, keep), trace.Trigger{At: at, Kind: "test"}), at-keep)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range fulls {
		s.Flush()
	}
	if _, err := full.Close(trace.Stats{}, trace.End{At: at}); err != nil {
		t.Fatal(err)
	}
	want, wantLast, _ := calls(t, whole.Bytes(), at-keep)
	compare(t, "copy", got, want)
	for tid, x := range wantLast {
		if last[tid] != x {
			t.Errorf("thread %d: confirmed up to %d, want %d", tid, last[tid], x)
		}
	}
	if from, to := rec.Span(); to < at || from > at-keep || from < at-keep-2*syncEvery {
		t.Errorf("it spans %d to %d; now is %d", from, to, at)
	}
	if len(rec.Triggers) != 1 || rec.Triggers[0].Kind != "test" {
		t.Errorf("triggers: %v", rec.Triggers)
	}
	im, err := ringfile.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Recover(im)
	if err != nil {
		t.Fatal(err)
	}
	got, last, rec = calls(t, write(t, c), at-keep)
	compare(t, "recovered", got, want)
	for tid, x := range wantLast {
		if last[tid] != x {
			t.Errorf("recovered: thread %d: confirmed up to %d, want %d", tid, last[tid], x)
		}
	}
	if rec.Process.Comm != "made-up" || len(rec.Threads) != 6 {
		t.Errorf("recovered: %+v, %d threads", rec.Process, len(rec.Threads))
	}
}

func compare(t *testing.T, what string, got, want map[string]bool) {
	t.Helper()
	if len(want) < 1000 {
		t.Fatalf("only %d calls", len(want))
	}
	bad := 0
	for k := range want {
		if !got[k] {
			if bad++; bad < 5 {
				t.Errorf("%s lacks %s", what, k)
			}
		}
	}
	for k := range got {
		if !want[k] {
			if bad++; bad < 10 {
				t.Errorf("%s has made up %s", what, k)
			}
		}
	}
	if bad > 0 {
		t.Errorf("%s: %d of %d calls are wrong", what, bad, len(want))
	}
}

// A trigger must be marked at its time, even if it is next to a Sync with older times.
func TestMark(t *testing.T) {
	sync := []event.Event{event.Make(50, event.Sync, 1), event.Make(10, event.Enter, 1), event.Make(50, event.State, 0)}
	for _, at := range []stack.Time{5, 55, 60, 61, 75, 90} {
		es := slices.Concat([]event.Event{event.Make(1, event.Sync, 0), event.Make(2, event.Seen, 0)}, sync,
			[]event.Event{event.Make(60, event.Seen, 0), event.Make(70, event.Exit, 0), event.Make(80, event.Seen, 0)})
		c := &Copy{Threads: []Thread{{Thread: trace.Thread{TID: 1, Main: true}, Events: es}}}
		c.Mark(&trace.Trigger{At: at})
		got := c.Threads[0].Events
		i := slices.IndexFunc(got, func(e event.Event) bool { return e.Kind() == event.Mark })
		if i < 0 || len(got) != len(es)+1 || got[i].Time != at || stack.Why(got[i].Payload()) != stack.WhyTrigger {
			t.Fatalf("%d: %v", at, got)
		}
		for _, e := range got[:i] {
			if e.Kind() == event.Seen && e.Time > at {
				t.Errorf("%d: behind %v", at, e)
			}
		}
		for _, e := range got[i+1:] {
			if e.Kind() == event.Seen && e.Time <= at {
				t.Errorf("%d: before %v", at, e)
			}
		}
		if got[i-1].Kind() == event.Sync && got[i-1].Payload() > 0 {
			t.Errorf("%d: inside a Sync", at)
		}
	}
}

// The start of a long wait must be in every Copy, once.
func TestLongWaitIsKept(t *testing.T) {
	mem, err := ringfile.New(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close(false)
	const keep = 10_000 * ms
	r := New(trace.Process{PID: 7}, Options{Keep: keep, Memory: mem})
	r.Waits([]trace.Wait{{ID: 3, Call: "futex"}, {ID: 4, Call: "read"}})
	s := r.Thread(trace.Thread{TID: 1, Main: true})
	p := &program{rnd: rand.New(rand.NewPCG(1, 1))}
	x := p.sample(1)
	x.State, x.Call.Nr = stack.StateBlocked, 202
	s.Sample(x)
	s.Event(1, event.Wait, 3)
	s.Event(1, event.Lock, 0xabc)
	s.Event(1, event.Holder, event.HolderOf(9, event.KnownByWord))
	y := *x
	y.Way = stack.WayUnrun
	now := stack.Time(0)
	for range 20_000 {
		now += 10 * ms
		y.Time = now
		s.Sample(&y)
	}
	c := r.Copy(now, keep)
	var kinds []event.Kind
	for _, e := range c.Threads[0].Events {
		switch e.Kind() {
		case event.Wait, event.Lock, event.Holder:
			kinds = append(kinds, e.Kind())
		}
	}
	if !slices.Equal(kinds, []event.Kind{event.Wait, event.Lock, event.Holder}) {
		t.Errorf("said of the wait: %v", kinds)
	}
	if len(c.Waits) != 1 || c.Waits[0].ID != 3 {
		t.Errorf("descriptions: %v", c.Waits)
	}
	if e := c.Threads[0].Events; e[len(e)-1].Time != now {
		t.Errorf("confirmed up to %d, want %d", e[len(e)-1].Time, now)
	}
}

// Days of threads and mappings that come and go must leave memory unchanged.
func TestChurnLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rings")
	mem, err := ringfile.Create(path, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close(true)
	const keep = 5_000 * ms
	r := New(trace.Process{PID: 7}, Options{Keep: keep, Memory: mem})
	rnd := rand.New(rand.NewPCG(3, 4))
	type live struct {
		s *Sink
		p *program
	}
	var running []live
	now := stack.Time(1)
	var used, most int64
	dropped, mods := 0, 0
	for round := range 6_000 {
		now += 100 * ms
		if round%5 == 0 {
			r.Maps(trace.Maps{At: now, Mappings: []trace.Mapping{{Start: 1, End: 2, Module: mods}}}, []trace.Module{{Path: fmt.Sprint("lib", mods)}})
			mods++
		}
		for len(running) < 20 {
			running = append(running, live{r.Thread(trace.Thread{TID: stack.TID(rnd.IntN(1000)), Since: now}), &program{rnd: rnd}})
		}
		for _, x := range running {
			x.s.Sample(x.p.sample(now))
		}
		if i := rnd.IntN(60); i < len(running) {
			running[i].s.End(now, stack.WhyGone)
			running = slices.Delete(running, i, i+1)
		}
		if round%10 == 0 {
			dropped += len(r.Tidy(now))
		}
		if u, _ := mem.Used(); round < 1000 {
			used = max(used, u)
		} else {
			most = max(most, u)
		}
	}
	if most > used+used/2 {
		t.Errorf("%d bytes in use, %d in the beginning", most, used)
	}
	if n := len(r.Sinks()); n > 90 {
		t.Errorf("%d threads are kept", n)
	}
	if dropped < mods-200 || len(r.maps) > 200 || len(r.modules) > 200 {
		t.Errorf("%d of %d modules were dropped, %d maps and %d modules are kept", dropped, mods, len(r.maps), len(r.modules))
	}
	c := r.Copy(now, keep)
	_, _, rec := calls(t, write(t, c), now-keep)
	if len(rec.Modules) != len(c.IDs) || len(c.IDs) == 0 || rec.Modules[0].Path != fmt.Sprint("lib", c.IDs[0]) {
		t.Errorf("%d modules, numbers %v", len(rec.Modules), c.IDs)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	im, err := ringfile.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	left, err := Recover(im)
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Threads) != len(c.Threads) {
		t.Errorf("recovered %d threads, want %d", len(left.Threads), len(c.Threads))
	}
}

// A dump must have the last interval and the last program, and so must the file of a
// killed recorder.
func TestChangesAreTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.ring")
	mem, err := ringfile.Create(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := New(trace.Process{PID: 7, Interval: 20e6, Jitter: 2e6}, Options{Memory: mem})
	r.Thread(trace.Thread{TID: 7, Name: "before"})
	r.SetInterval(200e6)
	r.Replaced("java", "/bin/java", []string{"java", "Main"})
	check := func(what string, c *Copy) {
		t.Helper()
		if p := c.Process; p.Interval != 200e6 || p.Jitter != 20e6 || p.PID != 7 || p.Comm != "java" || p.Exe != "/bin/java" || len(p.Cmdline) != 2 {
			t.Errorf("%s: %+v", what, p)
		}
	}
	check("a dump", r.Copy(1e9, 0))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, c := recovered(t, f)
	check("what is left", c)
	mem.Close(true)
}

// recovered returns the content of a ring file.
func recovered(t *testing.T, f *os.File) (*ringfile.Image, *Copy) {
	t.Helper()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	im, err := ringfile.Open(f, fi.Size())
	if err != nil {
		t.Fatal(err)
	}
	c, err := Recover(im)
	if err != nil {
		t.Fatal(err)
	}
	return im, c
}

// TestLocate: code has the address in its file, and in its name, of a file that could not be read, the offset.
func TestLocate(t *testing.T) {
	mem, err := ringfile.New(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close(true)
	r := New(trace.Process{PID: 7}, Options{Keep: 5_000 * ms, Memory: mem})
	r.Maps(trace.Maps{At: 1, Mappings: []trace.Mapping{{Start: 0x10000, End: 0x12000, Off: 0x1000}, {Start: 0x20000, End: 0x24000, Off: 0x3000, Module: 1}}},
		[]trace.Module{{Path: "/lib/read.so", Segments: []trace.Segment{{Off: 0x1000, Vaddr: 0x401000, Size: 0x2000}}}, {Path: "/lib/unread.so"}})
	for addr, want := range map[uint64][2]uint64{0x10010: {0x401010, 0x401010}, 0x20010: {0x20010, 0x3010}} {
		l, ok := r.Locate(addr, 2)
		if !ok || [2]uint64{l.Vaddr, l.Named} != want {
			t.Errorf("%#x: %+v, %v", addr, l, ok)
		}
	}
	if _, ok := r.Locate(0x30000, 2); ok {
		t.Error("code outside the mappings has a place")
	}
}

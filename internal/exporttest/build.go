// Package exporttest builds recordings for the tests of the exports and runs real readers
// on the output. Only tests import it.
package exporttest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	exact "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Ms is a millisecond in ns.
const Ms = 1_000_000

// Start is the start time of built recordings, in ns of CLOCK_MONOTONIC.
const Start = stack.Time(5_000_000_000)

// Builder builds a recording. A function is created when it is first named. Functions
// whose names begin with "lib" are in a library, others in the main program; the first is
// always in the main program. Names that begin with "py." are Python's, with "java.",
// "jdk." or "app." Java's.
type Builder struct {
	tb      testing.TB
	buf     bytes.Buffer
	w       *trace.Writer
	syms    trace.Symbols
	funcs   map[string]*fn
	managed map[stack.Kind]bool // kinds of the functions that a runtime runs
	list    []*Thread
	Proc    trace.Process
	Stats   trace.Stats
	waits   []trace.Wait
	Cut     bool // no end is written, as if the recorder had been killed
	next    [2]uint64

	traced   *trace.Traced
	exact    []exact.Call
	io       *trace.IO
	ioNames  trace.IONames
	ops      []trace.IOOp
	switches []trace.Switch
	wakers   []trace.Waker
	kernel   [][]string // kernel stacks of switches
}

type fn struct {
	id     int
	module int
	start  uint64            // run-time address
	inline map[int][]string  // by line: the functions inlined there, outermost first
	done   map[uint64]string // addresses already named
}

// The two modules of a built recording, with run-time start and vaddr bias.
var modules = []struct {
	mod        trace.Module
	start, off uint64
}{
	{trace.Module{Path: "/opt/app/server", BuildID: "8cbd3a00112233445566778899aabbccddeeff01",
		Segments: []trace.Segment{{Off: 0x1000, Vaddr: 0x401000, Size: 0x10000000}}}, 0x401000, 0x1000},
	{trace.Module{Path: "/usr/lib/libwork.so.1", BuildID: "aa55",
		Segments: []trace.Segment{{Off: 0x2000, Vaddr: 0x3000, Size: 0x10000000}}}, 0x7f0000002000, 0x2000},
}

// New begins a recording with 10 ms between samples.
func New(tb testing.TB) *Builder {
	b := &Builder{tb: tb, funcs: map[string]*fn{}, managed: map[stack.Kind]bool{}}
	b.Proc = trace.Process{
		PID: 1234, Comm: "server", Exe: modules[0].mod.Path, Cmdline: []string{"/opt/app/server", "--port", "80 80"},
		Arch: "amd64", Kernel: "6.18.0", Host: "box", Page: 4096, CPUs: 2, Sliver: "test", Interval: 10 * Ms, Jitter: Ms,
		Stop: "always", ThreadSpec: "all", StartTime: 1_000_000_000,
		Clocks: trace.Clocks{Monotonic: Start, Boottime: int64(Start) + 500_000_000, Realtime: 1_700_000_000_000_000_000},
	}
	var err error
	if b.w, err = trace.NewWriter(&b.buf); err != nil {
		tb.Fatal(err)
	}
	return b
}

// Wait defines a wait for event.Wait and assigns d.ID.
func (b *Builder) Wait(d trace.Wait) uint64 {
	d.ID = len(b.waits) + 1
	b.waits = append(b.waits, d)
	return uint64(d.ID)
}

// Inline declares that the calls of names are inlined at line of function outer,
// outermost first.
func (b *Builder) Inline(outer string, line int, names ...string) {
	b.fn(outer).inline[line] = names
	for _, n := range names {
		b.fn(n)
	}
}

func (b *Builder) fn(name string) *fn {
	f := b.funcs[name]
	if f != nil {
		return f
	}
	m := 0
	if strings.HasPrefix(name, "lib") {
		m = 1
	}
	x := &modules[m]
	f = &fn{module: m, start: x.start + 0x100 + b.next[m], inline: map[int][]string{}, done: map[uint64]string{}}
	b.next[m] += 0x1000
	f.id = b.syms.FuncID(trace.Func{Name: name, File: fileOf(name), StartLine: 1, Module: m, Start: b.vaddr(f, f.start)})
	b.funcs[name] = f
	return f
}

func fileOf(name string) string {
	if len(name) > 40 {
		name = name[:40]
	}
	return "/src/" + strings.ToValidUTF8(name, "") + ".c"
}

func (b *Builder) vaddr(f *fn, addr uint64) uint64 {
	x := &modules[f.module]
	v, _ := x.mod.Vaddr(addr - x.start + x.off)
	return v
}

// frame parses a stack frame: "name", "name:line", "!n" for an error frame of reason n,
// or "?addr" for code without a symbol.
func (b *Builder) frame(s string, depth int, leaf bool) stack.Frame {
	fr := stack.Frame{CFA: 0x7ffffff00000 - uint64(depth)*64, Trust: stack.TrustCFI, Exact: leaf}
	if leaf {
		fr.Trust = stack.TrustRegs
	}
	if s[0] == '!' {
		n, _ := strconv.Atoi(s[1:])
		fr.Kind, fr.PC = stack.KindError, uint64(n)
		return fr
	}
	if s[0] == '?' {
		fr.PC, _ = strconv.ParseUint(s[1:], 0, 64)
		return fr
	}
	name, line := s, 1
	if i := strings.LastIndexByte(s, ':'); i > 0 {
		if n, err := strconv.Atoi(s[i+1:]); err == nil {
			name, line = s[:i], n
		}
	}
	f := b.fn(name)
	at := f.start + uint64(line)*4
	if f.done[at] == "" {
		f.done[at] = name
		frames := []trace.LocFrame{{Func: f.id, File: fileOf(name), Line: line}}
		for _, in := range f.inline[line] {
			g := b.fn(in)
			frames = append([]trace.LocFrame{{Func: g.id, File: fileOf(in), Line: 7, Inlined: true}}, frames...)
		}
		b.syms.Set(trace.LocKey{Module: f.module, Addr: b.vaddr(f, at)}, frames)
	}
	if strings.HasPrefix(name, "py.") {
		fr.Kind = stack.KindPython
	} else if strings.HasPrefix(name, "java.") || strings.HasPrefix(name, "jdk.") || strings.HasPrefix(name, "app.") {
		fr.Kind = stack.KindJava
	}
	if fr.Kind.Managed() {
		b.managed[fr.Kind] = true
	}
	fr.Func, fr.PC = f.start, at
	if !leaf {
		fr.PC++
	}
	return fr
}

// Thread is one thread of a Builder.
type Thread struct {
	b    *Builder
	t    trace.Thread
	d    diff.Differ
	es   []event.Event
	seen int
}

// Thread adds a thread; the first one is the main thread.
func (b *Builder) Thread(tid int, name string) *Thread {
	t := &Thread{b: b, t: trace.Thread{TID: stack.TID(tid), Name: name, Main: len(b.list) == 0,
		Born: 1_000_000_000 + stack.Time(len(b.list)), Since: Start, Seq: len(b.list)}}
	b.list = append(b.list, t)
	b.Stats.Threads = append(b.Stats.Threads, trace.ThreadStats{TID: t.t.TID})
	return t
}

// Before gives the thread CPU time, in ns, from before its first sample.
func (t *Thread) Before(ns int64) { t.t.Before = ns }

// Rename gives the thread a new name, at ns after Start.
func (t *Thread) Rename(at int64, name string) {
	t.es = t.d.Flush(t.es) // as the sampler does
	t.t.Rename(name, Start+stack.Time(at))
}

// Look is a sample to record.
type Look struct {
	At    int64  // ns after Start
	CPU   int64  // ns the thread has run since it began
	Delay int64  // ns it has waited for a CPU since it began
	Times uint64 // number of switches to the thread
	State stack.State
	GIL   bool
	Call  int32 // system call number plus 1; 0: none
	Way   stack.Way
	Pause int64
	Stack string // frames, outermost first, separated by spaces
}

// Look records a sample.
func (t *Thread) Look(l Look) { t.LookAt(l, strings.Fields(l.Stack)...) }

// LookAt records a sample with the given frames, outermost first.
func (t *Thread) LookAt(l Look, names ...string) {
	s := stack.Sample{Time: Start + stack.Time(l.At), CPU: l.CPU, State: l.State, GIL: l.GIL, Way: l.Way, Pause: l.Pause,
		Delay: l.Delay, Switches: l.Times, Call: stack.Call{Nr: l.Call - 1}}
	s.Begin = s.Time - stack.Time(l.Pause)
	for i := len(names) - 1; i >= 0; i-- {
		f := t.b.frame(names[i], i, i == len(names)-1)
		s.Stack = append(s.Stack, f)
	}
	if n := len(s.Stack); n > 0 && s.Stack[n-1].Kind == stack.KindError {
		s.Reason = stack.Reason(s.Stack[n-1].PC)
	}
	t.es = t.d.Step(&s, t.es)
	t.seen++
	st := &t.b.Stats.Threads[t.t.Seq]
	st.Samples++
	st.PauseNS += l.Pause
	switch l.Way {
	case stack.WayStop:
		st.Stops++
	case stack.WayUnrun:
		st.Unrun++
	case stack.WayPart:
		st.Part++
		fallthrough
	case stack.WayRead:
		st.Read++
	}
}

// Gap records a gap.
func (t *Thread) Gap(at int64, why stack.Why, ns int64) {
	t.es = t.d.Gap(Start+stack.Time(at), why, ns, t.es)
}

// Event records another event.
func (t *Thread) Event(at int64, k event.Kind, payload uint64) {
	t.es = t.d.Event(Start+stack.Time(at), k, payload, t.es)
}

// Lose records that events were overwritten up to the next Sync.
func (t *Thread) Lose(at int64) {
	t.es = append(t.es, event.Make(Start+stack.Time(at), event.Gap, event.GapOf(stack.WhyLost, 0)))
	t.b.Stats.Threads[t.t.Seq].Overwritten++
}

// Sync records the whole stack.
func (t *Thread) Sync() { t.es = t.d.Sync(t.es) }

// End records the end of the thread.
func (t *Thread) End(at int64, why stack.Why) { t.es = t.d.End(Start+stack.Time(at), why, t.es) }

// Raw appends events unchanged.
func (t *Thread) Raw(es ...event.Event) { t.es = append(t.es, es...) }

// Events returns the number of events so far.
func (t *Thread) Events() int { return len(t.es) }

// Finish ends the recording at ns after Start and opens it.
func (b *Builder) Finish(end int64) *trace.Recording {
	b.tb.Helper()
	check := func(err error) {
		if err != nil {
			b.tb.Helper()
			b.tb.Fatal(err)
		}
	}
	check(b.w.Process(b.Proc))
	var mods []trace.Module
	var maps trace.Maps
	for i, m := range modules {
		mods = append(mods, m.mod)
		maps.Mappings = append(maps.Mappings, trace.Mapping{Start: m.start, End: m.start + 0x10000000, Off: m.off, Module: i})
	}
	for k := range b.managed {
		mods = append(mods, trace.Module{Path: "[" + k.String() + "]"}) // of a real recording of such a program
	}
	maps.At = Start
	check(b.w.Maps(maps, 0, mods))
	if len(b.waits) > 0 {
		check(b.w.Waits(b.waits))
	}
	for _, t := range b.list {
		check(b.w.Thread(t.t))
	}
	if b.traced != nil {
		check(b.w.Traced(b.traced))
		check(b.w.Calls(b.exact))
	}
	if b.io != nil {
		check(b.w.IONames(&b.ioNames))
		check(b.w.Ops(b.ops))
		check(b.w.IO(b.io))
	}
	if len(b.switches) > 0 {
		check(b.w.Wakers(0, b.wakers))
		if len(b.kernel) > 0 {
			check(b.w.KernelStacks(0, b.kernel))
		}
		check(b.w.Switched(b.switches))
		check(b.w.Switches(&trace.Switches{Began: Start, Records: uint64(len(b.switches)), Lost: []string{}}))
	}
	for _, t := range b.list {
		t.es = t.d.Flush(t.es)
		check(b.w.Events(t.t.Seq, t.es))
		t.es = nil
	}
	b.Stats.At = Start + stack.Time(end)
	check(b.w.Stats(b.Stats))
	check(b.w.Symbols(&b.syms))
	if !b.Cut {
		check(b.w.End(trace.End{At: Start + stack.Time(end), Reason: "duration"}))
	}
	rec, err := trace.Open(bytes.NewReader(b.buf.Bytes()), int64(b.buf.Len()))
	check(err)
	if len(rec.Problems) > 0 {
		b.tb.Fatalf("the recording has problems: %q", rec.Problems)
	}
	return rec
}

// Call is a slice of a recording, from its replay.
type Call struct {
	Thread     int // Seq
	Name       string
	Depth      int
	Begin, End int64 // ns of CLOCK_MONOTONIC
}

func (c Call) String() string {
	return fmt.Sprintf("%d %d..%d %d %q", c.Thread, c.Begin, c.End, c.Depth, c.Name)
}

// Calls returns all slices of rec from its replay, by thread and then by begin.
func Calls(rec *trace.Recording) []Call {
	var out []Call
	n := trace.NewNames(rec)
	for i := range rec.Threads {
		c := &calls{names: n, seq: rec.Threads[i].Seq, out: &out}
		slices := trace.NewSlices(n, c)
		for e := range rec.Fitted(rec.Threads[i].Seq) {
			slices.Apply(e)
		}
		slices.Close(0)
	}
	return out
}

type calls struct {
	names *trace.Names
	seq   int
	open  []int
	out   *[]Call
}

func (c *calls) Begin(t stack.Time, depth int, s *trace.Slice) {
	c.open = append(c.open[:depth], len(*c.out))
	*c.out = append(*c.out, Call{Thread: c.seq, Name: c.names.Func(&s.Frame).Name, Depth: depth, Begin: int64(t)})
}

func (c *calls) End(t stack.Time, depth int, _ *trace.Slice) {
	(*c.out)[c.open[depth]].End = int64(t)
	c.open = c.open[:depth]
}

func (c *calls) Other(event.Event) {}

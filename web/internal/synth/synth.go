// Package synth simulates a program: threads that call functions, wait, and hold locks,
// as a sampler would observe them. Tests and benchmarks of the page use it because a real
// target would make them depend on the machine.
//
// Each thread of a Program belongs to one goroutine.
package synth

import (
	"fmt"
	"math/rand/v2"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// fn is a function of the synthetic program.
type fn struct {
	name    string
	module  int
	file    string
	calls   []int
	dur     int64 // typical, ns
	block   int32 // system call that it waits in; 0: none
	lock    bool
	chance  float64 // probability of calling a function instead of working itself
	inlined string  // a function inlined into it
	kind    stack.Kind
}

const (
	textAddr = 0x400000
	libcAddr = 0x7f1200000000
	fnSize   = 0x100
	us       = int64(1_000)
	ms       = int64(1_000_000)
)

// Hostile is a function name that would run as a script if a page treated it as HTML.
const Hostile = `<img src=x onerror="document.title='pwned'">::operator()`

var funcs = []fn{
	{name: "_start", calls: []int{1}, dur: 1 << 60, chance: 1},
	{name: "main", file: "src/main.cc", calls: []int{2}, dur: 1 << 60, chance: 1},
	{name: "EventLoop::run()", file: "src/loop.cc", calls: []int{3, 3, 4, 5}, dur: 1 << 60, chance: 1},
	{name: "epoll_wait", module: 1, dur: 9 * ms, block: 232},
	{name: "http::Server::handle(Request const&)", file: "src/http/server.cc", calls: []int{6, 7, 8, 9, 10, 15}, dur: 30 * ms, chance: .95},
	{name: "timers::expire(Clock::time_point)", file: "src/timers.cc", calls: []int{11, 12}, dur: 3 * ms, chance: .5},
	{name: "json::parse(std::basic_string_view<char>)", file: "src/json/parse.cc", calls: []int{13, 13, 14}, dur: 6 * ms, chance: .8, inlined: "json::skip_space"},
	{name: "sql::Connection::query(std::string const&)", file: "src/sql/connection.cc", calls: []int{16, 17}, dur: 14 * ms, chance: .9},
	{name: "template::render(Page const&, Context&)", file: "src/template.cc", calls: []int{18, 11, 12}, dur: 9 * ms, chance: .7, kind: stack.KindPython},
	{name: "tls::Record::decrypt(Span<uint8_t>)", file: "src/tls/record.cc", calls: []int{19}, dur: 4 * ms, chance: .6},
	{name: "log::write(Level, char const*, ...)", file: "src/log.cc", calls: []int{20, 21}, dur: 2 * ms, chance: .6},
	{name: "std::vector<Item, std::allocator<Item> >::push_back(Item&&)", calls: []int{22}, dur: 1 * ms, chance: .5},
	{name: "__memmove_avx_unaligned_erms", module: 1, dur: 400 * us},
	{name: "json::parse_value(Cursor&, int)", file: "src/json/parse.cc", calls: []int{13, 13, 14, 11}, dur: 3 * ms, chance: .75},
	{name: "json::parse_string(Cursor&)", file: "src/json/parse.cc", calls: []int{12}, dur: 1500 * us, chance: .3},
	{name: Hostile, file: "src/weird.cc", dur: 2 * ms},
	{name: "__libc_recv", module: 1, dur: 8 * ms, block: 45},
	{name: "sql::Row::decode(Reader&)", file: "src/sql/row.cc", calls: []int{11, 14}, dur: 3 * ms, chance: .6},
	{name: "template::Node::emit(Buffer&) const", file: "src/template.cc", calls: []int{18, 18, 12}, dur: 3 * ms, chance: .8, kind: stack.KindPython},
	{name: "aes_gcm_decrypt", file: "src/tls/aes.S", dur: 2 * ms},
	{name: "__lll_lock_wait", module: 1, dur: 5 * ms, block: 202, lock: true},
	{name: "__libc_write", module: 1, dur: 1 * ms},
	{name: "malloc", module: 1, calls: []int{20}, dur: 800 * us, chance: .1},
	// Workers.
	{name: "start_thread", module: 1, calls: []int{24}, dur: 1 << 60, chance: 1},
	{name: "Worker::main()", file: "src/worker.cc", calls: []int{25, 26, 27}, dur: 1 << 60, chance: 1},
	{name: "pthread_cond_wait@@GLIBC_2.3.2", module: 1, dur: 18 * ms, block: 202},
	{name: "image::resize(Image const&, int, int)", file: "src/image/resize.cc", calls: []int{28, 12}, dur: 25 * ms, chance: .8},
	{name: "http::Server::handle(Request const&)", file: "src/http/server.cc", calls: []int{6, 7, 8, 10}, dur: 20 * ms, chance: .9},
	{name: "image::filter_row(Row const*, float const*, int)", file: "src/image/filter.cc", dur: 4 * ms, inlined: "simd::madd"},
	// Deep recursion.
	{name: "tree::walk(Node*, int)", file: "src/tree.cc", calls: []int{29, 29, 29, 12}, dur: 40 * ms, chance: .97},
	// A goroutine of Go's runtime.
	{name: "runtime.gcBgMarkWorker", file: "runtime/mgc.go", dur: 1 * ms},
}

// Program is a synthetic target.
type Program struct {
	Proc    trace.Process
	Maps    trace.Maps
	Modules []trace.Module
	seed    uint64
}

// New returns a program; equal seeds behave the same. t0 is the start of its recording.
func New(seed uint64, t0 stack.Time, interval int64) *Program {
	p := &Program{seed: seed}
	p.Proc = trace.Process{PID: 4242, Comm: "shopd", Exe: "/usr/bin/shopd", Cmdline: []string{"/usr/bin/shopd", "--listen", ":8080"},
		Arch: "amd64", Kernel: "6.18.0", Host: "test", Page: 4096, CPUs: 8, Sliver: "test", Interval: interval, Stop: "auto",
		ThreadSpec: "all", Clocks: trace.Clocks{Monotonic: t0, Boottime: int64(t0), Realtime: 1_790_000_000_000_000_000}}
	p.Modules = []trace.Module{
		{Path: "/usr/bin/shopd", Segments: []trace.Segment{{Off: 0, Vaddr: textAddr, Size: 0x10000}}},
		{Path: "/usr/lib/x86_64-linux-gnu/libc.so.6", Segments: []trace.Segment{{Off: 0, Vaddr: 0x26000, Size: 0x10000}}},
	}
	p.Maps = trace.Maps{At: 0, Mappings: []trace.Mapping{
		{Start: textAddr, End: textAddr + 0x10000, Module: 0}, {Start: libcAddr, End: libcAddr + 0x10000, Module: 1},
	}}
	return p
}

// child makes p the child number i of the program, for i above 0.
func (p *Program) child(i int) {
	if i == 0 {
		return
	}
	p.Proc.Parent = p.Proc.PID
	p.Proc.PID += 100 * i
	p.Proc.Comm = fmt.Sprintf("worker%d", i)
	p.Proc.Cmdline = []string{p.Proc.Exe, "--worker", fmt.Sprint(i)}
}

func addr(f int) uint64 {
	if funcs[f].module == 1 {
		return libcAddr + uint64(f)*fnSize
	}
	return textAddr + uint64(f)*fnSize
}

// Name returns the functions and lines at a word of the program, outermost first if
// functions are inlined.
func Name(w event.Word) (frames []Named, ok bool) {
	a := w.Lookup()
	base := uint64(textAddr)
	if a >= libcAddr {
		base = libcAddr
	}
	i := (a - base) / fnSize
	if a < base || i >= uint64(len(funcs)) {
		return nil, false
	}
	f := &funcs[i]
	off := (a - base) % fnSize
	path := "/usr/bin/shopd"
	if f.module == 1 {
		path = "/usr/lib/x86_64-linux-gnu/libc.so.6"
	}
	n := Named{Func: f.name, File: f.file, Module: path}
	if f.file != "" {
		n.Start = 10 + int(i)*40
		n.Line = n.Start + int(off/8)
	}
	frames = []Named{n}
	if f.inlined != "" && off < 0x40 {
		frames = append(frames, Named{Func: f.inlined, File: "src/inline.h", Line: 7 + int(off/8), Start: 5, Module: path})
	}
	return frames, true
}

// Named is a function at a place.
type Named struct {
	Func, File, Module string
	Line, Start        int
}

// Symbols returns the names of everything in the program.
func (p *Program) Symbols() *trace.Symbols {
	s := &trace.Symbols{}
	for i := range funcs {
		for off := uint64(0); off < fnSize; off++ {
			a := addr(i) + off
			named, _ := Name(event.WordOf(&stack.Frame{PC: a, Exact: true}))
			var frames []trace.LocFrame
			for k := len(named) - 1; k >= 0; k-- {
				n := named[k]
				m := funcs[i].module
				id := s.FuncID(trace.Func{Name: n.Func, File: n.File, StartLine: n.Start, Module: m})
				frames = append(frames, trace.LocFrame{Func: id, File: n.File, Line: n.Line, Inlined: k > 0})
			}
			vaddr := a
			if funcs[i].module == 1 {
				vaddr = 0x26000 + a - libcAddr
			}
			s.Set(trace.LocKey{Module: funcs[i].module, Addr: vaddr}, frames)
		}
	}
	return s
}

// Describe returns the description of thread k.
func (p *Program) Describe(k int, since stack.Time) trace.Thread {
	t := trace.Thread{TID: stack.TID(p.Proc.PID + k), Name: "shopd", Main: k == 0, Born: stack.Time(k + 1), Since: since, Seq: k}
	switch {
	case k == 0:
	case k%8 == 7:
		t.Name = fmt.Sprintf("tree-%d", k/8)
	case k%8 >= 5:
		t.Name = fmt.Sprintf("net-%d", k)
	default:
		t.Name = fmt.Sprintf("worker-%d", k)
	}
	return t
}

// Thread simulates one thread.
type Thread struct {
	k     int
	rnd   *rand.Rand
	open  []call
	out   []stack.Frame
	cpu   int64
	delay int64
	sw    uint64
	last  stack.Time
	way   stack.Way
}

type call struct {
	fn  int
	end stack.Time
	pc  uint64
	cfa uint64
}

// Thread starts thread k.
func (p *Program) Thread(k int) *Thread {
	t := &Thread{k: k, rnd: rand.New(rand.NewPCG(p.seed, uint64(k)))}
	root := 23
	if k == 0 || k%8 >= 5 && k%8 != 7 {
		root = 0
	}
	t.push(root, 1<<62)
	if k%8 == 7 {
		t.push(29, 1<<62)
	}
	return t
}

func (t *Thread) push(f int, end stack.Time) {
	pc := addr(f) + uint64(1+t.rnd.IntN(20)*12)
	cfa := uint64(0x7ffe00000000) - uint64(len(t.open)+1)*64
	t.open = append(t.open, call{f, end, pc, cfa})
}

// Dive makes the innermost function call itself down to a depth, until end.
func (t *Thread) Dive(depth int, end stack.Time) {
	for len(t.open) < depth {
		top := t.open[len(t.open)-1]
		t.push(top.fn, min(end, top.end))
	}
}

const maxDepth = 70

// Lock is a change of the lock that the thread waits for, to be recorded before the
// sample. Addr 0 means that it no longer waits.
type Lock struct {
	Changed bool
	Addr    uint64
	Holder  stack.TID
}

// Sample advances the thread to now and stores in x what a sampler would observe. x is
// valid until the next call.
func (t *Thread) Sample(now stack.Time, x *stack.Sample) (l Lock) {
	was := t.blocked()
	changed := false
	for len(t.open) > 1 && t.open[len(t.open)-1].end <= now {
		t.open = t.open[:len(t.open)-1]
		changed = true
	}
	for {
		top := &t.open[len(t.open)-1]
		f := &funcs[top.fn]
		// After a call returns, the function may work itself for a while.
		if len(f.calls) == 0 || len(t.open) >= maxDepth || t.rnd.Float64() > f.chance {
			break
		}
		if changed {
			top.pc = addr(top.fn) + uint64(1+t.rnd.IntN(20)*12)
		}
		next := f.calls[t.rnd.IntN(len(f.calls))]
		dur := stack.Time(t.rnd.ExpFloat64() * float64(min(funcs[next].dur, 1<<40)))
		t.push(next, min(now+dur+1, top.end))
		changed = true
	}
	elapsed := int64(0)
	if t.last != 0 {
		elapsed = int64(now - t.last)
	}
	t.last = now
	is := t.blocked()
	*x = stack.Sample{Time: now, Begin: now - 20_000, Call: stack.Call{Nr: -1}, State: stack.StateRunning, Switches: t.sw, Delay: t.delay}
	if is != 0 {
		x.State, x.Call.Nr, x.Way = stack.StateBlocked, is, stack.WayRead
		if was == is && !changed {
			x.Way = stack.WayUnrun
		}
		if was == 0 {
			t.sw++
		}
	} else {
		x.Way, x.Pause = stack.WayStop, 25_000+int64(t.rnd.IntN(20_000))
		t.cpu += elapsed * 9 / 10
		t.delay += elapsed / 10
		if t.rnd.IntN(25) == 0 {
			x.State = stack.StateRunnable
		}
	}
	x.CPU = t.cpu
	top := &funcs[t.open[len(t.open)-1].fn]
	lockedNow := is != 0 && top.lock
	lockedBefore := was != 0 && t.way == stack.WayPart
	if lockedNow != lockedBefore {
		l.Changed = true
		if lockedNow {
			l.Addr = 0x55aa00 + uint64(t.rnd.IntN(4))*64
			l.Holder = stack.TID(4242 + (t.k+1+t.rnd.IntN(3))%8)
		}
	}
	t.way = 0
	if lockedNow {
		t.way = stack.WayPart
	}
	t.out = t.out[:0]
	for i := len(t.open) - 1; i >= 0; i-- {
		c := &t.open[i]
		t.out = append(t.out, stack.Frame{Func: addr(c.fn), PC: c.pc, CFA: c.cfa, Exact: i == len(t.open)-1, Trust: stack.TrustCFI, Kind: funcs[c.fn].kind})
	}
	x.Stack = t.out
	return l
}

func (t *Thread) blocked() int32 { return funcs[t.open[len(t.open)-1].fn].block }

// Frame returns a frame of the first function with a name, at an address behind its first instruction.
func Frame(name string, off uint64, leaf bool) stack.Frame {
	for i := range funcs {
		if funcs[i].name == name {
			return stack.Frame{Func: addr(i), PC: addr(i) + off, Exact: leaf, Trust: stack.TrustCFI}
		}
	}
	return stack.Frame{}
}

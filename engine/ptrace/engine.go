// Package ptrace is sampler's engine: it stops running threads for some µs (package target does), reads blocked
// ones, and takes copies that the kernel's clocks make. What a sample means, and when one is due, is left to
// sampler; which memory a walk needs is left to unwind. An Engine belongs to one goroutine, locked to its OS
// thread; only Wake and CPU may be called from others. A Thread is used by one goroutine at a time.
package ptrace

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// Engine implements sampler.Engine: a target.Tracer stops threads, and each thread of the target reads
// itself while it is blocked.
type Engine struct {
	*target.Tracer
	space *unwind.Space
	w     *target.Window
	v     *sampler.View // the view of the current window
	max   int
	proc  *target.Process
	ahead target.Ahead
	// coming are the threads whose stops were left to stoppers: see Arrived.
	coming map[*target.Thread]*Thread
	// from is where the Tracer came from, and where Close leaves it; nil: it is the Engine's own.
	from   *Tracers
	before int64        // CPU time that the Tracer had used before
	used   atomic.Int64 // what of it was for this Engine, once it is closed; -1: it is open
	kernel bool         // see UseKernel
}

// New returns an engine for threads of p. It belongs to the calling goroutine, which is locked to its
// OS thread. maxStack is the most bytes of stack that it copies. from, if not nil, keeps the Tracers of the
// OS threads of its Sleepers.
func New(p *target.Process, space *unwind.Space, maxStack int, from *Tracers) (*Engine, error) {
	tr, w, err := from.take()
	if err != nil {
		return nil, err
	}
	e := &Engine{Tracer: tr, space: space, w: w, max: maxStack, proc: p, coming: map[*target.Thread]*Thread{}, from: from, before: tr.CPU()}
	e.used.Store(-1)
	w.Registers = nil // the Window may have been another Engine's
	return e, nil
}

// CPU returns the CPU time in ns that stops for this Engine have used outside of this program.
func (e *Engine) CPU() int64 {
	if used := e.used.Load(); used >= 0 {
		return used
	}
	return e.Tracer.CPU() - e.before
}

// Can implements sampler.Engine.
func (e *Engine) Can() sampler.Abilities {
	return sampler.Abilities{Stops: true, Late: true, Ahead: true}
}

// Stop implements sampler.Engine.
func (e *Engine) Stop(th sampler.Thread, v *sampler.View) error {
	e.prepare(v, v.Ask)
	t := th.(*Thread)
	if err := e.capture(t); err != nil {
		return err
	}
	e.show(e.w, v)
	return nil
}

// capture stops a thread for the prepared window.
func (e *Engine) capture(t *Thread) error {
	if t.is.held() && !t.Late() {
		t.to(released)
	}
	err := e.Capture(t.Thread, e.w)
	e.note(t, err)
	return Translate(err)
}

func (e *Engine) Read(th sampler.Thread, v *sampler.View) (bool, error) {
	e.prepare(v, true)
	ok, err := th.(*Thread).ReadBlocked(e.w)
	if !ok || err != nil {
		return false, Translate(err)
	}
	e.show(e.w, v)
	return true, nil
}

// note records the outcome of a stop.
func (e *Engine) note(t *Thread, err error) {
	switch {
	case err == target.ErrLater:
		t.to(left)
		e.coming[t.Thread] = t
	case errors.Is(err, target.ErrTimeout) && t.Late():
		t.to(overdue)
	case errors.Is(err, target.ErrGone):
		t.to(ended)
	default:
		t.to(took)
	}
}

// Arrived implements sampler.Engine.
func (e *Engine) Arrived(v *sampler.View) (th sampler.Thread, err error, ok bool) {
	for {
		a, ok := e.Tracer.Arrived()
		if !ok {
			return nil, nil, false
		}
		t := e.coming[a.Thread]
		delete(e.coming, a.Thread)
		if t == nil || t.is == closed {
			continue
		}
		if errors.Is(a.Err, target.ErrGone) {
			t.to(ended)
		} else {
			t.to(arrived)
		}
		if a.Window == nil {
			return t, Translate(a.Err), true
		}
		v.Spans = a.Window.Spans
		e.show(a.Window, v)
		return t, nil, true
	}
}

// prepare lists the memory to copy. If a stack outgrew the window, the window grows
// before the next sample: nothing is allocated while a thread is stopped.
func (e *Engine) prepare(v *sampler.View, ask bool) {
	if want := max(v.StackDefault, e.w.StackWanted()); want > e.w.Cap() {
		e.w.Grow(min(want+want/4, e.max))
	}
	// The callback costs time while the thread is stopped, so it is only used if a
	// stack may continue outside the stack that the registers point to.
	e.v, e.w.More = v, nil
	if v.More != nil && (v.Ask || ask && e.space.Managed()) {
		e.w.More = e.more
	}
	e.w.Check = v.Check
	e.w.Spans, e.w.Deadline, e.w.Later = v.Spans, v.Deadline, v.Deadline == sampler.AtOnce
	e.w.StackLow, e.w.StackHigh, e.w.StackDefault = v.StackLow, v.StackHigh, v.StackDefault
}

// more fills the view with the data copied so far and returns the spans that it requests.
func (e *Engine) more() []stack.Span {
	e.blocks(e.w, e.v)
	return e.v.More(&e.w.Regs, &e.v.Mem)
}

// show fills the view from a window.
func (e *Engine) show(w *target.Window, v *sampler.View) {
	v.Regs, v.Call, v.Counters = &w.Regs, w.Call, sampler.Counters(w.Counters)
	v.Asked, v.Halted, v.Stopped, v.Resumed = w.Asked, w.Halted, w.Stopped, w.Resumed
	v.Restarted, v.Group, v.Reads, v.Found = w.Restarted, w.Group, w.Reads, sampler.Activity(w.Found)
	e.blocks(w, v)
}

// blocks adds the copied blocks to the view, the stack last.
func (e *Engine) blocks(w *target.Window, v *sampler.View) {
	v.Regs = &w.Regs
	v.Mem.Blocks = v.Mem.Blocks[:0]
	for i := range v.Spans {
		v.Mem.Blocks = append(v.Mem.Blocks, unwind.Block{Addr: v.Spans[i].Addr, Data: w.Block(i)})
	}
	for _, e := range w.Extra {
		v.Mem.Blocks = append(v.Mem.Blocks, unwind.Block{Addr: e.Addr, Data: e.Data})
	}
	v.Mem.Blocks = append(v.Mem.Blocks, unwind.Block{Addr: w.StackAddr, Data: w.Stack()})
}

// GoAhead implements sampler.Engine.
func (e *Engine) GoAhead(a *sampler.Ahead) bool {
	if e.space.Managed() || a.ByClock && !exactClocks() {
		return false
	}
	x := &e.ahead
	x.Process, x.ByClock, x.Fresh, x.Due, x.End, x.Pause, x.Long, x.Slept = e.proc, a.ByClock, a.Fresh, a.Due, a.End, a.Pause, a.Long, a.Slept
	x.Items = x.Items[:0]
	for i := range a.Items {
		it := &a.Items[i]
		x.Items = append(x.Items, target.AheadItem{Thread: it.Thread.(*Thread).Thread, Runs: it.Runs, Counters: target.Counters(it.Counters), At: it.At,
			Spans: it.Spans, StackLow: it.StackLow, StackHigh: it.StackHigh, StackDefault: it.StackDefault, Deadline: it.Deadline})
	}
	ok := e.Tracer.GoAhead(x, e.w.Cap())
	a.At, a.Ticks, a.Done, a.Stops, a.Stood, a.Err = x.At, x.Ticks, x.Done, x.Stops, x.Stood, nil
	a.Asleep, a.Left = x.Asleep, x.Left
	if x.Err != nil {
		e.note(a.Items[a.Done].Thread.(*Thread), x.Err)
		a.Err = Translate(x.Err)
	}
	return ok
}

// Taken implements sampler.Engine.
func (e *Engine) Taken(n int, v *sampler.View) {
	w := e.Tracer.Taken(n)
	v.Spans = w.Spans
	e.show(w, v)
}

func (e *Engine) Now() stack.Time { return target.Now() }

func (e *Engine) Reap() int {
	e.Tracer.Reap()
	return e.Late()
}

func (e *Engine) SleepUntil(at stack.Time) { e.Tracer.SleepUntil(at) }

// Close implements sampler.Engine. A late thread is released when the OS thread ends.
func (e *Engine) Close() {
	if e.used.Load() >= 0 {
		return
	}
	if e.from.keep(e.Tracer, e.w) {
		e.used.Store(max(e.Tracer.CPU()-e.before, 0))
		return
	}
	_ = e.Tracer.Close()
	e.used.Store(max(e.Tracer.CPU()-e.before, 0))
}

// Translate converts target's errors to the sampler's.
func Translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, target.ErrGone):
		return sampler.ErrGone
	case errors.Is(err, target.ErrLater):
		return sampler.ErrLater
	case errors.Is(err, target.ErrTimeout):
		return sampler.ErrTimeout
	case errors.Is(err, target.ErrStale):
		return sampler.ErrUnsure
	case errors.Is(err, target.ErrLeft):
		return sampler.ErrLeft
	case errors.Is(err, target.ErrAsleep):
		return sampler.ErrAsleep
	case errors.Is(err, target.ErrTraced):
		return sampler.ErrTraced
	case errors.Is(err, target.ErrDenied):
		return sampler.ErrDenied
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return sampler.ErrFiles
	}
	return err
}

// RestClock implements sampler.Target.RestCPU.
type RestClock struct {
	threads []*target.Thread
	buf     []byte
}

// Read returns the CPU time, in ns, of all threads of the process except some.
func (r *RestClock) Read(p *target.Process, but []sampler.Thread) (ns int64, ok bool) {
	if !exactClocks() {
		return 0, false
	}
	r.threads = r.threads[:0]
	for _, th := range but {
		r.threads = append(r.threads, th.(*Thread).Thread)
	}
	ns, r.buf, ok = p.RestCPU(r.threads, r.buf)
	return ns, ok
}

// exactClocks reports whether the kernel updates the CPU time of processes at each
// scheduler tick or more often: CPUs without ticks do so once a second.
var exactClocks = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/sys/devices/system/cpu/nohz_full")
	s := strings.TrimSpace(string(b))
	return err != nil || s == "" || s == "(null)"
})

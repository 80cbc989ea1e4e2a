// Package live connects a process (package target) to the sampler and the unwinder. It
// implements the sampler's Target and the unwinder's Files and Memory, and reports
// mapped files to the recorder.
package live

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/sliverprof/sliver/internal/elffile"
	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/rule"
	"github.com/sliverprof/sliver/wait"
)

// Target is a live process. Its methods may be called from any goroutine.
type Target struct {
	proc  *target.Process
	space *unwind.Space

	mu     sync.Mutex // one Remap at a time
	maps   []stack.Mapping
	mapped stack.Time   // the time passed to onMap with the last maps
	left   atomic.Int64 // files with code that stamp left out
	unread stack.Time   // until then the maps are not read again: see manyMappings
	onMap  func(maps []stack.Mapping, at stack.Time, exec bool)
	// tracers are all tracers ever made, for their statistics.
	tracers         []*target.Tracer
	cpuIdle, cpuAll uint64 // of the last Costs, in clock ticks; guarded by mu
	locks           lockReader
	later           wait.Later
	rest            []*target.Thread // for RestCPU
	restBuf         []byte

	ranges  []managed.Range // the ranges whose addresses are in the maps
	changed chan struct{}   // signaled when the code changed
	own     ownNames
	openMu  sync.Mutex // guards opened
	opened  map[*lang.Language]opened
	deaths  *target.Deaths // nil: deaths are not recorded
	shares  shares
}

// New reads the maps of p and loads the unwind tables of the files with code. onMap, if
// not nil, receives every generation of the maps, including the first. It is called
// with a lock held and must not call back.
func New(p *target.Process, onMap func(maps []stack.Mapping, at stack.Time, exec bool)) (*Target, error) {
	return newTarget(p, nil, onMap)
}

// New is the function New for a Target that shares files with others. The caller calls Release.
func (s *Shared) New(p *target.Process, onMap func(maps []stack.Mapping, at stack.Time, exec bool)) (*Target, error) {
	return newTarget(p, s, onMap)
}

func newTarget(p *target.Process, s *Shared, onMap func(maps []stack.Mapping, at stack.Time, exec bool)) (*Target, error) {
	arch := rule.AMD64
	if runtime.GOARCH == "arm64" {
		arch = rule.ARM64
	}
	t := &Target{proc: p, shares: shares{of: s}, onMap: onMap, locks: lockReader{pid: p.PID()}, later: wait.Later{Open: openLater(p)}, changed: make(chan struct{}, 1)}
	t.space = unwind.NewSpace(arch, (*files)(t), (*memory)(t), stacks()...)
	if _, err := t.remap(false, 0); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// Release ends the use of shared files. Sampling must have ended.
func (t *Target) Release() { t.shares.release() }

// NoteDeaths makes the last sample of a thread killed by a signal show where it died.
// Call it before sampling begins; the caller keeps d open until sampling ends.
func (t *Target) NoteDeaths(d *target.Deaths) { t.deaths = d }

// Preload opens the files with code. Failures appear in unwind.Space.Errors: the code
// of such files is walked by frame pointers.
func (t *Target) Preload() { _ = t.space.Preload() }

// Threads implements sampler.Target.
func (t *Target) Threads(buf []stack.TID) ([]stack.TID, error) { return t.proc.Threads(buf[:0]) }

// Info implements sampler.Target.
func (t *Target) Info(tid stack.TID) (stack.ThreadInfo, error) {
	in, err := Info(t.proc, tid)
	if name := t.ownName(&in); err == nil && name != "" {
		in.Name, in.Comm = name, in.Name
	}
	return in, err
}

// Info returns the facts known about a thread of p.
func Info(p *target.Process, tid stack.TID) (stack.ThreadInfo, error) {
	in, err := p.ThreadInfo(tid)
	if err != nil {
		return stack.ThreadInfo{}, translate(err)
	}
	return stack.ThreadInfo{TID: in.TID, NSTID: in.NSTID, Name: in.Name, Main: int(in.TID) == p.PID(), Born: in.Start,
		State: target.StateOf(in.State), CPU: in.CPU}, nil
}

// Open implements sampler.Target.
func (t *Target) Open(tid stack.TID) (sampler.Thread, error) {
	th, err := t.proc.Thread(tid)
	if err != nil {
		return nil, translate(err)
	}
	return &thread{Thread: th, deaths: t.deaths}, nil
}

// Engine implements sampler.Target.
func (t *Target) Engine(maxStack int) (sampler.Engine, error) {
	tr, err := target.NewTracer()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.tracers = append(t.tracers, tr)
	t.mu.Unlock()
	return &tracer{Tracer: tr, space: t.space, w: target.NewWindow(0), max: maxStack, proc: t.proc, coming: map[*target.Thread]sampler.Thread{}}, nil
}

// SelfCPU returns the CPU time in ns that this program has used, including the stops.
func (t *Target) SelfCPU() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := target.SelfCPU()
	for _, tr := range t.tracers {
		sum += tr.CPU()
	}
	return sum
}

// Costs implements sampler.Target.
func (t *Target) Costs() (c sampler.Costs, ok bool) {
	c.Own = t.SelfCPU() + target.MachineClockOthers()*sampler.ClockCost
	c.Target, _ = t.proc.CPU()
	idle, all := target.IdleCPU()
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Idle = -1
	if all > t.cpuAll {
		c.Idle = float64(idle-t.cpuIdle) / float64(all-t.cpuAll)
	}
	t.cpuIdle, t.cpuAll = idle, all
	return c, true
}

// Image implements sampler.Target.
func (t *Target) Image() (uint64, error) { return t.proc.Image() }

// Stamp implements sampler.Target.
func (t *Target) Stamp() (uint64, error) { return t.proc.Stamp() }

// Space implements sampler.Target.
func (t *Target) Space() *unwind.Space { return t.space }

// Alive implements sampler.Target.
func (t *Target) Alive() bool { return t.proc.Alive() }

// Traced implements sampler.Target.
func (t *Target) Traced() bool { return t.proc.Traced() }

// Maps returns the maps as last read.
func (t *Target) Maps() []stack.Mapping {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.maps
}

// Remap implements sampler.Target.
func (t *Target) Remap(exec bool) (changed bool, err error) { return t.remap(exec, 0) }

// Mapped is Remap(false) for a caller that knows that the process has mapped a file: the time since the last
// reading does not count.
func (t *Target) Mapped() (changed bool, err error) {
	t.mu.Lock()
	t.unread = 0
	t.mu.Unlock()
	return t.remap(false, 0)
}

// Replaced implements sampler.Target.
func (t *Target) Replaced(at stack.Time) (changed bool, err error) { return t.remap(false, at) }

// If a thread's stack leads to addresses outside of all mappings, each of its samples would read the maps.
// Those of a process with more than manyMappings are read again after remapEach for each of them at the
// earliest: the kernel takes some 1 us for one, and holds the process's lock of its memory.
const (
	manyMappings = 4096
	remapEach    = 20_000 // ns
)

// remap reads the maps. They are valid from time at; 0: from now on.
func (t *Target) remap(exec bool, at stack.Time) (changed bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !exec && at == 0 && len(t.maps) > manyMappings && target.Now() < t.unread {
		return false, nil
	}
	defer func() { t.unread = target.Now() + stack.Time(len(t.maps))*remapEach }()
	maps, err := t.proc.Maps()
	if err != nil {
		return false, fmt.Errorf("read the maps: %w", err)
	}
	if exec {
		t.space.Forget()
		t.ranges = nil
	}
	t.stamp(maps, codeFiles())
	maps = t.space.Presented(t.space.Gathered(maps)) // code next to a copy differs
	t.space.Update(maps)
	for _, r := range t.ranges {
		maps = withRange(maps, r)
	}
	changed = exec || !sameCode(t.maps, maps)
	t.maps = maps
	if changed {
		select {
		case t.changed <- struct{}{}:
		default:
		}
	}
	if changed && t.onMap != nil {
		if at == 0 || at < t.mapped {
			at = target.Now()
		}
		t.mapped = at
		t.onMap(maps, at, exec)
	}
	return changed, nil
}

// MappingAt finds the mapping that contains addr; maps are sorted by address.
func MappingAt(maps []stack.Mapping, addr uint64) (int, bool) {
	return slices.BinarySearchFunc(maps, addr, func(m stack.Mapping, a uint64) int {
		switch {
		case m.End <= a:
			return -1
		case m.Start > a:
			return 1
		}
		return 0
	})
}

// sameCode compares the executable mappings.
func sameCode(a, b []stack.Mapping) bool {
	next := func(ms []stack.Mapping, i int) int {
		for i < len(ms) && !ms[i].Exec {
			i++
		}
		return i
	}
	i, j := next(a, 0), next(b, 0)
	for i < len(a) && j < len(b) {
		if a[i] != b[j] {
			return false
		}
		i, j = next(a, i+1), next(b, j+1)
	}
	return i == len(a) && j == len(b)
}

// files and memory adapt Target to the unwinder.
type files Target

func (f *files) Open(m stack.Mapping) (io.ReaderAt, error) { return f.proc.OpenMapping(m) }

// Image implements unwind.Images.
func (f *files) Image(m stack.Mapping) *unwind.Image {
	x := f.shares.file(&m)
	if x == nil {
		return nil
	}
	return x.imageFor(f.space.Arch())
}

type memory Target

// ReadSpans implements unwind.SpanReader.
func (m *memory) ReadSpans(spans []stack.Span, b []byte) int { return m.proc.ReadSpans(spans, b) }

func (m *memory) ReadAt(p []byte, addr int64) (int, error) { return m.proc.ReadAt(p, uint64(addr)) }

// translate converts target's errors to the sampler's.
func translate(err error) error {
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

type thread struct {
	*target.Thread
	deaths *target.Deaths // nil: deaths are not recorded
	clock  *target.Clock  // nil: not started
}

// Died implements sampler.Thread.
func (t *thread) Died(after stack.Time, v *sampler.View) bool {
	if t.deaths == nil {
		return false
	}
	x, ok := t.Thread.Died(t.deaths, after)
	if !ok {
		return false
	}
	*v = sampler.View{More: v.More, Regs: &x.Regs, Call: stack.Call{Nr: -1}, Asked: x.At, Stopped: x.At, Resumed: x.At}
	v.Mem.Blocks = append(v.Mem.Blocks, unwind.Block{Addr: x.SP, Data: x.Stack})
	return true
}

func (t *thread) Counters(c *sampler.Counters) error {
	return translate(t.Thread.Counters((*target.Counters)(c)))
}

func (t *thread) Call(c *stack.Call) (running bool, err error) {
	running, _, _, err = t.Thread.Syscall(c)
	return running, translate(err)
}

func (t *thread) OnCPU() (bool, error) {
	on, err := t.Thread.OnCPU()
	return on, translate(err)
}

func (t *thread) State() (stack.State, error) {
	s, err := t.Thread.State()
	return s, translate(err)
}

type tracer struct {
	*target.Tracer
	space *unwind.Space
	w     *target.Window
	v     *sampler.View // the view of the current window
	max   int
	proc  *target.Process
	ahead target.Ahead
	// coming are the threads whose samples are pending: see Arrived.
	coming map[*target.Thread]sampler.Thread
}

// Can implements sampler.Engine.
func (t *tracer) Can() sampler.Abilities {
	return sampler.Abilities{Stops: true, Late: true, Ahead: true}
}

func (t *tracer) Stop(th sampler.Thread, v *sampler.View) error {
	t.prepare(v, v.Ask)
	if err := t.Capture(th.(*thread).Thread, t.w); err != nil {
		return t.failed(th, err)
	}
	t.show(t.w, v)
	return nil
}

func (t *tracer) Read(th sampler.Thread, v *sampler.View) (bool, error) {
	t.prepare(v, true)
	ok, err := th.(*thread).ReadBlocked(t.w)
	if !ok || err != nil {
		return false, translate(err)
	}
	t.show(t.w, v)
	return true, nil
}

// failed translates the reason for a missing sample, and records a thread whose sample
// is pending.
func (t *tracer) failed(th sampler.Thread, err error) error {
	if err == target.ErrLater {
		t.coming[th.(*thread).Thread] = th
	}
	return translate(err)
}

// Arrived implements sampler.Engine.
func (t *tracer) Arrived(v *sampler.View) (th sampler.Thread, err error, ok bool) {
	a, ok := t.Tracer.Arrived()
	if !ok {
		return nil, nil, false
	}
	th = t.coming[a.Thread]
	delete(t.coming, a.Thread)
	if a.Window == nil {
		return th, translate(a.Err), true
	}
	v.Spans = a.Window.Spans
	t.show(a.Window, v)
	return th, nil, true
}

// prepare lists the memory to copy. If a stack outgrew the window, the window grows
// before the next sample: nothing is allocated while a thread is stopped.
func (t *tracer) prepare(v *sampler.View, ask bool) {
	if want := max(v.StackDefault, t.w.StackWanted()); want > t.w.Cap() {
		t.w.Grow(min(want+want/4, t.max))
	}
	// The callback costs time while the thread is stopped, so it is only used if a
	// stack may continue outside the stack that the registers point to.
	t.v, t.w.More = v, nil
	if ask && v.More != nil && t.space.Managed() {
		t.w.More = t.more
	}
	t.w.Check = v.Check
	t.w.Spans, t.w.Deadline, t.w.Later = v.Spans, v.Deadline, v.Deadline == sampler.AtOnce
	t.w.StackLow, t.w.StackHigh, t.w.StackDefault = v.StackLow, v.StackHigh, v.StackDefault
}

// more fills the view with the data copied so far and returns the spans that it requests.
func (t *tracer) more() []stack.Span {
	t.blocks(t.w, t.v)
	return t.v.More(&t.w.Regs, &t.v.Mem)
}

// show fills the view from a window.
func (t *tracer) show(w *target.Window, v *sampler.View) {
	v.Regs, v.Call, v.Counters = &w.Regs, w.Call, sampler.Counters(w.Counters)
	v.Asked, v.Halted, v.Stopped, v.Resumed = w.Asked, w.Halted, w.Stopped, w.Resumed
	v.Restarted, v.Group, v.Reads, v.Found = w.Restarted, w.Group, w.Reads, sampler.Activity(w.Found)
	t.blocks(w, v)
}

// blocks adds the copied blocks to the view, the stack last.
func (t *tracer) blocks(w *target.Window, v *sampler.View) {
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
func (t *tracer) GoAhead(a *sampler.Ahead) bool {
	if t.space.Managed() || a.ByClock && !exactClocks() {
		return false
	}
	x := &t.ahead
	x.Process, x.ByClock, x.Fresh, x.Due, x.End, x.Pause, x.Long, x.Slept = t.proc, a.ByClock, a.Fresh, a.Due, a.End, a.Pause, a.Long, a.Slept
	x.Items = x.Items[:0]
	for i := range a.Items {
		it := &a.Items[i]
		x.Items = append(x.Items, target.AheadItem{Thread: it.Thread.(*thread).Thread, Runs: it.Runs, Counters: target.Counters(it.Counters), At: it.At,
			Spans: it.Spans, StackLow: it.StackLow, StackHigh: it.StackHigh, StackDefault: it.StackDefault, Deadline: it.Deadline})
	}
	ok := t.Tracer.GoAhead(x, t.w.Cap())
	a.At, a.Ticks, a.Done, a.Stops, a.Stood, a.Err = x.At, x.Ticks, x.Done, x.Stops, x.Stood, nil
	a.Asleep, a.Left = x.Asleep, x.Left
	if x.Err != nil {
		a.Err = t.failed(a.Items[a.Done].Thread, x.Err)
	}
	return ok
}

// Taken implements sampler.Engine.
func (t *tracer) Taken(n int, v *sampler.View) {
	w := t.Tracer.Taken(n)
	v.Spans = w.Spans
	t.show(w, v)
}

// RestCPU implements sampler.Target.
func (t *Target) RestCPU(but []sampler.Thread) (ns int64, ok bool) {
	if !exactClocks() {
		return 0, false
	}
	t.rest = t.rest[:0]
	for _, th := range but {
		t.rest = append(t.rest, th.(*thread).Thread)
	}
	ns, t.restBuf, ok = t.proc.RestCPU(t.rest, t.restBuf)
	return ns, ok
}

// exactClocks reports whether the kernel updates the CPU time of processes at each
// scheduler tick or more often: CPUs without ticks do so once a second.
var exactClocks = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/sys/devices/system/cpu/nohz_full")
	s := strings.TrimSpace(string(b))
	return err != nil || s == "" || s == "(null)"
})

func (t *tracer) Now() stack.Time { return target.Now() }

func (t *tracer) Reap() int {
	t.Tracer.Reap()
	return t.Late()
}

func (t *tracer) SleepUntil(at stack.Time) { t.Tracer.SleepUntil(at) }

func (t *tracer) Close() { _ = t.Tracer.Close() } // a late thread is released when the OS thread ends

// Harmless is sampler.Config.Harmless for this machine.
func Harmless(c *stack.Call, sp uint64) bool { return target.StopRisk(c, sp) == target.RiskNone }

// Delays is sampler.Config.Delays for this machine.
func Delays(c *stack.Call, sp uint64) bool {
	r := target.StopRisk(c, sp)
	return r == target.RiskMaybe || r == target.RiskLate
}

// Segments returns the executable segments of an ELF file, so that a recording can
// convert between addresses and offsets without the file.
func Segments(r io.ReaderAt) (out [][3]uint64, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("read program headers: %v", x)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			out = append(out, [3]uint64{p.Off, p.Vaddr, p.Filesz})
		}
	}
	return out, nil
}

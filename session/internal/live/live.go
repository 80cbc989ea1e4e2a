// Package live connects a process (package target) to the sampler and the unwinder. It
// implements the sampler's Target and the unwinder's Files and Memory, and reports
// mapped files to the recorder.
package live

import (
	"debug/elf"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/engine/ptrace"
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
	// engines are all engines ever made, for their statistics.
	engines         []*ptrace.Engine
	cpuIdle, cpuAll uint64 // of the last Costs, in clock ticks; guarded by mu
	locks           lockReader
	later           wait.Later
	rest            ptrace.RestClock

	ranges  []managed.Range // the ranges whose addresses are in the maps
	changed chan struct{}   // signaled when the code changed
	own     ownNames
	openMu  sync.Mutex // guards opened
	opened  map[*lang.Language]opened
	deaths  *target.Deaths // nil: deaths are not recorded
	execs   bool           // see ExecsReported
	began   stack.Time     // see RecordingBegan
	kernel  *kernelFrames  // nil: CPU samples have no frames of the kernel
	shares  shares
	helped  bool // see UseKernel
	plain   bool // see WithoutPrograms
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
	t := &Target{proc: p, shares: shares{of: s}, onMap: onMap, locks: lockReader{pid: p.PID()}, later: wait.Later{Open: openLater(p), Skip: target.SharesFiles}, changed: make(chan struct{}, 1)}
	if s != nil {
		t.later.Ends = &s.ends
		s.joins(p.PID(), 1)
	}
	t.space = unwind.NewSpace(arch, (*files)(t), (*memory)(t), stacks()...)
	if _, err := t.remap(false, 0); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// Release ends the use of shared files. Sampling must have ended.
func (t *Target) Release() {
	if t.shares.of != nil {
		t.shares.of.without(t.engines)
		t.shares.of.joins(t.proc.PID(), -1)
	}
	t.shares.release()
}

// NoteDeaths makes the last sample of a thread killed by a signal show where it died.
// Call it before sampling begins; the caller keeps d open until sampling ends.
func (t *Target) NoteDeaths(d *target.Deaths) { t.deaths = d }

// UseKernel makes programs of the kernel read what blocked threads need, where BPF is allowed, or not. Call it before sampling
// begins.
func (t *Target) UseKernel(on bool) { t.helped = on }

// WithoutPrograms makes clocks copy stacks alone: no programs of the kernel are used. Call it before sampling begins.
func (t *Target) WithoutPrograms() { t.plain, t.helped = true, false }

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
		return stack.ThreadInfo{}, ptrace.Translate(err)
	}
	return stack.ThreadInfo{TID: in.TID, NSTID: in.NSTID, Name: in.Name, Main: int(in.TID) == p.PID(), Born: in.Start,
		State: target.StateOf(in.State)}, nil
}

// Open implements sampler.Target.
func (t *Target) Open(in *stack.ThreadInfo) (sampler.Thread, error) {
	var kernel ptrace.Kernel
	if t.kernel != nil {
		kernel = t.kernel
	}
	th, err := ptrace.Open(t.proc, in.TID, t.deaths, kernel)
	if err != nil {
		return nil, err
	}
	var c sampler.Counters
	if err := th.Counters(&c); err != nil {
		_ = th.Close()
		return nil, err
	}
	in.CPU = c.CPU
	if t.began != 0 && in.Born >= t.began {
		in.Before = c.CPU
	}
	if t.plain {
		th.WithoutPrograms()
	}
	return th, nil
}

// Engine implements sampler.Target.
func (t *Target) Engine(maxStack int) (sampler.Engine, error) {
	var from *ptrace.Tracers
	if t.shares.of != nil {
		from = t.shares.of.tracers
	}
	e, err := ptrace.New(t.proc, t.space, maxStack, from)
	if err != nil {
		return nil, err
	}
	if t.helped {
		e.UseKernel()
	}
	t.mu.Lock()
	t.engines = append(t.engines, e)
	t.mu.Unlock()
	if t.shares.of != nil {
		t.shares.of.with(e)
	}
	return e, nil
}

// SelfCPU returns the CPU time in ns that this program has used, including the stops.
func (t *Target) SelfCPU() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := target.SelfCPU()
	for _, e := range t.engines {
		sum += e.CPU()
	}
	return sum
}

// Costs implements sampler.Target.
func (t *Target) Costs() (c sampler.Costs, ok bool) {
	if c.Own = target.MachineClockOthers(); t.shares.of != nil {
		c.Own += target.SelfCPU() + t.shares.of.helpers()
	} else {
		c.Own += t.SelfCPU()
	}
	c.Target, _ = t.proc.CPU()
	idle, all := target.IdleCPU()
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Idle, c.IdleTicks, c.Ticks = -1, idle, all
	if all > t.cpuAll {
		c.Idle = float64(idle-t.cpuIdle) / float64(all-t.cpuAll)
	}
	t.cpuIdle, t.cpuAll = idle, all
	return c, true
}

// RestCPU implements sampler.Target.
func (t *Target) RestCPU(but []sampler.Thread) (ns int64, ok bool) { return t.rest.Read(t.proc, but) }

// Image implements sampler.Target.
func (t *Target) Image() (uint64, error) { return t.proc.Image() }

// Stamp implements sampler.Target.
func (t *Target) Stamp() (uint64, error) {
	if t.execs {
		return t.proc.Links()
	}
	return t.proc.Stamp()
}

// RecordingBegan says since when all CPU time of new threads belongs to the recording (stack.ThreadInfo.Before). Call
// it before the Sampler runs.
func (t *Target) RecordingBegan(at stack.Time) { t.began = at }

// ExecsReported says that the caller reports each exec to the Sampler: Stamp does not look for one. Call it before
// sampling begins.
func (t *Target) ExecsReported() { t.execs = true }

// Space implements sampler.Target.
func (t *Target) Space() *unwind.Space { return t.space }

// Alive implements sampler.Target.
func (t *Target) Alive() bool { return t.proc.Alive() }

// Now implements sampler.Target.
func (t *Target) Now() stack.Time { return target.Now() }

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
		t.ranges = slices.DeleteFunc(t.ranges, func(r managed.Range) bool { return r.Kind != stack.KindKernel })
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

// MemoryImage implements unwind.MemoryImages.
func (f *files) MemoryImage(content []byte) *unwind.Image {
	if f.shares.of == nil {
		return nil
	}
	x := f.shares.of.inMemory(content)
	if x == nil {
		return nil
	}
	return x.imageFor(f.space.Arch())
}

type memory Target

// ReadSpans implements unwind.SpanReader.
func (m *memory) ReadSpans(spans []stack.Span, b []byte) int { return m.proc.ReadSpans(spans, b) }

func (m *memory) ReadAt(p []byte, addr int64) (int, error) { return m.proc.ReadAt(p, uint64(addr)) }

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

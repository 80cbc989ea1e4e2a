// Package breakpoint is the engine of exact tracing that needs no rights beyond those of a
// debugger: the CPU's breakpoint registers, by perf_event_open(2) (PERF_TYPE_BREAKPOINT). The
// kernel writes a record of each hit into a buffer; the thread goes on at once, and nothing in the
// process is changed. It takes a kernel.perf_event_paranoid of 2 or less. There are four such
// registers for each thread on amd64, so a function with its exits may have four places at most.
//
// The kernel removes the breakpoints when their descriptors are closed, so also when this program
// is killed. An Engine is for one goroutine.
package breakpoint

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/perfring"
	"github.com/sliverprof/sliver/stack"
)

// MaxProbes is how many addresses one thread can have breakpoints at: the debug registers DR0 to
// DR3 of amd64. arm64 has from 2 to 16, of which Linux demands four at least in practice.
const MaxProbes = 4

// Errors of Open that callers distinguish; each is wrapped with the thread.
var (
	ErrRights = errors.New("not allowed: kernel.perf_event_paranoid has to be 2 or less, and this user has to be allowed to trace the process")
	ErrBusy   = errors.New("another debugger uses the breakpoint registers of the thread")
	ErrNone   = errors.New("this CPU, or virtual machine, has no breakpoint registers")
	ErrFiles  = errors.New("too many open files: raise ulimit -n")
)

// Probe is an address to break at.
type Probe struct {
	Addr  uint64 // in the target
	Fn    int    // number of the function
	Where calls.Where
	Go    bool // the Go compiler made the code: a register identifies the goroutine, see fill
	All   bool // an entry's hits have a digest of all registers: see calls.Hit.Regs
}

// top reports whether records have the word on top of the stack: the return address.
func (p *Probe) top() bool {
	return wordsOfStack > 0 && (p.Where == calls.Enter || p.Go && p.Where != calls.Inside)
}

// Options of an Engine.
type Options struct {
	PID     int
	CPUs    []int // that are online
	Threads func() ([]stack.TID, error)
	Probes  []Probe
}

// Bounds.
const (
	// maxPages of records for each CPU. With a page of the kernel's account it is what
	// kernel.perf_event_mlock_kb (516) lets a user map for each CPU.
	maxPages = 128
	minPages = 4
	// rounds of looking for threads that began while the ones before were opened.
	maxRounds = 50
)

// Engine has breakpoints in all threads of a process, also in those that begin later.
type Engine struct {
	o       Options
	rings   []*ring
	events  []event
	probes  map[uint64]source   // by the kernel's number of an event
	owner   map[place]stack.TID // whose events a thread's hits are taken from
	pending []record
	before  stack.Time // records up to here are complete
	plain   bool       // the kernel knows neither inherit_thread nor remove_on_exec (before 5.13)
}

// ring is the buffer of one CPU. It belongs to an event of this program's own that counts nothing,
// so it stays when threads of the target end.
type ring struct {
	cpu, fd int
	r       *perfring.Ring
}

type event struct{ fd, probe int }

// source says which event a record is of. A thread that began while its parent was being opened
// may have the parent's events and its own: only one of them counts.
type source struct {
	probe int
	tid   stack.TID // for which it was opened
}

// place is a probe of a thread.
type place struct {
	tid   stack.TID
	probe int
}

// record is a hit or the end of a thread.
type record struct {
	hit  calls.Hit
	gone bool
	lost uint64
}

// Open sets the breakpoints: when it returns, each further call is seen.
func Open(o Options) (*Engine, error) {
	if len(o.Probes) == 0 || len(o.Probes) > MaxProbes {
		return nil, fmt.Errorf("set breakpoints: %d addresses; from 1 to %d are possible", len(o.Probes), MaxProbes)
	}
	probes := o.Probes
	o.Probes = nil
	e := &Engine{o: o, probes: map[uint64]source{}, owner: map[place]stack.TID{}}
	if err := e.open(probes); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Add sets further breakpoints, if the threads have registers left for all of them: else none is set.
func (e *Engine) Add(probes []Probe) error {
	set := map[int]bool{} // those that were not detached
	for _, x := range e.events {
		set[x.probe] = true
	}
	if n := len(set) + len(probes); n > MaxProbes {
		return fmt.Errorf("set breakpoints: %d addresses; at most %d are possible", n, MaxProbes)
	}
	return e.set(probes)
}

func (e *Engine) open(probes []Probe) error {
	for _, cpu := range e.o.CPUs {
		r, err := openRing(cpu)
		if err != nil {
			return fmt.Errorf("set breakpoints: CPU %d: %w", cpu, explain(err))
		}
		e.rings = append(e.rings, r)
	}
	return e.set(probes)
}

// set opens the events of probes in all threads.
func (e *Engine) set(probes []Probe) error {
	// Entries come last: of each call whose entry is seen, the other places are seen too.
	slices.SortStableFunc(probes, func(a, b Probe) int { return rank(a.Where) - rank(b.Where) })
	from := len(e.o.Probes)
	e.o.Probes = append(e.o.Probes, probes...)
	opened, events := map[stack.TID]bool{}, len(e.events)
	for round := range maxRounds {
		tids, err := e.o.Threads()
		if err != nil {
			return fmt.Errorf("set breakpoints: %w", err)
		}
		fresh := 0
		for _, tid := range tids {
			if opened[tid] {
				continue
			}
			fresh++
			opened[tid] = true
			// A thread of a later round may have its parent's breakpoints already, and no register left.
			if err := e.thread(tid, from); err != nil && !errors.Is(err, unix.ESRCH) && !(round > 0 && errors.Is(err, unix.ENOSPC)) {
				e.unset(from, events)
				return fmt.Errorf("set breakpoints: thread %d: %w", tid, explain(err))
			}
		}
		if fresh == 0 {
			break
		}
	}
	if len(e.events) == events {
		return fmt.Errorf("set breakpoints: no thread left in process %d", e.o.PID)
	}
	return nil
}

// rank orders places by when their breakpoints are set; they are removed the other way.
func rank(w calls.Where) int {
	switch w {
	case calls.Inside:
		return 1
	case calls.Enter:
		return 2
	}
	return 0
}

// unset undoes set: probes and events from these numbers on.
func (e *Engine) unset(probe, event int) {
	for _, x := range e.events[event:] {
		unix.Close(x.fd)
	}
	e.events, e.o.Probes = e.events[:event], e.o.Probes[:probe]
	for id, src := range e.probes {
		if src.probe >= probe {
			delete(e.probes, id)
		}
	}
}

// explain says in words what a refusal means.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (%w)", ErrRights, err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w (%w)", ErrBusy, err)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w (%w)", ErrNone, err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w (%w)", ErrFiles, err)
	}
	return err
}

func openRing(cpu int) (*ring, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_DUMMY,
		Bits: unix.PerfBitUseClockID | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | unix.PerfBitWatermark, Clockid: unix.CLOCK_MONOTONIC}
	pages := maxPages
	attr.Wakeup = uint32(pages * os.Getpagesize() / 4)
	fd, err := unix.PerfEventOpen(&attr, os.Getpid(), cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	for ; ; pages /= 2 {
		m, err := perfring.Map(fd, pages)
		if err == nil {
			return &ring{cpu: cpu, fd: fd, r: m}, nil
		}
		if pages <= minPages || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOMEM) {
			unix.Close(fd)
			return nil, err
		}
	}
}

// Bits of perf_event_attr that came with Linux 5.13 (include/uapi/linux/perf_event.h).
const (
	bitInheritThread = unix.CBitFieldMaskBit35
	bitRemoveOnExec  = unix.CBitFieldMaskBit36
)

// onExecute is HW_BREAKPOINT_X (include/uapi/linux/hw_breakpoint.h).
const onExecute = 4

const sampleType = unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_REGS_USER

// thread opens the events of one thread for the probes from a number on, or none.
func (e *Engine) thread(tid stack.TID, first int) (err error) {
	from := len(e.events)
	defer func() {
		if err != nil {
			for _, x := range e.events[from:] {
				unix.Close(x.fd)
			}
			e.events = e.events[:from]
		}
	}()
	for i := first; i < len(e.o.Probes); i++ {
		for _, r := range e.rings {
			if err := e.event(tid, i, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) event(tid stack.TID, probe int, r *ring) error {
	p := &e.o.Probes[probe]
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_BREAKPOINT, Size: unix.PERF_ATTR_SIZE_VER5, Sample: 1, Sample_type: sampleType,
		Bits: unix.PerfBitUseClockID | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | unix.PerfBitInherit | unix.PerfBitSampleIDAll |
			unix.PerfBitWatermark,
		Bp_type: onExecute, Ext1: p.Addr, Ext2: 8, Clockid: unix.CLOCK_MONOTONIC, Sample_regs_user: regsMask(p)}
	attr.Wakeup = uint32(maxPages * os.Getpagesize() / 4)
	if probe == 0 {
		attr.Bits |= unix.PerfBitTask // ends of threads, once
	}
	if p.top() {
		attr.Sample_type |= unix.PERF_SAMPLE_STACK_USER
		attr.Sample_stack_user = 8 * wordsOfStack
	}
	try := func() (int, error) {
		a := attr
		if !e.plain {
			a.Bits |= bitInheritThread | bitRemoveOnExec
		}
		return unix.PerfEventOpen(&a, int(tid), r.cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	}
	fd, err := try()
	if errors.Is(err, unix.EINVAL) && !e.plain {
		e.plain = true
		fd, err = try()
	}
	if err != nil {
		return err
	}
	e.events = append(e.events, event{fd, probe})
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, r.fd); err != nil {
		return fmt.Errorf("direct its records: %w", err)
	}
	id, err := eventID(fd)
	if err != nil {
		return fmt.Errorf("ask for its number: %w", err)
	}
	e.probes[id] = source{probe, tid}
	return nil
}

// Wait sleeps until a buffer is half full or the time is over.
func (e *Engine) Wait(d time.Duration) {
	fds := make([]unix.PollFd, len(e.rings))
	for i, r := range e.rings {
		fds[i] = unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN}
	}
	_, _ = unix.Poll(fds, int(d.Milliseconds()))
}

// Read reports records to the sink, ordered by time. A thread that changes CPUs writes to several
// buffers, so records newer than the previous Read are kept for the next one. now is the time before
// the call. If last is set, Read reports all records.
func (e *Engine) Read(now stack.Time, sink calls.Sink, last bool) {
	for _, r := range e.rings {
		r.r.Read(e.take)
	}
	slices.SortStableFunc(e.pending, func(a, b record) int {
		switch {
		case a.hit.Time < b.hit.Time:
			return -1
		case a.hit.Time > b.hit.Time:
			return 1
		}
		return 0
	})
	until := e.before
	if last {
		until = math.MaxInt64
	}
	n := 0
	for ; n < len(e.pending) && e.pending[n].hit.Time <= until; n++ {
		x := &e.pending[n]
		switch {
		case x.lost > 0:
			sink.Lost(x.lost)
		case x.gone:
			for i := range e.o.Probes {
				delete(e.owner, place{x.hit.TID, i})
			}
			sink.Gone(x.hit.TID, x.hit.Time)
		default:
			sink.Hit(&x.hit)
		}
	}
	e.pending = slices.Delete(e.pending, 0, n)
	e.before = now
}

// Detach removes the breakpoints of a function, its entry first.
func (e *Engine) Detach(fn int) { e.remove(func(p *Probe) bool { return p.Fn == fn }) }

// Remove removes the breakpoints of one kind of all functions.
func (e *Engine) Remove(w calls.Where) { e.remove(func(p *Probe) bool { return p.Where == w }) }

func (e *Engine) remove(which func(p *Probe) bool) {
	for i := len(e.events) - 1; i >= 0; i-- {
		if x := &e.events[i]; which(&e.o.Probes[x.probe]) {
			unix.Close(x.fd)
			x.fd = -1
		}
	}
	e.events = slices.DeleteFunc(e.events, func(x event) bool { return x.fd < 0 })
}

// Stop removes all breakpoints. A last Read still reports the hits before that.
func (e *Engine) Stop() error {
	var errs []error
	for i := len(e.events) - 1; i >= 0; i-- {
		errs = append(errs, unix.Close(e.events[i].fd))
	}
	e.events = nil
	return errors.Join(errs...)
}

// Close removes all breakpoints and frees the buffers.
func (e *Engine) Close() error {
	errs := []error{e.Stop()}
	for _, r := range e.rings {
		errs = append(errs, r.r.Close(), unix.Close(r.fd))
	}
	e.rings = nil
	return errors.Join(errs...)
}

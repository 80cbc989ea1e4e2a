// Package kernel is the engine of exact tracing for thousands of functions: uprobes by
// uprobe_multi links (Linux 6.6) and a BPF program that writes a record of each hit into a ring. It
// needs CAP_BPF and CAP_PERFMON. The program is built with cilium/ebpf's assembler; no compiler and no
// BTF are needed.
//
// It never uses return probes. A return probe replaces the return address on the stack, so a C++
// exception that passes through the function ends the program (the replacement has no unwind table),
// and Go's stack copier aborts. Exits are probed at the function's own return instructions.
//
// The kernel removes the probes when their links are closed, so also when this program is killed. An
// Engine is for one goroutine.
package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
)

// Probe is a place in a file.
type Probe struct {
	Path  string // of the file, as this process opens it
	Off   uint64 // in the file
	Fn    int    // number of the function
	Where calls.Where
	Go    bool // the Go compiler made the code
}

// Bounds.
const (
	ringBytes = 8 << 20 // 130,000 records
	maxLinks  = 64      // beyond, functions share links
	maxGroup  = 1 << 14 // probes of one link, below the kernel's own limit of 2^20
)

// Engine has probes in one process.
type Engine struct {
	prog   *ebpf.Program
	ring   *ebpf.Map
	lost   *ebpf.Map
	reader *ringbuf.Reader
	rec    ringbuf.Record
	pid    uint32 // for the links; 0: the kernel's filter works on threads only (before 6.10)
	groups []*group
	ends   ends
	seen   uint32 // of lost, reported so far
}

// group is the probes of one link, all in the same file.
type group struct {
	probes []Probe
	link   link.Link
}

// Open sets probes in all threads of process pid: when it returns, each further call is seen.
func Open(pid int, probes []Probe) (*Engine, error) {
	if len(probes) == 0 {
		return nil, errors.New("set uprobes: no places")
	}
	if err := Check(); err != nil {
		return nil, fmt.Errorf("set uprobes: %w", err)
	}
	e := &Engine{}
	if err := e.open(pid, probes); err != nil {
		e.Close()
		if errors.Is(err, ebpf.ErrNotSupported) {
			err = ErrOld
		}
		return nil, fmt.Errorf("set uprobes: %w", explain(err))
	}
	return e, nil
}

// Check returns why this engine cannot work here; nil if no reason is known.
func Check() error {
	if err := rights(); err != nil {
		return err
	}
	if major, minor := release(); major != 0 && (major < 6 || major == 6 && minor < 6) {
		return fmt.Errorf("%w (this is %d.%d)", ErrOld, major, minor)
	}
	return initialSpace()
}

func (e *Engine) open(pid int, probes []Probe) (err error) {
	if e.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "sliver_hits", Type: ebpf.RingBuf, MaxEntries: ringBytes}); err != nil {
		return fmt.Errorf("make the ring: %w", err)
	}
	if e.lost, err = ebpf.NewMap(&ebpf.MapSpec{Name: "sliver_lost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return fmt.Errorf("make the count of losses: %w", err)
	}
	e.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_hit", Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti,
		License: "GPL", Instructions: program(uint32(pid), e.ring.FD(), e.lost.FD())})
	if err != nil {
		return fmt.Errorf("load the program: %w", err)
	}
	if e.reader, err = ringbuf.NewReader(e.ring); err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	// Before 6.10 the kernel compared the thread, not the process (46ba0e49b642). Then the program alone
	// decides, and other processes that map the file pay for a hit.
	if major, minor := release(); major > 6 || major == 6 && minor >= 10 {
		e.pid = uint32(pid)
	}
	if err := e.ends.open(uint32(pid), e.ring.FD(), e.lost.FD()); err != nil {
		return err
	}
	e.groups = grouped(probes)
	for _, g := range e.groups {
		if err := e.attach(g); err != nil {
			return err
		}
	}
	return nil
}

// Add sets further probes, all of them or none.
func (e *Engine) Add(probes []Probe) error {
	more := grouped(probes)
	for i, g := range more {
		if err := e.attach(g); err != nil {
			for _, g := range more[:i] {
				_ = g.link.Close()
			}
			return fmt.Errorf("set uprobes: %w", explain(err))
		}
	}
	e.groups = append(e.groups, more...)
	return nil
}

// grouped divides probes among links: one a function while they are few, so that one can be removed.
func grouped(probes []Probe) (out []*group) {
	fns := map[int]bool{}
	for i := range probes {
		fns[probes[i].Fn] = true
	}
	open := map[string]*group{} // the one that takes more, by file
	last := map[string]int{}
	for i := range probes {
		p := &probes[i]
		g := open[p.Path]
		another := p.Fn != last[p.Path]
		if g == nil || another && (len(fns) <= maxLinks || len(g.probes) >= maxGroup) {
			g = &group{}
			open[p.Path] = g
			out = append(out, g)
		}
		last[p.Path] = p.Fn
		g.probes = append(g.probes, *p)
	}
	for _, g := range out { // exits first: of each call whose entry is seen, the exit is seen too
		slices.SortStableFunc(g.probes, func(a, b Probe) int { return int(b.Where) - int(a.Where) })
	}
	return out
}

func (e *Engine) attach(g *group) error {
	x, err := link.OpenExecutable(g.probes[0].Path)
	if err != nil {
		return err
	}
	o := &link.UprobeMultiOptions{PID: e.pid}
	if e.pid != 0 && headless(e.pid) {
		o.PID = 0
	}
	for i := range g.probes {
		o.Addresses = append(o.Addresses, g.probes[i].Off)
		o.Cookies = append(o.Cookies, cookieOf(&g.probes[i]))
	}
	g.link, err = x.UprobeMulti(nil, e.prog, o)
	if err != nil {
		return fmt.Errorf("attach to %d places of %s: %w", len(g.probes), g.probes[0].Path, err)
	}
	return nil
}

// headless reports whether the first thread of a process has ended while others go on. The kernel's filter compares the
// memory of the first thread, which it has given up (uprobe_multi_link_filter of kernel/trace/bpf_trace.c): no uprobe would be
// set. The program filters too.
func headless(pid uint32) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	return err == nil && strings.HasPrefix(string(b), "0 ")
}

// A cookie identifies a probe in the program's records: function, Go or not, and place.
const (
	cookieWhere = 3
	cookieGo    = 1 << 2
	cookieFn    = 8 // shift
)

func cookieOf(p *Probe) uint64 {
	c := uint64(p.Fn)<<cookieFn | uint64(p.Where)
	if p.Go {
		c |= cookieGo
	}
	return c
}

// Wait sleeps for d. The program sends no wake-ups, since one costs more than writing a record.
func (e *Engine) Wait(d time.Duration) {
	_, _ = unix.Poll(nil, int(d.Milliseconds()))
}

// Read reports all hits and ends of threads of which there are records. A thread's records are in order in the ring.
func (e *Engine) Read(_ stack.Time, sink calls.Sink, _ bool) {
	all := e.losses()
	readRing(e.reader, &e.rec, func(b []byte) {
		if h, lost, ok := parse(b); ok {
			e.lose(sink, lost)
			if h.Fn == endFn {
				sink.Gone(h.TID, h.Time)
				return
			}
			sink.Hit(&h)
		}
	})
	if e.reader.AvailableBytes() == 0 { // the records before these losses have been read
		e.lose(sink, all)
	}
}

// lose reports losses up to a count, modulo 2^32: of two CPUs, the records with the smaller count can come last.
func (e *Engine) lose(sink calls.Sink, count uint32) {
	if n := int32(count - e.seen); n > 0 {
		e.seen = count
		sink.Lost(uint64(n))
	}
}

func (e *Engine) losses() uint32 {
	var n uint64
	if err := e.lost.Lookup(uint32(0), &n); err != nil {
		return e.seen
	}
	return uint32(n)
}

// recordSize is what the program writes: see program.
const recordSize = 56

// parse returns the hit of a record, and the count of losses before it.
func parse(b []byte) (h calls.Hit, lost uint32, ok bool) {
	if len(b) < recordSize {
		return h, 0, false
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	cookie := word(2)
	h = calls.Hit{Time: stack.Time(word(0)), TID: stack.TID(uint32(word(1))), Fn: int(cookie >> cookieFn), Where: calls.Where(cookie & cookieWhere),
		CFA: word(3) + pushed}
	if h.Where == calls.Enter {
		h.Ret = word(4)
	}
	if cookie&cookieGo != 0 {
		h.Task = word(5)
		if end := word(6); end >= h.CFA && end-h.CFA < 1<<32 { // the distance stays when the stack is copied
			h.CFA -= end
		} else {
			h.Moves = true
		}
	}
	return h, uint32(word(1) >> 32), true
}

// Detach removes the probes of a function. Functions that share its link are without probes for a
// moment.
func (e *Engine) Detach(fn int) {
	for _, g := range e.groups {
		if !slices.ContainsFunc(g.probes, func(p Probe) bool { return p.Fn == fn }) || g.link == nil {
			continue
		}
		_ = g.link.Close()
		g.link = nil
		if g.probes = slices.DeleteFunc(g.probes, func(p Probe) bool { return p.Fn == fn }); len(g.probes) > 0 {
			_ = e.attach(g)
		}
	}
}

// Stop removes all probes. A last Read still reports the hits before that.
func (e *Engine) Stop() error {
	var errs []error
	for _, g := range e.groups {
		if g.link != nil {
			errs = append(errs, g.link.Close())
			g.link = nil
		}
	}
	return errors.Join(errs...)
}

// Close removes all probes and frees the ring.
func (e *Engine) Close() error {
	errs := []error{e.Stop()}
	if e.reader != nil {
		errs = append(errs, e.reader.Close())
	}
	if e.prog != nil {
		errs = append(errs, e.prog.Close())
	}
	errs = append(errs, e.ends.close())
	for _, m := range []*ebpf.Map{e.ring, e.lost} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

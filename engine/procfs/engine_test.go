// Package procfs has a second engine for package sampler, in its tests: it reads blocked threads from
// /proc and stops none. It shows what an engine has to do, and that sampler needs no other.
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// thread is one thread of a process, by its folder in /proc.
type thread struct {
	sampler.NoClock
	sampler.NoDeath
	tid stack.TID
	dir string
}

func (t *thread) read(name string) (string, error) {
	b, err := os.ReadFile(t.dir + name)
	if err != nil || len(b) == 0 {
		return "", sampler.ErrGone
	}
	return string(b), nil
}

// Counters implements sampler.Thread.
func (t *thread) Counters(c *sampler.Counters) error {
	s, err := t.read("schedstat")
	if err == nil {
		_, err = fmt.Sscan(s, &c.CPU, &c.Delay, &c.Switches)
	}
	return err
}

// where returns the call, stack pointer and program counter of a blocked thread.
func (t *thread) where(c *stack.Call) (running bool, sp, pc uint64, err error) {
	*c = stack.Call{Nr: -1}
	s, err := t.read("syscall")
	if err != nil {
		return false, 0, 0, err
	}
	f := strings.Fields(s)
	if len(f) < 3 {
		return true, 0, 0, nil
	}
	nr, err := strconv.ParseInt(f[0], 10, 32)
	if err != nil {
		return false, 0, 0, fmt.Errorf("syscall of thread %d: %w", t.tid, err)
	}
	var all [8]uint64
	for i, x := range f[1:min(len(f), len(all)+1)] {
		if all[i], err = strconv.ParseUint(x, 0, 64); err != nil {
			return false, 0, 0, fmt.Errorf("syscall of thread %d: %w", t.tid, err)
		}
	}
	c.Nr = int32(nr)
	if nr < 0 {
		return false, all[0], all[1], nil
	}
	copy(c.Args[:], all[:6])
	return false, all[6], all[7], nil
}

// Call implements sampler.Thread.
func (t *thread) Call(c *stack.Call) (running bool, err error) {
	running, _, _, err = t.where(c)
	return running, err
}

// State implements sampler.Thread.
func (t *thread) NewName(stack.Time) (string, bool) { return "", false }

func (t *thread) State() (stack.State, error) {
	s, err := t.read("stat")
	if err != nil {
		return stack.StateDead, err
	}
	after := s[strings.LastIndexByte(s, ')')+1:]
	if len(after) < 2 {
		return stack.StateUnknown, fmt.Errorf("stat of thread %d: no state", t.tid)
	}
	return target.StateOf(after[1]), nil
}

// OnCPU implements sampler.Thread. Only stops depend on it.
func (t *thread) OnCPU() (bool, error) { return true, nil }

// TimesOut implements sampler.Thread. Only stops depend on it.
func (t *thread) TimesOut(*stack.Call) bool { return true }

// Close implements sampler.Thread.
func (t *thread) Close() error { return nil }

// maxStack bounds the bytes of stack that one read copies.
const maxStack = 1 << 20

// engine reads blocked threads.
type engine struct {
	sampler.NoStops
	sampler.NoRegisters
	mem   *os.File // of the process
	space *unwind.Space
	regs  stack.Regs
	woken chan struct{}
}

// Can implements sampler.Engine.
func (e *engine) Can() sampler.Abilities { return sampler.Abilities{} }

// Read implements sampler.Engine. Equal counters before and after show that the thread did not run.
func (e *engine) Read(th sampler.Thread, v *sampler.View) (ok bool, err error) {
	t := th.(*thread)
	v.Asked = target.Now()
	before, err := t.read("schedstat")
	if err != nil {
		return false, err
	}
	v.Stopped = target.Now()
	if err := t.Counters(&v.Counters); err != nil {
		return false, err
	}
	running, sp, pc, err := t.where(&v.Call)
	if err != nil || running || sp == 0 {
		return false, err
	}
	e.regs = stack.Regs{PC: pc}
	e.regs.Set(e.space.Arch().SP(), sp)
	v.Regs, v.Mem.Blocks, v.Reads = &e.regs, v.Mem.Blocks[:0], 0
	v.Halted, v.Restarted, v.Group, v.Found = 0, false, false, sampler.ActivityAsleep
	for _, s := range v.Spans {
		v.Mem.Blocks = append(v.Mem.Blocks, e.block(v, s.Addr, s.Len))
	}
	n := max(v.StackDefault, 8<<10)
	if v.StackHigh > sp && sp >= v.StackLow {
		n = int(min(v.StackHigh-sp, maxStack))
	}
	v.Mem.Blocks = append(v.Mem.Blocks, e.block(v, sp, n))
	after, err := t.read("schedstat")
	v.Resumed = target.Now()
	return before == after, err
}

// block copies memory of the process; it is shorter if that ends.
func (e *engine) block(v *sampler.View, addr uint64, n int) unwind.Block {
	b := make([]byte, n)
	v.Reads++
	n, _ = e.mem.ReadAt(b, int64(addr))
	return unwind.Block{Addr: addr, Data: b[:n]}
}

// SleepUntil implements sampler.Engine.
func (e *engine) SleepUntil(t stack.Time) {
	select {
	case <-e.woken:
	case <-time.After(time.Duration(t - target.Now())):
	}
}

// Wake implements sampler.Engine.
func (e *engine) Wake() {
	select {
	case e.woken <- struct{}{}:
	default:
	}
}

// Now implements sampler.Engine.
func (e *engine) Now() stack.Time { return target.Now() }

// Spent implements sampler.Engine.
func (e *engine) Spent() (thread, helpers int64) { return 0, 0 }

// Close implements sampler.Engine.
func (e *engine) Close() { e.mem.Close() }

// process is a sampler.Target whose threads this engine reads.
type process struct {
	sampler.NoCosts
	sampler.NoRest
	*target.Process
	space *unwind.Space
}

func newProcess(p *target.Process, space *unwind.Space) (*process, error) {
	x := &process{Process: p, space: space}
	_, err := x.Remap(false)
	return x, err
}

// Now implements sampler.Target.
func (p *process) Now() stack.Time { return target.Now() }

// Info implements sampler.Target.
func (p *process) Info(tid stack.TID) (stack.ThreadInfo, error) {
	in, err := p.ThreadInfo(tid)
	return stack.ThreadInfo{TID: tid, Name: in.Name, Main: int(tid) == p.PID(), Born: in.Start}, err
}

// Open implements sampler.Target.
func (p *process) Open(in *stack.ThreadInfo) (sampler.Thread, error) {
	th := &thread{tid: in.TID, dir: fmt.Sprintf("/proc/%d/task/%d/", p.PID(), in.TID)}
	var c sampler.Counters
	err := th.Counters(&c)
	in.CPU = c.CPU
	return th, err
}

// Engine implements sampler.Target.
func (p *process) Engine(int) (sampler.Engine, error) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.PID()))
	if err != nil {
		return nil, err
	}
	return &engine{mem: mem, space: p.space, woken: make(chan struct{}, 1)}, nil
}

// Space implements sampler.Target.
func (p *process) Space() *unwind.Space { return p.space }

// RestCPU implements sampler.Target.
func (p *process) RestCPU(but []sampler.Thread) (ns int64, ok bool) { return p.NoRest.RestCPU(but) }

// Remap implements sampler.Target.
func (p *process) Remap(bool) (changed bool, err error) {
	maps, err := p.Maps()
	if err == nil {
		p.space.Update(maps)
	}
	return false, err
}

// Replaced implements sampler.Target.
func (p *process) Replaced(stack.Time) (changed bool, err error) { return p.Remap(false) }

// switches returns how often a thread has left a CPU: each stop would add to it.
func switches(pid int, tid stack.TID) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if err != nil {
		return "", err
	}
	i := bytes.Index(b, []byte("voluntary_ctxt_switches"))
	if i < 0 {
		return "", syscall.ENODATA
	}
	return string(b[i:]), nil
}

package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// Sched records the context switches of one process with two programs, at each switch and each wake-up of
// the machine (typed tracepoints sched_switch and sched_waking, Linux 5.8). A record describes the time from
// a thread's switch off a CPU to its next switch on one: when it left, with which state, when which thread
// woke it, and when it ran again. The programs send no wake-ups to the reader of the ring.
//
// A thread that switches more often than the limits allow has sums for the rest, and its next record has
// these sums. The same happens if the ring is full. So the totals are exact in any case, and the
// kernel does a bounded amount of work for the reader.
//
// Switches of other processes cost two comparisons. The kernel removes the programs when this process ends,
// also if it is killed. A Sched is for one goroutine.
type Sched struct {
	attached
	bad     uint64
	skipped uint64 // of records that were read

	without []string // see Without
	frames  []uint64 // of Switch.Stack
}

// SchedOptions bound the records. Zero values are the defaults.
type SchedOptions struct {
	Ring      int // bytes, a power of two of at least a page; 0: 4 MiB
	PerThread int // records of a thread in 100 ms; 0: 1,000. Waits of 1 ms and longer do not count
	PerCPU    int // records of a CPU in 100 ms; 0: 5,000 divided by the CPUs, at least 200
	// Stacks is how long a wait must be to have its kernel stack; 0: 1 ms, negative: none has one.
	Stacks time.Duration
}

// Defaults and limits of the records.
const (
	schedRing      = 4 << 20
	schedThread    = 1000
	schedTotal     = 5000 // of all CPUs in a window
	schedLeastCPU  = 200
	schedWindow    = int64(100 * time.Millisecond)
	schedLong      = time.Millisecond
	maxSchedTasks  = 1 << 15 // places, a power of two
	schedRecBytes  = 80
	schedTaskBytes = 128

	maxKernelFrames = 64 // more are cut
)

// OpenSched begins to record the switches of process pid.
func OpenSched(pid int, o SchedOptions) (*Sched, error) {
	if err := CheckSched(); err != nil {
		return nil, err
	}
	e := &Sched{attached: attached{maps: map[string]*ebpf.Map{}}}
	if err := e.open(pid, o); err != nil {
		e.Close()
		return nil, explain(err)
	}
	return e, nil
}

// CheckSched returns why switches cannot be recorded here; nil if no reason is known.
func CheckSched() error {
	if err := errors.Join(rights(), initialSpace()); err != nil {
		return err
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return ErrTypes
	}
	return nil
}

func (e *Sched) open(pid int, o SchedOptions) error {
	l, err := findSchedLayout()
	if err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	for _, s := range []ebpf.MapSpec{
		{Name: "sched_tasks", Type: ebpf.Array, KeySize: 4, ValueSize: schedTaskBytes, MaxEntries: maxSchedTasks},
		{Name: "sched_cpu", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: schedCPUBytes, MaxEntries: 1},
		{Name: "sched_stack", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: schedRecBytes + maxKernelFrames*8, MaxEntries: 1},
		{Name: "sched_ring", Type: ebpf.RingBuf, MaxEntries: uint32(cmp.Or(o.Ring, schedRing))},
	} {
		m, err := ebpf.NewMap(&s)
		if err != nil {
			return fmt.Errorf("make map %s: %w", s.Name, err)
		}
		e.maps[s.Name] = m
	}
	if e.reader, err = ringbuf.NewReader(e.maps["sched_ring"]); err != nil {
		return fmt.Errorf("read the ring: %w", err)
	}
	p := &schedPrograms{pid: int32(pid), l: l, tasks: e.maps["sched_tasks"].FD(), cpu: e.maps["sched_cpu"].FD(), ring: e.maps["sched_ring"].FD(),
		perThread: int32(cmp.Or(o.PerThread, schedThread)), perCPU: int32(cmp.Or(o.PerCPU, max(schedTotal/max(cpus, 1), schedLeastCPU)))}
	p.stack, p.after = e.maps["sched_stack"].FD(), max(int64(cmp.Or(o.Stacks, schedLong)), 0)
	if err := e.attach("sched_waking", p.waking()); err != nil {
		return err
	}
	if err := e.attach("sched_switch", p.switches()); err != nil {
		if p.after == 0 {
			return err
		}
		p.after = 0
		if e.attach("sched_switch", p.switches()) != nil {
			return err
		}
		e.without = append(e.without, "kernel stacks of waits are not known (Linux 5.9 or later shows them): "+err.Error())
	}
	for _, x := range interrupts {
		if err := e.attach(x.name, p.interrupt(x.flag, x.on)); err != nil {
			e.without = append(e.without, "which wake-ups came from interrupts is not fully known: "+err.Error())
			break
		}
	}
	return nil
}

// attach runs a program at a tracepoint.
func (e *Sched) attach(name string, code asm.Instructions) error {
	s := ebpf.ProgramSpec{Name: "sliver_" + strings.TrimPrefix(name, "sched_"), Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: name, License: "GPL", Instructions: code}
	if len(s.Name) > 15 { // BPF_OBJ_NAME_LEN
		s.Name = s.Name[:15]
	}
	prog, err := ebpf.NewProgram(&s)
	if err != nil {
		return fmt.Errorf("load program %s: %w", s.Name, err)
	}
	e.progs = append(e.progs, prog)
	x, err := link.AttachTracing(link.TracingOptions{Program: prog})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", name, err)
	}
	e.links = append(e.links, x)
	return nil
}

// Without returns a line for each thing that this kernel does not show.
func (e *Sched) Without() []string { return e.without }

// schedLayout is where the programs find what they need.
type schedLayout struct {
	pid, tgid, state uint32 // in task_struct
	// Arguments of sched_switch, in bytes. prevState is negative before Linux 5.18, which had no such argument.
	prev, next, prevState int16
}

// findSchedLayout reads the type information of the running kernel.
func findSchedLayout() (*schedLayout, error) {
	l := &schedLayout{}
	if err := offsets([]member{{&l.pid, "task_struct", []string{"pid"}}, {&l.tgid, "task_struct", []string{"tgid"}}}); err != nil {
		return nil, err
	}
	if err := offsets([]member{{&l.state, "task_struct", []string{"__state"}}}); err != nil { // its name since Linux 5.14
		if err := offsets([]member{{&l.state, "task_struct", []string{"state"}}}); err != nil {
			return nil, err
		}
	}
	if max(l.pid, l.tgid, l.state) > math.MaxInt16 {
		return nil, fmt.Errorf("members of task_struct are out of reach (%d, %d, %d)", l.pid, l.tgid, l.state)
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTypes, err)
	}
	if err := l.arguments(spec); err != nil {
		return nil, err
	}
	return l, nil
}

// arguments finds those of sched_switch by their types: two tasks, the one that leaves first, and a state,
// which some versions have between them.
func (l *schedLayout) arguments(spec *btf.Spec) error {
	const name = "btf_trace_sched_switch"
	var td *btf.Typedef
	if err := spec.TypeByName(name, &td); err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	p, _ := btf.UnderlyingType(td).(*btf.Pointer)
	if p == nil {
		return fmt.Errorf("%s is not a pointer", name)
	}
	f, _ := p.Target.(*btf.FuncProto)
	if f == nil {
		return fmt.Errorf("%s does not point to a function", name)
	}
	l.prev, l.next, l.prevState = -1, -1, -1
	for i, a := range f.Params {
		at := int16(8 * (i - 1)) // the first one is the probe's own
		switch t := btf.UnderlyingType(a.Type).(type) {
		case *btf.Pointer:
			if s, ok := t.Target.(*btf.Struct); !ok || s.Name != "task_struct" {
				continue
			}
			if l.prev < 0 {
				l.prev = at
			} else {
				l.next = at
			}
		case *btf.Int:
			if t.Size == 4 {
				l.prevState = at
			}
		}
	}
	if l.prev < 0 || l.next < 0 {
		return fmt.Errorf("%s does not have two tasks as arguments", name)
	}
	return nil
}

// Switch is the time of a thread off the CPUs.
type Switch struct {
	TID  stack.TID
	Out  stack.Time  // when it left; 0: before the recording began
	Wake stack.Time  // when it became ready to run; 0: unknown, or not yet
	In   stack.Time  // when it ran again; 0: not yet
	How  SwitchState // how it left
	// Waker is the thread that woke it, also of another process; 0: the kernel's idle thread or, if Wake is
	// 0, none. In an interrupt it is the thread that the interrupt found on the CPU.
	Waker     stack.TID
	WakerPID  int
	WakerComm [16]byte // the kernel's name of a thread of another process
	Hard      bool     // it was woken by an interrupt
	Soft      bool     // it was woken by the deferred part of one
	Timer     bool     // the interrupt was a timer's
	// Skipped are the times off the CPUs before this one that have no record, Asleep and Queued the ns in
	// them before and after the wake-up. Full says that the ring was full, Rate that there were too many.
	Skipped        uint64
	Asleep, Queued uint64
	Full, Rate     bool
	Ended          bool // the thread ended at Out
	// Stack is the kernel's part of the stack that it waited with, as return addresses, innermost first. It is
	// empty for short waits, and valid until the callback of Read returns.
	Stack []uint64
}

// WakerName returns the kernel's name of a waker of another process.
func (s *Switch) WakerName() string { return unix.ByteSliceToString(s.WakerComm[:]) }

// SwitchState is the kernel's state of a thread that leaves a CPU (include/linux/sched.h); 0: it was
// preempted, or yielded.
type SwitchState uint16

// States.
const (
	SwitchSleep   SwitchState = 1
	SwitchDisk    SwitchState = 2
	SwitchStopped SwitchState = 4
	SwitchTraced  SwitchState = 8
	switchDead    SwitchState = 0x80
)

// State returns it in the words of /proc.
func (s SwitchState) State() stack.State {
	switch {
	case s&(SwitchStopped) != 0:
		return stack.StateStopped
	case s&SwitchTraced != 0:
		return stack.StateTraced
	case s&SwitchDisk != 0:
		return stack.StateDisk
	case s&(0x10|0x20|switchDead) != 0: // EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD
		return stack.StateDead
	case s&(SwitchSleep|0x40|0x1000|0x4000) != 0: // also TASK_PARKED, TASK_RTLOCK_WAIT of both numberings
		return stack.StateBlocked
	case s != 0:
		return stack.StateBlocked
	}
	return stack.StateRunnable
}

// parseSwitch parses a record of the program at switches, or the value of a thread.
func parseSwitch(b []byte, s *Switch) error {
	if len(b) < schedRecBytes {
		return fmt.Errorf("record of %d bytes, at least %d are needed", len(b), schedRecBytes)
	}
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	half := func(off int) uint32 { return binary.NativeEndian.Uint32(b[off:]) }
	*s = Switch{TID: stack.TID(half(swTID)), Out: stack.Time(word(swOut)), Wake: stack.Time(word(swWake)), In: stack.Time(word(swIn)),
		How: SwitchState(binary.NativeEndian.Uint16(b[swState:])), Skipped: word(swSkipped), Asleep: word(swAsleep), Queued: word(swQueued)}
	flags := b[swFlags]
	s.Full, s.Rate, s.Ended = flags&swFull != 0, flags&swRate != 0, flags&swEnded != 0
	if s.Ended {
		s.Wake, s.In = 0, 0
		return nil
	}
	if s.How == 0 { // a wake-up before was of a sleep that did not happen
		s.Wake = s.Out
		return s.check()
	}
	if s.Wake == 0 {
		return s.check()
	}
	s.Wake = max(s.Wake, s.Out) // another CPU may wake a thread before it has left its own
	s.Waker, s.WakerPID, s.WakerComm = stack.TID(half(swWaker)), int(half(swWaker+4)), [16]byte(b[swComm:])
	s.Hard, s.Soft, s.Timer = b[swBy]&byHard != 0, b[swBy]&bySoft != 0, b[swBy]&byTimer != 0
	if s.Waker == 0 && !s.Soft {
		s.Hard = true // the idle thread wakes only what an interrupt lets it
	}
	return s.check()
}

func (s *Switch) check() error {
	if s.Out < 0 || s.In < 0 || s.Wake < 0 || s.In != 0 && (s.In < s.Out || s.In < s.Wake) {
		return fmt.Errorf("record of thread %d with times %d, %d, %d", s.TID, s.Out, s.Wake, s.In)
	}
	return nil
}

// Wait sleeps for d.
func (e *Sched) Wait(d time.Duration) { _, _ = unix.Poll(nil, int(d.Milliseconds())) }

// Read calls f for each record, those of one thread in the order of their ends. The record is valid until f
// returns. It reads at most one ring's worth.
func (e *Sched) Read(f func(*Switch)) {
	var s Switch
	e.records(func(b []byte) {
		if err := parseSwitch(b, &s); err != nil {
			e.bad++
			return
		}
		e.skipped += s.Skipped
		e.frames = e.frames[:0]
		for b = b[schedRecBytes:]; len(b) >= 8 && len(e.frames) < maxKernelFrames; b = b[8:] {
			e.frames = append(e.frames, binary.NativeEndian.Uint64(b))
		}
		s.Stack = e.frames
		f(&s)
	})
}

// Rest calls f for the unfinished time of each thread: Out is not 0 if it is off the CPUs. Otherwise In is when
// it began to run. Both are 0 if neither is known. Call it after Stop and a last Read.
func (e *Sched) Rest(f func(*Switch)) error {
	v := make([]byte, schedTaskBytes)
	var s Switch
	for i := range uint32(maxSchedTasks) {
		if err := e.maps["sched_tasks"].Lookup(i, &v); err != nil {
			return fmt.Errorf("read threads: %w", err)
		}
		if binary.NativeEndian.Uint32(v[swTID:]) == 0 {
			continue
		}
		if out := binary.NativeEndian.Uint64(v[swOut:]); out != 0 {
			binary.NativeEndian.PutUint64(v[swIn:], 0) // of the switch before
		} else if binary.NativeEndian.Uint64(v[swIn:]) != 0 {
			binary.NativeEndian.PutUint64(v[swWake:], 0) // of a sleep that did not happen
		}
		if parseSwitch(v, &s) != nil {
			e.bad++
			continue
		}
		e.skipped += s.Skipped
		f(&s)
	}
	return nil
}

// SchedLosses are what the programs had to drop.
type SchedLosses struct {
	Full    uint64 // records, because the ring was full: their times are in the sums
	Rate    uint64 // records, because there were too many, as far as the records that were read say: the same
	Threads uint64 // switches of threads beyond the limit
	Ends    uint64 // ends of threads without a record
	Bad     uint64 // records that cannot be parsed
	Stacks  uint64 // kernel stacks of long waits: the ring was full, or the kernel did not find them
}

// Losses returns the losses so far.
func (e *Sched) Losses() (l SchedLosses) {
	var each [][]byte
	if e.maps["sched_cpu"].Lookup(uint32(0), &each) == nil {
		for _, b := range each {
			word := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
			l.Full, l.Threads, l.Ends = l.Full+word(cpuFull), l.Threads+word(cpuTasks), l.Ends+word(cpuEnds)
			l.Stacks += word(cpuStacks)
		}
	}
	l.Bad, l.Rate = e.bad, max(e.skipped, l.Full)-l.Full
	return l
}

// Package perffilter lets the kernel copy only some threads at the ticks of a perf event: a BPF program looks the thread
// up before the copy is made. What a copy means is its reader's business. It needs CAP_BPF and CAP_PERFMON.
package perffilter

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/sliverprof/sliver/internal/caps"
)

// maxThreads is the most threads that a filter keeps.
const maxThreads = 4096

// ErrFull: the filter keeps maxThreads threads.
var ErrFull = errors.New("too many threads for one filter of perf events")

// Filter is one program and its threads. Its methods may be called from any goroutine.
type Filter struct {
	program *ebpf.Program
	kept    *ebpf.Map // thread to keptThread
	then    *ebpf.Map // another program, which runs before a copy is made
	others  *ebpf.Map // ticks of other threads, one count for each CPU
}

// keptThread is what the program knows of a thread.
type keptThread struct {
	Most  uint32 // the largest random number with which it is copied
	Pad   uint32
	Ticks uint64 // at which it ran
}

// New loads a filter that keeps no thread.
func New() (f *Filter, err error) {
	if !caps.InitialPIDs() {
		return nil, errors.New("the numbers of threads are those of a PID namespace")
	}
	f = &Filter{}
	defer func() {
		if err != nil {
			f.Close()
			f, err = nil, fmt.Errorf("load a filter of perf events: %w", err)
		}
	}()
	if f.kept, err = ebpf.NewMap(&ebpf.MapSpec{Name: "sliver_kept", Type: ebpf.Hash, KeySize: 4, ValueSize: 16, MaxEntries: maxThreads}); err != nil {
		return f, err
	}
	if f.others, err = ebpf.NewMap(&ebpf.MapSpec{Name: "sliver_others", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return f, err
	}
	if f.then, err = ebpf.NewMap(&ebpf.MapSpec{Name: "sliver_then", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1}); err != nil {
		return f, err
	}
	f.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_filter", Type: ebpf.PerfEvent, License: "GPL", Instructions: f.code()})
	return f, err
}

// code returns the program: 1 is to copy the thread, 0 is not to (kernel/events/core.c, bpf_overflow_handler).
func (f *Filter) code() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R7, asm.R1),
		asm.FnGetCurrentPidTgid.Call(),
		asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, f.kept.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "other"),
		asm.LoadMem(asm.R6, asm.R0, 0, asm.Word),
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
		asm.FnGetPrandomU32.Call(),
		asm.LSh.Imm(asm.R0, 32), asm.RSh.Imm(asm.R0, 32),
		asm.JGT.Reg(asm.R0, asm.R6, "out"),
		asm.Mov.Reg(asm.R1, asm.R7), asm.LoadMapPtr(asm.R2, f.then.FD()), asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(), // without another program, the code goes on here
		asm.Mov.Imm(asm.R0, 1), asm.Return(),

		asm.StoreImm(asm.RFP, -4, 0, asm.Word).WithSymbol("other"),
		asm.LoadMapPtr(asm.R1, f.others.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return(),
	}
}

// FD returns the program's file, for PERF_EVENT_IOC_SET_BPF.
func (f *Filter) FD() int { return f.program.FD() }

// Then makes another program run for each copy, before it is made. Its result decides whether it is made.
func (f *Filter) Then(fd int) error { return f.then.Put(uint32(0), uint32(fd)) }

// Keep copies the thread at a share of its ticks, each by chance.
func (f *Filter) Keep(tid int, share float64) error {
	x := keptThread{Most: uint32(max(0, min(share*(1<<32)-1, math.MaxUint32))), Ticks: f.Ticks(tid)}
	err := f.kept.Put(uint32(tid), x)
	if errors.Is(err, syscall.E2BIG) {
		return ErrFull
	}
	return err
}

// Ticks returns at how many ticks a kept thread ran.
func (f *Filter) Ticks(tid int) uint64 {
	var x keptThread
	_ = f.kept.Lookup(uint32(tid), &x) // else there were none
	return x.Ticks
}

// Forget ends Keep. It does nothing for a thread that is not kept.
func (f *Filter) Forget(tid int) { _ = f.kept.Delete(uint32(tid)) }

// Others returns at how many ticks so far a thread ran that is not kept.
func (f *Filter) Others() (n int64) {
	var each []uint64
	if f.others.Lookup(uint32(0), &each) == nil {
		for _, x := range each {
			n += int64(x)
		}
	}
	return n
}

// Close frees what New made. Events that the filter is attached to keep it.
func (f *Filter) Close() {
	f.program.Close()
	f.kept.Close()
	f.then.Close()
	f.others.Close()
}

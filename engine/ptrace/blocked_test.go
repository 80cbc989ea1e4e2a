package ptrace

//sliver:layer live

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// TestRegisters: the registers of a blocked thread that the kernel shows are those that a stop shows, except for the one that has
// the call's result.
func TestRegisters(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "c/sleepers", "O2"), "--sleepers", "9", "--seconds", "120", "--wait-go")
	p.Ready()
	p.Go()
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for x := blocked.get(kernel.OpenBlocked); x == nil || x.err != nil; x = blocked.get(kernel.OpenBlocked) {
		if x != nil {
			testprog.Missing(t, "bpf", x.err.Error())
		}
		<-tick.C
	}
	e, err := New(proc, nil, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.UseKernel()
	if !e.Registers() || e.Registers() {
		t.Fatal("the first call enables them, and the second has nothing to add")
	}
	compared := 0
	for begin := time.Now(); compared < 3 && time.Since(begin) < time.Minute; <-tick.C {
		tids, err := proc.Threads(nil)
		if err != nil {
			t.Fatal(err)
		}
		compared = 0
		for _, tid := range tids {
			if compareRegisters(t, proc, e, tid) {
				compared++
			}
		}
	}
	if compared < 3 {
		t.Errorf("only %d threads were blocked before and after a stop", compared)
	}
}

// compareRegisters reads a thread and then stops it. It reports whether it was blocked at one place at both times.
func compareRegisters(t *testing.T, proc *target.Process, e *Engine, tid stack.TID) bool {
	t.Helper()
	th, err := Open(proc, tid, nil, nil)
	if err != nil {
		return false
	}
	defer th.Close()
	ok, err := th.ReadBlocked(e.w)
	if err != nil || !ok || e.w.Call.Nr < 0 {
		return false
	}
	read := e.w.Regs
	if err := e.Capture(th.Thread, e.w); err != nil || e.w.Regs.PC != read.PC || e.w.Call.Nr < 0 {
		return false
	}
	if read.TLS != e.w.Regs.TLS {
		t.Errorf("TID %d: TLS %#x, and %#x at the stop", tid, read.TLS, e.w.Regs.TLS)
	}
	for i := range read.R {
		const result = 0 // of a call, on both machines
		if i == result {
			continue
		}
		if read.Known != e.w.Regs.Known || read.R[i] != e.w.Regs.R[i] {
			t.Errorf("TID %d, PC %#x: register %d is %#x, and %#x at the stop; known %#x and %#x", tid, read.PC, i, read.R[i], e.w.Regs.R[i], read.Known, e.w.Regs.Known)
		}
	}
	return true
}

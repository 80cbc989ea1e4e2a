package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// endFn is the number of the function in a record of the end of a thread. No function has it.
const endFn = 1<<(64-cookieFn) - 1

// ends writes a record when a thread of the process ends, so that calls that were under way have their time of end.
type ends struct {
	prog *ebpf.Program
	link link.Link
}

func (x *ends) open(pid uint32, ring, lost int) (err error) {
	x.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sliver_end", Type: ebpf.RawTracepoint, License: "GPL", Instructions: endProgram(pid, ring, lost)})
	if err != nil {
		return fmt.Errorf("load the program for ends of threads: %w", err)
	}
	x.link, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: x.prog})
	if err != nil {
		return fmt.Errorf("observe ends of threads: %w", err)
	}
	return nil
}

func (x *ends) close() error {
	var errs []error
	if x.link != nil {
		errs = append(errs, x.link.Close())
	}
	if x.prog != nil {
		errs = append(errs, x.prog.Close())
	}
	return errors.Join(errs...)
}

// endProgram is run by each thread of the machine that ends (do_exit of kernel/exit.c). It leaves at once for other processes
// than pid.
func endProgram(pid uint32, ring, lost int) asm.Instructions {
	return slices.Concat(begin(pid, lost), asm.Instructions{
		asm.Mov.Imm(asm.R1, -1), // the cookie: endFn
		asm.StoreMem(asm.RFP, atCookie, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.RFP, atSP, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, atRet, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, atTask, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, atEnd, asm.R1, asm.DWord),
	}, send(ring, lost))
}

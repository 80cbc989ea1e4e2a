// Command floor attaches programs that do nothing to the beginning and the end of system calls, to show
// which part of the cost of watching I/O is the kernel's own: see bench/io.sh.
//
//	floor enter|exit|both
//	floor times PID
//
// These are the raw tracepoints sys_enter and sys_exit. With times, the programs are the least that can know how
// long the calls of a process take: at the beginning they note the time beside the task, and at the end they add
// what went by to one sum, for any call of any file. It ends with an interrupt.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	points := map[string][]string{"enter": {"sys_enter"}, "exit": {"sys_exit"}, "both": {"sys_enter", "sys_exit"}}
	code := map[string]asm.Instructions{}
	switch {
	case len(args) == 2 && args[0] == "times":
		pid, err := strconv.ParseInt(args[1], 10, 32)
		if err != nil {
			return fmt.Errorf("invalid process number %q", args[1])
		}
		m, err := threads()
		if err != nil {
			return err
		}
		defer m.Close()
		if code["sys_enter"], code["sys_exit"], err = timing(m.FD(), int32(pid)); err != nil {
			return err
		}
	case len(args) == 1 && points[args[0]] != nil:
		for _, name := range points[args[0]] {
			code[name] = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
		}
	default:
		return errors.New("usage: floor enter|exit|both, or floor times PID")
	}
	for name, in := range code {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: in})
		if err != nil {
			return fmt.Errorf("load the program: %w", err)
		}
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: p})
		if err != nil {
			return fmt.Errorf("attach to %s: %w", name, err)
		}
		defer l.Close()
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	<-c
	return nil
}

// Value of the map of threads: the time at which a call began, and the sum of the times of calls, in ns.
const taskStart, taskSum, taskBytes = 0, 8, 16

// threads makes a map with a value beside each task.
func threads() (*ebpf.Map, error) {
	const noPrealloc = 1 // BPF_F_NO_PREALLOC, which this type requires, as it does type information
	word := &btf.Int{Name: "word", Size: 8}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "threads", Type: ebpf.TaskStorage, KeySize: 4, ValueSize: taskBytes, Flags: noPrealloc, Key: &btf.Int{Name: "key", Size: 4},
		Value: &btf.Struct{Name: "times", Size: taskBytes, Members: []btf.Member{{Name: "start", Type: word, Offset: 8 * taskStart}, {Name: "sum", Type: word, Offset: 8 * taskSum}}}})
	if err != nil {
		return nil, fmt.Errorf("make a map of threads: %w", err)
	}
	return m, nil
}

// timing returns the programs of times.
func timing(fd int, pid int32) (enter, exit asm.Instructions, err error) {
	var task *btf.Struct
	spec, err := btf.LoadKernelSpec()
	if err == nil {
		err = spec.TypeByName("task_struct", &task)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the kernel's type information: %w", err)
	}
	at := slices.IndexFunc(task.Members, func(m btf.Member) bool { return m.Name == "tgid" })
	if at < 0 {
		return nil, nil, errors.New("task_struct has no member tgid")
	}
	const make = 1 // BPF_LOCAL_STORAGE_GET_F_CREATE
	begin := func(flags int32) asm.Instructions {
		return asm.Instructions{
			asm.FnGetCurrentTaskBtf.Call(), asm.LoadMem(asm.R1, asm.R0, int16(task.Members[at].Offset.Bytes()), asm.Word), asm.JNE.Imm(asm.R1, pid, "out"),
			asm.LoadMapPtr(asm.R1, fd), asm.Mov.Reg(asm.R2, asm.R0), asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, flags), asm.FnTaskStorageGet.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"), asm.Mov.Reg(asm.R9, asm.R0), asm.FnKtimeGetNs.Call()}
	}
	end := asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return()}
	enter = append(begin(make), append(asm.Instructions{asm.StoreMem(asm.R9, taskStart, asm.R0, asm.DWord)}, end...)...)
	exit = append(begin(0), append(asm.Instructions{asm.LoadMem(asm.R1, asm.R9, taskStart, asm.DWord), asm.Sub.Reg(asm.R0, asm.R1),
		asm.LoadMem(asm.R1, asm.R9, taskSum, asm.DWord), asm.Add.Reg(asm.R1, asm.R0), asm.StoreMem(asm.R9, taskSum, asm.R1, asm.DWord)}, end...)...)
	return enter, exit, nil
}

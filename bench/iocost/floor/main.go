// Command floor attaches programs that do nothing to the beginning and the end of system calls, to show
// which part of the cost of watching I/O is the kernel's own: see bench/io.sh.
//
//	floor enter|exit|both
//
// These are the raw tracepoints sys_enter and sys_exit. It ends with an interrupt.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
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
	if len(args) != 1 || points[args[0]] == nil {
		return errors.New("usage: floor enter|exit|both")
	}
	for _, name := range points[args[0]] {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
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

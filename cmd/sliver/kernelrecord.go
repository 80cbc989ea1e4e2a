package main

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/trace"
)

// kernelOfRecord is the flag of record for context switches.
type kernelOfRecord struct{ mode string }

// Values of --kernel.
const (
	kernelAuto = "auto"
	kernelOn   = "on"
	kernelOff  = "off"
)

func (f *kernelOfRecord) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.mode, "kernel", kernelOff, "record context switches, wake-ups and kernel stacks too: exact states, and who woke whom;\nauto (where the kernel allows it: CAP_BPF and CAP_PERFMON, or root), on, off")
}

// options returns what a session needs; nil if switches are not recorded.
func (f *kernelOfRecord) options() (*session.SwitchOptions, error) {
	switch f.mode {
	case kernelOff:
		return nil, nil
	case kernelAuto, kernelOn:
		return &session.SwitchOptions{Need: f.mode == kernelOn}, nil
	}
	return nil, usagef("record", "kernel: %q is unknown; use %s, %s or %s", f.mode, kernelAuto, kernelOn, kernelOff)
}

// writeSwitches prints the accounts of context switches of a process, which is named if there are several; x may be
// nil.
func writeSwitches(w io.Writer, of string, x *trace.Switches) {
	if x == nil {
		return
	}
	if x.Records > 0 {
		fmt.Fprintf(w, "  context switches%s: %d recorded exactly", of, x.Records)
		if n := x.Full + x.Rate; n > 0 {
			fmt.Fprintf(w, ", %d in sums only", n)
		}
		fmt.Fprintln(w)
	}
	if x.Full > 0 {
		fmt.Fprintf(w, "  %s%s %s no record since the kernel's buffer was full\n", plural.Of(x.Full, "switch"), of, plural.Word(x.Full, "has", "have"))
	}
	if x.Rate > 0 {
		fmt.Fprintf(w, "  %s%s %s no record since their threads or CPUs had too many\n", plural.Of(x.Rate, "switch"), of, plural.Word(x.Rate, "has", "have"))
	}
	for _, l := range x.Lost {
		fmt.Fprintf(w, "  %s\n", printable(l))
	}
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sliverprof/sliver/heap/snapshot"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/session/methods"
	"github.com/sliverprof/sliver/target"
)

func doctorCommand() *command {
	return &command{
		name: "doctor", args: "[PID]", short: "check permissions and kernel settings, and suggest fixes",
		pids: true,
		help: `
Checks what sliver needs: with a PID for that process, else in general, by
recording a small program of its own. The exit status is 1 if something that
sliver needs is missing.

Examples:
  sliver doctor
  sliver doctor 1234`,
		run: func(_ context.Context, e *env, args []string) error {
			pid := 0
			switch len(args) {
			case 0:
			case 1:
				n, err := parsePID(args[0])
				if err != nil {
					return usagef("doctor", "%v", err)
				}
				pid = n
			default:
				return usagef("doctor", "give one process number at most")
			}
			missing := 0
			for _, c := range target.Examine(pid) {
				mark := map[target.Verdict]string{target.Good: "ok  ", target.Limited: "note", target.Missing: "FAIL"}[c.Verdict]
				fmt.Fprintf(e.stdout, "%s  %-18s %s\n", mark, c.Name, printable(c.Found))
				if c.Advice != "" {
					fmt.Fprintf(e.stdout, "      %-18s %s\n", "", wrap(printable(c.Advice), 72, strings.Repeat(" ", 25)))
				}
				if c.Verdict == target.Missing {
					missing++
				}
			}
			switchesCheck(e)
			callsCheck(e, cmp.Or(pid, os.Getpid()))
			if pid != 0 {
				heapCheck(e, pid)
			}
			if missing > 0 {
				return exitStatus(exitFailed)
			}
			return nil
		},
	}
}

// switchesCheck prints whether context switches can be recorded, which is of use and not needed.
func switchesCheck(e *env) {
	mark, found := "ok  ", "the kernel shows each one, and who woke whom: see record --kernel"
	if why := session.TrySwitches(); why != "" {
		mark, found = "note", "states of threads are by samples (no record --kernel): "+why
	}
	fmt.Fprintf(e.stdout, "%s  %-18s %s\n", mark, "context switches", printable(found))
}

// callsCheck prints how calls of functions of process pid can be traced, which is optional.
func callsCheck(e *env, pid int) {
	mark, found := "ok  ", "of any number of functions, by uprobes: see record --trace"
	many, few := exact.Try(pid)
	switch {
	case many == nil:
	case few == nil:
		mark, found = "note", fmt.Sprintf("by CPU breakpoints, up to %d entries and returns at once; no uprobes for more: %v", exact.MaxPlaces, many)
	default:
		mark, found = "note", fmt.Sprintf("none can be traced (no record --trace): %v; uprobes: %v", few, many)
	}
	if p, err := target.Open(pid); err == nil {
		if runtimeOf(p) == methods.Runtime {
			found += fmt.Sprintf("; Java methods by JFR, from Java %d on: see trace", methods.MinJava)
		}
		p.Close()
	}
	fmt.Fprintf(e.stdout, "%s  %-18s %s\n", mark, "exact calls", printable(found))
}

// heapCheck prints how sliver heap would read a process, if it runs Java or Python.
func heapCheck(e *env, pid int) {
	p, err := target.Open(pid)
	if err != nil {
		return // a line above says why
	}
	defer p.Close()
	mark, found := "ok  ", ""
	vm, err := snapshot.Examine(p)
	switch {
	case err == nil && p.Filtered() && os.Geteuid() != 0:
		mark, found = "note", "a seccomp filter may kill it for a copy: dumps through its attach socket"
	case err == nil:
		found = fmt.Sprintf("HotSpot %d, %s: read from a copy", vm.Major, vm.Collector)
	case !errors.Is(err, snapshot.ErrNoJVM) && snapshot.Fallback(err):
		mark, found = "note", err.Error()+": dumps through its attach socket"
	case snapshot.IsPython(p):
		found = "CPython: counted in a copy"
	default:
		return
	}
	fmt.Fprintf(e.stdout, "%s  %-18s %s\n", mark, "heap", printable(found))
}

// wrap breaks s at blanks into lines of about width; lines after the first start with
// indent.
func wrap(s string, width int, indent string) string {
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(s) {
		if i > 0 {
			if n+len(word) >= width {
				b.WriteString("\n" + indent)
				n = 0
			} else {
				b.WriteByte(' ')
				n++
			}
		}
		b.WriteString(word)
		n += len(word)
	}
	return b.String()
}

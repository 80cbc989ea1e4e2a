package session

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol/kallsyms"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// kernelStacks numbers the kernel stacks of waits. There are few different ones.
type kernelStacks struct {
	why     string        // why there are none; "": there are
	least   time.Duration // shortest wait that has one; below 0: none
	syms    *kallsyms.Symbols
	numbers map[string]int // by the addresses, from 1
	fresh   [][]string     // not written yet
	beyond  uint64         // waits whose stack is beyond the limit
	until   time.Time      // end of the reads at the end; 0: none yet
	unread  uint64         // waits at the end without a read
	key     []byte
}

// number returns the number of a stack of return addresses, innermost first; 0: none.
func (k *kernelStacks) number(addrs []uint64) int {
	if len(addrs) == 0 || k.why != "" {
		return 0
	}
	k.key = k.key[:0]
	for _, a := range addrs {
		k.key = binary.NativeEndian.AppendUint64(k.key, a)
	}
	return k.numbered(func() []string {
		if k.syms == nil { // only now: the list is long
			s, err := kernelSymbols()
			if err != nil {
				k.why = oneLine(err)
				return nil
			}
			k.syms = s
		}
		names := make([]string, len(addrs))
		for i, a := range addrs {
			names[i] = k.syms.Caller(a)
		}
		return names
	})
}

// numbered returns the number of the stack of k.key; 0: none. names makes the names of a new one; nil: that is not possible.
func (k *kernelStacks) numbered(names func() []string) int {
	if n, ok := k.numbers[string(k.key)]; ok {
		return n
	}
	if len(k.numbers) >= trace.MaxKernelStacks {
		k.beyond++
		return 0
	}
	all := names()
	if all == nil {
		return 0
	}
	if k.numbers == nil {
		k.numbers = map[string]int{}
	}
	n := len(k.numbers) + 1
	k.numbers[string(k.key)] = n
	k.fresh = append(k.fresh, all)
	return n
}

// kernelSymbols are the kernel's functions, read once for all processes.
var kernelSymbols = sync.OnceValues(kallsyms.Load)

// readKernel begins to read the names that nameKernel needs.
func (s *Session) readKernel() {
	if s.o.Switches != nil && s.o.Clock && kallsyms.Hidden() == "" {
		go kernelSymbols()
	}
}

// nameKernel makes samples by clocks have the kernel's part of their stacks, if what the kernel does is recorded. It returns
// in one line why they cannot; "": they do, or it was not asked for.
func (s *Session) nameKernel() string {
	if s.o.Switches == nil || !s.o.Clock {
		return ""
	}
	if why := kallsyms.Hidden(); why != "" {
		return why
	}
	syms, err := kernelSymbols()
	if err != nil {
		return oneLine(err)
	}
	s.runtimes.NameKernel(syms.Caller)
	return ""
}

// bareSamples returns why CPU samples have no kernel stacks, as far as that is known by now; "": they have. many is a line about
// those that have none although others do, if they are many.
func (s *Session) bareSamples() (why, many string) {
	if s.bare != "" || !s.o.Clock {
		return s.bare, ""
	}
	if s.smp.ClockRefused() || !target.ClocksSeeCalls() {
		return "the kernel refuses the clocks that copy them: CAP_PERFMON is needed, root, or kernel.perf_event_paranoid of 1 or less", ""
	}
	stops, clocked := uint64(0), uint64(0)
	all, _ := s.smp.Accounts()
	for i := range all {
		stops, clocked = stops+all[i].Stopped(), clocked+all[i].Clocked
	}
	if stops >= manyStops && stops > clocked/4 {
		return "", fmt.Sprintf("%d of %d CPU samples have no kernel stack, since stops took them: threads that use little CPU time have no clock, nor have those whose runtime's frames the kernel cannot copy",
			stops, stops+clocked)
	}
	return "", ""
}

// manyStops is how many samples by stops are worth a line if they are more than a fifth of those on CPUs.
const manyStops = 100

// Limits of reading the stacks of threads that are blocked at the end.
const (
	longestFile  = 16 << 10
	longestReads = 50 * time.Millisecond // of all threads
)

// atEnd returns the number of the stack of a thread that is blocked now, since out; 0: none. A wait has its stack when it
// ends, so one that is open at the end of the recording is read from /proc/PID/task/TID/stack, which takes
// CAP_SYS_ADMIN. Its names are those of kallsyms with offsets (fs/proc/base.c, proc_pid_stack).
func (k *kernelStacks) atEnd(pid int, tid stack.TID, out, now stack.Time) int {
	if k.why != "" || k.least < 0 || time.Duration(now-out) < k.least {
		return 0
	}
	if k.until.IsZero() {
		k.until = time.Now().Add(longestReads)
	}
	if time.Now().After(k.until) {
		k.unread++
		return 0
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/stack", pid, tid))
	if err != nil {
		return 0
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longestFile))
	names := stackNames(string(text))
	if err != nil || len(names) == 0 {
		return 0
	}
	k.key = append(append(k.key[:0], 0), strings.Join(names, "\n")...) // no address of the kernel begins like this
	return k.numbered(func() []string { return names })
}

// stackNames returns the functions of a file /proc/PID/stack, innermost first: lines such as
// "[<0>] pipe_read+0x2d5/0x3b0" and "[<0>] ext4_sync_file+0x1c/0x2a0 [ext4]".
func stackNames(text string) (names []string) {
	for line := range strings.Lines(text) {
		_, at, ok := strings.Cut(strings.TrimSpace(line), "] ")
		if !ok {
			continue
		}
		name, rest, ok := strings.Cut(at, "+")
		if !ok {
			continue // an address: Linux before 5.1 ends the list with one of all ones
		}
		if _, module, ok := strings.Cut(rest, " "); ok {
			name += " " + module
		}
		names = append(names, name)
	}
	return names
}

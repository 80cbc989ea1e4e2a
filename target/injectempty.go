package target

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// emptyFor bounds how long a copy gives back its memory, in ns, and emptyLeast is the size in bytes of the
// smallest stretch of it that is given back by a call of its own.
const (
	emptyFor   = 10_000_000_000
	emptyLeast = 256 << 10
)

// empty makes the copy give back its memory before it is killed.
//
// The kernel's search for a process to end, when the memory of a control group is short, leaves out one that
// is exiting unless the search itself chose it (mm/oom_kill.c, oom_badness and oom_evaluate_task of Linux
// 6.18). A copy that was killed by others therefore no longer protects the process while the kernel takes its
// pages away, which for 10 GB is a second: the process, at its limit, would be ended for memory that
// is about to be free. While the copy executes a call, it remains the first choice.
//
// Nothing is reported: a copy that gives back nothing is killed as it is.
func (k *injector) empty(child int) {
	if k.others[child] == -1 {
		return
	}
	var regs [regWords]uint64
	if getBlock(child, &regs) != 0 {
		return
	}
	dir := "/proc/" + strconv.Itoa(child)
	options := uintptr(optExitKill | optSysGood)
	b, err := readWhole(dir+"/status", maxStatus)
	if err != nil {
		return
	}
	if restricted(b) {
		options |= optSeccomp // refused where sliver may not suspend the filter: then no call is made
	}
	if traceCall(ptraceSetOptions, uintptr(child), 0, options) != 0 {
		return
	}
	if b, err = readWhole(dir+"/maps", maxMaps); err != nil {
		return
	}
	maps, err := ParseMaps(b)
	if err != nil {
		return
	}
	// The copy has just left the call that made it.
	var at stack.Regs
	nativeRegs(&regs, &at)
	gadget := at.PC - uint64(len(nativeGadget))
	end := monotonic() + emptyFor
	for _, s := range stretches(maps) {
		nativeInject(&regs, gadget, unix.SYS_MADVISE, &[6]uint64{s.from, s.to - s.from, unix.MADV_DONTNEED})
		if monotonic() > end || setBlock(child, &regs) != 0 || !k.toSyscall(child, end) || !k.toSyscall(child, end) {
			return
		}
	}
}

// toSyscall lets the copy go on to the begin or the end of its system call, and reports whether it got there.
func (k *injector) toSyscall(child int, end stack.Time) bool {
	delete(k.others, child)
	if traceCall(ptraceSyscall, uintptr(child), 0, 0) != 0 {
		return false
	}
	st, ok := k.awaitChild(child, false, end)
	return ok && st == stopSyscall
}

// stretch is a range of addresses, without its end.
type stretch struct{ from, to uint64 }

// stretches are the ranges that have only private memory of no file, and holes. madvise(2) passes over holes
// and ends at the first mapping of a device.
func stretches(maps []stack.Mapping) []stretch {
	var all []stretch
	open := false
	for _, m := range maps {
		own := m.Inode == 0 && (m.Path == "" || m.Path == "[heap]" || m.Path == "[stack]" || strings.HasPrefix(m.Path, "[anon:"))
		switch {
		case !own:
			open = false
		case open:
			all[len(all)-1].to = m.End
		default:
			open = true
			all = append(all, stretch{m.Start, m.End})
		}
	}
	kept := all[:0]
	for _, s := range all {
		if s.to-s.from >= emptyLeast {
			kept = append(kept, s)
		}
	}
	return kept
}

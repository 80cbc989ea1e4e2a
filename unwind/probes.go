package unwind

import (
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// A uprobe is a breakpoint instruction in a program's code. At a hit, the thread's PC is behind that instruction until
// the kernel sets it back (handle_swbp, kernel/events/uprobes.c). Then the kernel executes a copy of the original
// instruction in a mapping of its own, [uprobes], which nothing can read (xol_add_vma). Mappings of that name are how a
// walk knows that a process has probes, whoever set them.

// breakpoint is the instruction int3 of amd64.
const breakpoint = 0xcc

// trapped reports whether a thread with this PC is in the trap of a probe, whose instruction it has not executed: memory has
// a breakpoint before pc, and the file has another instruction there. On arm64 the PC is that of the probe.
func (w *Walker) trapped(pc uint64) bool {
	if w.arch != rule.AMD64 || w.space.mem == nil {
		return false
	}
	r := w.snap.find(pc - 1)
	if r == nil || !r.exec || r.mod == nil {
		return false
	}
	var now, file [1]byte
	if n, _ := w.space.mem.ReadAt(now[:], int64(pc-1)); n == 0 || now[0] != breakpoint {
		return false
	}
	r.mod.load()
	bias, ok := r.mod.bias(r)
	return ok && r.mod.file != nil && r.mod.code(file[:], pc-1-bias) == 1 && file[0] != breakpoint
}

// byProbe steps out of the copy of an instruction with a probe. Probes are at entries and returns of functions, where
// the frame pointer is the caller's. ok is false for other code, and for other places of a function if a word shows it.
func (w *Walker) byProbe(f *stack.Frame, sp uint64) (s Step, ok bool) {
	if r := w.snap.find(f.PC); r == nil || !r.probes {
		return s, false
	}
	if w.arch == rule.ARM64 {
		return w.byLink(f, sp, stack.TrustScan)
	}
	if ra, ok := w.word(sp); !ok || !w.called(ra) {
		return s, false
	}
	return w.top(f, 0, sp, sp+8)
}

package unwind

import (
	"encoding/binary"

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
	var now [1]byte
	if n, _ := w.space.mem.ReadAt(now[:], int64(pc-1)); n == 0 || now[0] != breakpoint {
		return false
	}
	var file [1]byte
	return len(w.textAt(file[:], pc-1)) == 1 && file[0] != breakpoint
}

// byProbe steps out of the copy of an instruction with a probe. Probes are at entries and returns of functions, where
// the frame pointer is the caller's and the return address is on top of the stack, or above the frame that the
// instruction has just made. ok is false for other code, and for other places of a function if the words show it.
func (w *Walker) byProbe(f *stack.Frame, sp uint64) (s Step, ok bool) {
	if r := w.snap.find(f.PC); r == nil || !r.probes {
		return s, false
	}
	if w.arch == rule.ARM64 {
		return w.byLink(f, sp, stack.TrustScan)
	}
	if f.PC%slotSize != 0 { // it was executed
		for n := uint64(8); n <= mostMade; n += 8 {
			if ra, ok := w.word(sp + n); ok && w.frameOf(ra) == n {
				return w.top(f, 0, sp+n, sp+n+8)
			}
		}
	}
	if ra, ok := w.word(sp); !ok || !w.called(ra) {
		return s, false
	}
	return w.top(f, 0, sp, sp+8)
}

// slotSize is the distance of two copies (UPROBE_XOL_SLOT_BYTES, arch/x86/include/asm/uprobes.h), each of which is at the
// beginning of its slot.
const slotSize = 128

// mostMade bounds the frame, in bytes, that an executed copy of a function's first instruction may have made.
const mostMade = 1 << 10

// frameOf returns the size of the frame that the first instruction of the function makes whose call ends at ra, 0 if
// another instruction or call is there. Words of a new frame may be old return addresses: only one whose function makes a frame of
// that size is the caller's.
func (w *Walker) frameOf(ra uint64) uint64 {
	var buf [7]byte
	call := w.textAt(buf[:5], ra-5)
	if len(call) < 5 || call[0] != 0xe8 { // call rel32
		return 0
	}
	first := w.textAt(buf[:], ra+uint64(int64(int32(binary.LittleEndian.Uint32(call[1:])))))
	switch {
	case len(first) < 7 || first[0] != 0x48 || first[2] != 0xec:
	case first[1] == 0x83: // sub $n, %rsp
		return uint64(first[3])
	case first[1] == 0x81:
		return uint64(binary.LittleEndian.Uint32(first[3:]))
	}
	return 0
}

// textAt reads a file's code at addr, which has no breakpoints of probes; it returns what there is.
func (w *Walker) textAt(b []byte, addr uint64) []byte {
	r := w.snap.find(addr)
	if r == nil || !r.exec || r.mod == nil {
		return nil
	}
	r.mod.load()
	bias, ok := r.mod.bias(r)
	if !ok || r.mod.file == nil {
		return nil
	}
	return b[:r.mod.code(b, addr-bias)]
}

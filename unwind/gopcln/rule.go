package gopcln

import (
	"encoding/binary"
	"fmt"

	"github.com/sliverprof/sliver/unwind/rule"
)

// maxDelta bounds a frame; the largest is runtime.call1073741824's.
const maxDelta = 1<<30 + 1<<16

// Rule writes the rule for the instruction at vaddr to out. The error wraps rule.ErrNoRule if the
// table has none.
func (t *Table) Rule(vaddr uint64, out *rule.Rule) error {
	var f fn
	if err := t.find(vaddr, &f); err != nil {
		return err
	}
	k, err := t.kindOf(&f)
	if err != nil {
		return fmt.Errorf("go rule at %#x: %w", vaddr, err)
	}
	*out = rule.Rule{Lo: f.entry, Hi: f.end, Func: f.entry, CFAReg: uint8(t.arch.SP())}
	if k == restorer {
		out.Special, out.Signal = rule.GoSigtramp, true
		out.RA = rule.Loc{Kind: rule.Undef}
		return nil
	}
	if f.pcsp == 0 {
		if k == end {
			out.Special, out.RA = rule.End, rule.Loc{Kind: rule.Undef}
			return nil
		}
		return fmt.Errorf("go function %#x has no frame table: %w", f.entry, rule.ErrNoRule)
	}
	// The first range with a frame shows where the prologue saves the frame pointer.
	delta, found := int32(0), false
	var first frame
	if err := t.steps(&f, f.pcsp, func(v int32, lo, hi uint64) bool {
		if v > 0 && first.delta == 0 {
			first = frame{v, lo}
		}
		if vaddr < hi {
			delta, out.Lo, out.Hi, found = v, lo, hi, true
		}
		return !found
	}); err != nil {
		return fmt.Errorf("go rule at %#x: %w", vaddr, err)
	}
	if !found && k != end {
		// Padding after the last instruction.
		return fmt.Errorf("go rule at %#x: %w", vaddr, rule.ErrNoRule)
	}
	if delta < -16 || delta > maxDelta {
		return fmt.Errorf("go rule at %#x: %w: frame of %d bytes", vaddr, errTable, delta)
	}
	out.Signal = k == injected || k == sigtramp
	if t.arch == rule.ARM64 {
		err = t.ruleARM64(&f, k, first, delta, vaddr, out)
	} else {
		err = t.ruleAMD64(&f, k, first, delta, vaddr, out)
	}
	if err != nil {
		return fmt.Errorf("go rule at %#x: %w", vaddr, err)
	}
	if k == movedSP && out.CFAReg == uint8(t.arch.SP()) {
		k = plain
	}
	if out.Special = k.special(t.arch); out.Special != rule.None {
		t.kinds.put(f.entry, k)
	}
	if k == end {
		out.RA = rule.Loc{Kind: rule.Undef}
	}
	return nil
}

// frame is the first range of a function that has a frame: its size, and the vaddr after the
// instruction that creates it.
type frame struct {
	delta int32
	lo    uint64
}

// save adds to the rule for vaddr a register that is saved at CFA+off, if vaddr is not before at.
// It clips the rule's range at the vaddr at.
func save(out *rule.Rule, reg uint8, off int64, at, vaddr uint64) {
	clip(out, at, vaddr)
	if vaddr < at || int(out.NSaved) == len(out.Saved) {
		return
	}
	for i := range out.Saved[:out.NSaved] {
		if out.Saved[i].Reg == reg {
			return
		}
	}
	out.Saved[out.NSaved] = rule.Loc{Reg: reg, Kind: rule.Offset, Off: int32(off)}
	out.NSaved++
}

// clip cuts a rule's range at the vaddr at so that it still covers vaddr.
func clip(out *rule.Rule, at, vaddr uint64) {
	if at <= vaddr {
		out.Lo = max(out.Lo, at)
	} else {
		out.Hi = min(out.Hi, at)
	}
}

// ruleAMD64: CFA = SP + delta + 8. The return address is below the CFA, and the caller's RBP below
// that once the prologue has stored it: by PUSHQ BP since 1.21, and before by MOVQ BP,
// (delta-8)(SP) after the SUBQ (preprocess in src/cmd/internal/obj/x86/obj6.go).
func (t *Table) ruleAMD64(f *fn, k kind, first frame, delta int32, vaddr uint64, out *rule.Rule) error {
	out.CFAOff = delta + 8
	out.RA = rule.Loc{Kind: rule.Offset, Off: -8}
	if delta < 0 {
		// syscall.rawVforkSyscall pops its return address into R12 (POPQ R12), because the child
		// would overwrite the stack slot.
		var b [2]byte
		if err := t.img.read(b[:], out.Lo-2); err != nil || delta != -8 || b != [2]byte{0x41, 0x5c} {
			return fmt.Errorf("return address of %#x popped: %w", f.entry, rule.ErrNoRule)
		}
		out.RA = rule.Loc{Kind: rule.Register, Off: 12}
	}
	if delta > 0 {
		at, ok, err := t.framePointerAMD64(f, first)
		if err != nil {
			return err
		}
		if ok {
			save(out, rule.AMD64FP, -16, at, vaddr)
		}
	}
	if k == movedSP || k == sigtramp || k == saves {
		return t.codeAMD64(f, k, vaddr, out)
	}
	return nil
}

// framePointerAMD64 returns the vaddr from which the slot below the return address holds the
// caller's RBP.
func (t *Table) framePointerAMD64(f *fn, first frame) (at uint64, ok bool, err error) {
	if first.lo <= f.entry {
		return 0, false, nil
	}
	var buf [9]byte // the byte before, and the longest store
	b, err := t.img.some(buf[:], first.lo-1)
	if err != nil {
		return 0, false, err
	}
	const pushRBP = 0x55
	if first.delta == 8 && b[0] == pushRBP {
		return first.lo, true, nil
	}
	b = b[1:]
	disp, n := int32(0), uint64(0)
	switch {
	case len(b) >= 5 && b[0] == 0x48 && b[1] == 0x89 && b[2] == 0x6c && b[3] == 0x24:
		disp, n = int32(int8(b[4])), 5
	case len(b) >= 8 && b[0] == 0x48 && b[1] == 0x89 && b[2] == 0xac && b[3] == 0x24:
		disp, n = int32(binary.LittleEndian.Uint32(b[4:])), 8
	}
	return first.lo + n, n > 0 && disp == first.delta-8, nil
}

// ruleARM64: CFA = SP + delta. Without a frame the return address is in LR. With one it is at SP,
// and the caller's R29 is below it (preprocess in src/cmd/internal/obj/arm64/obj7.go). A call that
// a signal handler injected has the interrupted LR in 16 bytes pushed above (pushCall and
// preparePanic in src/runtime/signal_arm64.go).
func (t *Table) ruleARM64(f *fn, k kind, first frame, delta int32, vaddr uint64, out *rule.Rule) error {
	out.CFAOff = delta
	out.RA = rule.Loc{Kind: rule.Register, Off: rule.ARM64RA}
	if delta > 0 {
		out.RA = rule.Loc{Kind: rule.Offset, Off: -delta}
		at, ok, err := t.framePointerARM64(f, first)
		if err != nil {
			return err
		}
		if ok {
			save(out, rule.ARM64FP, int64(-first.delta-8), at, vaddr)
		}
	}
	if delta < 0 {
		// The last instruction of asyncPreempt and similar functions: SP and LR are the interrupted
		// ones again.
		var b [4]byte
		const retR27 = 0xd65f0360
		if err := t.img.read(b[:], vaddr&^3); err != nil || k != injected || binary.LittleEndian.Uint32(b[:]) != retR27 {
			return fmt.Errorf("frame of %#x already gone: %w", f.entry, rule.ErrNoRule)
		}
		out.RA = rule.Loc{Kind: rule.Register, Off: 27}
		out.Saved[0] = rule.Loc{Reg: rule.ARM64SP, Kind: rule.ValOff, Off: -delta}
		out.NSaved = 1
		return nil
	}
	if k == injected {
		out.Saved[out.NSaved] = rule.Loc{Reg: rule.ARM64SP, Kind: rule.ValOff, Off: 16}
		out.Saved[out.NSaved+1] = rule.Loc{Reg: rule.ARM64RA, Kind: rule.Offset, Off: 0}
		out.NSaved += 2
		return nil
	}
	if k == saves || f.flag&flagAsm != 0 && (delta > 0 || k == movedSP) {
		return t.codeARM64(f, k, vaddr, out)
	}
	return nil
}

func (t *Table) framePointerARM64(f *fn, first frame) (at uint64, ok bool, err error) {
	if first.lo < f.entry+8 || first.lo+4 > f.end {
		return 0, false, nil
	}
	var b [12]byte
	if err := t.img.read(b[:], first.lo-8); err != nil {
		return 0, false, err
	}
	const (
		stpBelow = 0xa93ffa9d // STP (R29, R30), -8(R20), before MOVD R20, RSP
		strBelow = 0xf81f83fd // MOVD R29, -8(RSP)
	)
	switch {
	case binary.LittleEndian.Uint32(b[:]) == stpBelow:
		return first.lo, true, nil
	case binary.LittleEndian.Uint32(b[8:]) == strBelow:
		return first.lo + 4, true, nil
	}
	return 0, false, nil
}

package gopcln

import (
	"encoding/binary"

	"golang.org/x/arch/x86/x86asm"

	"github.com/sliverprof/sliver/unwind/rule"
)

// maxCode bounds how much of an assembly function is searched for saved registers. Functions that
// save registers are a few hundred bytes long and save them at the start. The long functions are
// ciphers.
const maxCode = 1024

// dwarfAMD64 numbers the registers that C code preserves.
var dwarfAMD64 = map[x86asm.Reg]uint8{x86asm.RBX: 3, x86asm.RBP: 6, x86asm.R12: 12, x86asm.R13: 13, x86asm.R14: 14, x86asm.R15: 15}

// code reads the instructions of f up to vaddr, and a few more so that the end of the rule's range
// is found.
func (t *Table) code(f *fn, buf []byte) ([]byte, error) {
	return t.img.some(buf[:min(uint64(len(buf)), f.end-f.entry)], f.entry)
}

// codeAMD64 completes the rule of an assembly function from its instructions. MOVQ SP, reg saves
// the SP in functions that switch stacks (calls of the vDSO, the race detector and the sanitizers).
// Functions called by C store the registers that C expects to be preserved.
func (t *Table) codeAMD64(f *fn, k kind, vaddr uint64, out *rule.Rule) error {
	var buf [maxCode]byte
	b, err := t.code(f, buf[:])
	if err != nil {
		return err
	}
	for pc := f.entry; len(b) > 0; {
		in, err := x86asm.Decode(b, 64)
		if err != nil || in.Len == 0 || in.Len > len(b) {
			return nil // data, or an instruction that the decoder lacks: keep the rule so far
		}
		at := pc
		b, pc = b[in.Len:], pc+uint64(in.Len)
		src, ok := in.Args[1].(x86asm.Reg)
		if in.Op != x86asm.MOV || !ok {
			continue
		}
		switch dst := in.Args[0].(type) {
		case x86asm.Reg:
			if reg, callee := dwarfAMD64[dst]; k == movedSP && src == x86asm.RSP && callee && dst != x86asm.RBP {
				delta, _, _, err := t.valueAt(f, f.pcsp, at)
				if err != nil {
					return err
				}
				if clip(out, pc, vaddr); vaddr >= pc {
					out.CFAReg, out.CFAOff = reg, delta+8
					return nil
				}
			}
		case x86asm.Mem:
			if reg, callee := dwarfAMD64[src]; callee && dst.Base == x86asm.RSP && dst.Index == 0 && in.MemBytes == 8 &&
				(k == saves || k == sigtramp) {
				delta, _, _, err := t.valueAt(f, f.pcsp, at)
				if err != nil {
					return err
				}
				if out.CFAOff > 8 { // in the epilogue the registers are restored
					save(out, reg, dst.Disp-int64(delta)-8, pc, vaddr)
				}
			}
		}
	}
	return nil
}

// codeARM64 is codeAMD64 for arm64. There, functions without the usual frame also store LR in a
// place of their own.
func (t *Table) codeARM64(f *fn, k kind, vaddr uint64, out *rule.Rule) error {
	var buf [maxCode]byte
	b, err := t.code(f, buf[:])
	if err != nil {
		return err
	}
	lr := uint64(0)
	store := func(reg uint32, off int64, pc uint64) {
		switch {
		case out.CFAOff == 0: // before the frame is created, and after it is removed
		case reg == rule.ARM64RA && lr == 0:
			lr = pc
			if clip(out, pc, vaddr); vaddr >= pc {
				out.RA = rule.Loc{Kind: rule.Offset, Off: int32(off)}
			} else {
				out.RA = rule.Loc{Kind: rule.Register, Off: rule.ARM64RA}
			}
		case reg >= 19 && reg <= rule.ARM64FP && (k == saves || k == sigtramp):
			save(out, uint8(reg), off, pc, vaddr)
		}
	}
	for pc := f.entry; len(b) >= 4; b = b[4:] {
		in := binary.LittleEndian.Uint32(b)
		at := pc
		pc += 4
		if at > vaddr && k != saves && k != sigtramp && k != movedSP {
			return nil
		}
		var off int64
		rt, rt2 := in&31, uint32(0xff)
		const sp = 31
		switch {
		case in&^31 == 0x910003e0 && rt >= 19 && rt <= 28 && k == movedSP: // MOVD RSP, Rt
			delta, _, _, err := t.valueAt(f, f.pcsp, at)
			if err != nil {
				return err
			}
			if clip(out, pc, vaddr); vaddr >= pc {
				if out.RA.Kind == rule.Offset {
					out.RA.Off = -delta
				}
				out.CFAReg, out.CFAOff = uint8(rt), delta
				return nil
			}
			continue
		case in>>22 == 0x3e4 && in>>5&31 == sp: // STR Rt, [SP, #imm12*8]
			off = int64(in>>10&0xfff) * 8
		case in>>21 == 0x7c0 && in>>5&31 == sp && in>>10&1 == in>>11&1: // STUR, or STR with SP changed first
			off = int64(int32(in>>12<<23) >> 23)
		case in>>22 == 0x2a4 && in>>5&31 == sp, in>>22 == 0x2a6 && in>>5&31 == sp: // STP [SP, #imm7*8], or with SP changed first
			off, rt2 = int64(int32(in>>15<<25)>>25)*8, in>>10&31
		default:
			continue
		}
		delta, _, _, err := t.valueAt(f, f.pcsp, at)
		if err != nil {
			return err
		}
		store(rt, off-int64(delta), pc)
		if rt2 != 0xff {
			store(rt2, off+8-int64(delta), pc)
		}
	}
	return nil
}

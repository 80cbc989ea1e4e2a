package python

import (
	"debug/elf"
	"encoding/binary"
	"io"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"github.com/sliverprof/sliver/internal/elffile"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/rule"
)

// maxEval bounds the code of the evaluation function that is searched for jumps: builds have 1 KB to
// 80 KB.
const maxEval = 1 << 20

// cold finds the part of the evaluation function at [eval, eval+size) that GCC moved elsewhere. With
// a profile that saw few instructions of Python, it holds almost all of them (Debian's 3.14). It has
// a symbol that strip removes. Without one it is where the function's jumps lead: call frame
// information that begins within a frame, as it does for no function.
func cold(r io.ReaderAt, f *elf.File, eval, size uint64) uint64 {
	if at := coldSymbol(f); at != 0 {
		return at
	}
	arch, known := rule.ArchOf(f.Machine)
	if !known || eval == 0 || size == 0 || size > maxEval {
		return 0
	}
	code := make([]byte, size)
	if readAt(f, code, eval) != nil {
		return 0
	}
	table, err := cfi.Load(r, arch)
	if err != nil {
		return 0
	}
	var found uint64
	jumps := jumpsAMD64
	if arch == rule.ARM64 {
		jumps = jumpsARM64
	}
	jumps(code, eval, func(to uint64) bool {
		if to-eval < size {
			return true
		}
		var rl rule.Rule
		if lo, _, ok := table.Func(to); ok && table.Rule(lo, &rl) == nil && rl.Part {
			found = lo
		}
		return found == 0
	})
	return found
}

// coldSymbol is cold by the symbols of a file that has them.
func coldSymbol(f *elf.File) uint64 {
	if s := f.SectionByType(elf.SHT_SYMTAB); s == nil || s.Size > maxSymbols*elf.Sym64Size {
		return 0
	}
	syms, err := elffile.Symbols(f)
	if err != nil {
		return 0
	}
	for i := range syms {
		if strings.HasPrefix(syms[i].Name, "_PyEval_EvalFrameDefault.cold") {
			return syms[i].Value
		}
	}
	return 0
}

// jumpsAMD64 calls each with the targets of the direct jumps in code, which is at the address base,
// until it returns false.
func jumpsAMD64(code []byte, base uint64, each func(to uint64) bool) {
	for at := 0; at < len(code); {
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil || in.Len == 0 {
			at++ // unknown to the decoder
			continue
		}
		at += in.Len
		if rel, ok := in.Args[0].(x86asm.Rel); ok && in.Op != x86asm.CALL && !each(base+uint64(at)+uint64(int64(rel))) {
			return
		}
	}
}

// jumpsARM64 is jumpsAMD64 for arm64.
func jumpsARM64(code []byte, base uint64, each func(to uint64) bool) {
	for at := 0; at+4 <= len(code); at += 4 {
		in := binary.LittleEndian.Uint32(code[at:])
		var words int64
		switch {
		case in>>26 == 0x05: // b
			words = int64(int32(in<<6) >> 6)
		case in>>24 == 0x54, in>>25&0x3f == 0x1a: // b.cond, cbz, cbnz
			words = int64(int32(in<<8) >> 13)
		default:
			continue
		}
		if !each(base + uint64(at) + uint64(words*4)) {
			return
		}
	}
}

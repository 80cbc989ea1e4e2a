package naming

import (
	"bytes"
	"debug/elf"
	"io"
	"slices"

	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/rule"
)

// maxBack bounds how far before an address the start of its function is searched, in bytes.
const maxBack = 64 << 10

// begins finds where functions seem to begin in amd64 code that has neither symbols nor call frame information, such as that of
// Chromium and of programs that contain it. It is linked with each function in a section of its own by LLVM's linker, which
// fills the gaps between sections with traps. Of the functions of Chromium and Firefox with call frame information, 94 and 92 %
// of the addresses are given the right start by this; other code has no such gaps, and gets no start.
type begins struct {
	r     io.ReaderAt
	progs []*elf.Prog
	buf   []byte
}

func newBegins(r io.ReaderAt, arch rule.Arch) *begins {
	b := &begins{r: r}
	f, err := cfi.OpenELF(r)
	if err != nil || arch != rule.AMD64 {
		return b
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			b.progs = append(b.progs, p)
		}
	}
	return b
}

// before returns the last address up to vaddr at which a function seems to begin. known reports whether another function is
// known at an address, which ends the search.
func (b *begins) before(vaddr uint64, known func(vaddr uint64) bool) (start uint64, ok bool) {
	i := slices.IndexFunc(b.progs, func(p *elf.Prog) bool { return vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz })
	if i < 0 {
		return 0, false
	}
	const ahead = 16 // bytes of the first instructions
	p, from := b.progs[i], b.progs[i].Vaddr
	if vaddr-from > maxBack {
		from = vaddr - maxBack
	}
	if b.buf == nil {
		b.buf = make([]byte, maxBack+ahead)
	}
	code := b.buf[:min(vaddr-from+ahead, p.Filesz-(from-p.Vaddr))]
	if _, err := b.r.ReadAt(code, int64(p.Off+from-p.Vaddr)); err != nil || !gaps(code, from) {
		return 0, false
	}
	for at := vaddr - vaddr%alignment; at >= from && at > 0; at -= alignment {
		if begin(code, int(at-from)) {
			return at, true
		} else if known(at) {
			return 0, false
		}
	}
	return 0, false
}

// alignment is that of the functions.
const alignment = 16

// gaps reports whether there are gaps with traps in code at an address. Numbers in instructions may look like one.
func gaps(code []byte, at uint64) bool {
	n := 0
	for i := int(-at % alignment); i < len(code); i += alignment {
		if i >= 3 && bytes.HasSuffix(code[:i], []byte{0xcc, 0xcc, 0xcc}) {
			n++
		}
	}
	return n > len(code)/4096
}

// begin reports whether a function seems to begin at code[i], the address of which is aligned: it sets up a frame pointer, or
// the bytes before it are traps behind an instruction that does not go on.
func begin(code []byte, i int) bool {
	first := bytes.TrimPrefix(code[i:], []byte{0xf3, 0x0f, 0x1e, 0xfa}) // endbr64
	if bytes.HasPrefix(first, []byte{0x55, 0x48, 0x89, 0xe5}) {         // push %rbp; mov %rsp, %rbp
		return true
	}
	before := code[:i]
	for len(before) > 0 && before[len(before)-1] == 0xcc { // int3
		before = before[:len(before)-1]
	}
	back := func(k int, x byte) bool { return k <= len(before) && before[len(before)-k] == x }
	switch n := i - len(before); {
	case n == 0:
		return false
	case n >= 3:
		return true
	}
	return back(1, 0xc3) || back(2, 0xeb) || back(5, 0xe9) || back(5, 0xe8) || back(1, 0x0b) && back(2, 0x0f) // ret, jmp, jmp, call, ud2
}

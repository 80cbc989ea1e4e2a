package unwind_test

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// restoredCode: outer has a frame pointer and calls inner and other. Each restores the frame pointer before it returns;
// the rules name its place on the stack until the end, as GCC's do. The rule of other is an expression.
const restoredCode = `
asm(".text\n"
".type outer,@function\n" "outer: .cfi_startproc\n"
"push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset 6,-16\n"
"mov %rsp,%rbp\n .cfi_def_cfa_register 6\n"
"sub $64,%rsp\n call inner\n" "afterinner: call other\n" "afterother: leave\n .cfi_def_cfa 7,8\n ret\n .cfi_endproc\n .size outer,.-outer\n"
".type inner,@function\n" "inner: .cfi_startproc\n"
"push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset 6,-16\n"
"xor %ebp,%ebp\n pop %rbp\n .cfi_def_cfa_offset 8\n" "innerret: ret\n .cfi_endproc\n .size inner,.-inner\n"
".type other,@function\n" "other: .cfi_startproc\n"
"push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset 6,-16\n"
"xor %ebp,%ebp\n pop %rbp\n .cfi_escape 0x0f,0x02,0x77,0x08\n" "otherret: ret\n .cfi_endproc\n .size other,.-other\n");
void outer(void);
int main(void) { outer(); return 0; }
`

// TestRestoredRegisters: a copy of a stack begins at the stack pointer. A register that a function has popped
// is not in it, and has the caller's value.
func TestRestoredRegisters(t *testing.T) {
	testprog.Need(t, "gcc")
	path := testprog.GCC(t, "restored", restoredCode, "-O1", "-no-pie")
	at := map[string]uint64{}
	for _, name := range []string{"main", "outer", "afterinner", "afterother", "innerret", "otherret"} {
		at[name] = testprog.Symbol(t, path, name).Vaddr
	}
	s := unwind.NewSpace(rule.AMD64, unwind.HostFiles{}, nil)
	s.Update(append(codeOf(t, path), stack.Mapping{Start: 0x7f0000000000, End: 0x7f0000001000, Write: true}))
	const sp = 0x7f0000000800
	const fp = sp + 8 + 64
	for _, name := range []string{"inner", "other"} {
		block := make([]byte, 256)
		put := func(addr, v uint64) { binary.LittleEndian.PutUint64(block[addr-sp:], v) }
		put(sp, at["after"+name])
		put(fp, 0)
		put(fp+8, at["main"]+4)
		r := stack.Regs{PC: at[name+"ret"]}
		r.Set(rule.AMD64.SP(), sp)
		r.Set(6, fp)
		frames, reason := unwind.NewWalker(s).Walk(&unwind.Thread{}, &r, &unwind.Copy{Blocks: []unwind.Block{{Addr: sp, Data: block}}})
		if len(frames) < 3 || frames[1].Func != at["outer"] || frames[1].CFA != fp+16 || frames[2].Func != at["main"] {
			t.Errorf("at the return of %s: %+v, %v; want outer with CFA %#x, then main", name, frames, reason, uint64(fp+16))
		}
	}
}

// codeOf returns the mappings of a program's code, which is not relocated.
func codeOf(t *testing.T, path string) (maps []stack.Mapping) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			maps = append(maps, stack.Mapping{Start: p.Vaddr &^ 4095, End: (p.Vaddr + p.Filesz + 4095) &^ 4095, Off: p.Off &^ 4095,
				Inode: 1, Exec: true, Path: path})
		}
	}
	return maps
}

package unwind_test

import (
	"bytes"
	"debug/elf"
	"os"
	"testing"

	"github.com/sliverprof/sliver/lang/golang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// TestPoppedReturnAddress stops where syscall.rawVforkSyscall, which is part of this program, has
// popped its return address into R12, because the child overwrites the stack slot. The CFA is the
// stack pointer there.
func TestPoppedReturnAddress(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var maps []stack.Mapping
	var at uint64
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 {
			continue
		}
		maps = append(maps, stack.Mapping{Start: p.Vaddr &^ 4095, End: (p.Vaddr + p.Filesz + 4095) &^ 4095, Off: p.Off &^ 4095,
			Inode: 1, Exec: true, Path: path})
		code := make([]byte, p.Filesz)
		if _, err := p.ReadAt(code, 0); err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(code, []byte{0x41, 0x5c, 0x0f, 0x05, 0x41, 0x54}); i >= 0 { // pop %r12; syscall; push %r12
			at = p.Vaddr + uint64(i)
		}
	}
	if at == 0 {
		t.Fatal("no syscall.rawVforkSyscall in this program")
	}
	s := unwind.NewSpace(rule.AMD64, unwind.HostFiles{}, nil, golang.Stacks)
	s.Update(append(maps, stack.Mapping{Start: 0x7f0000000000, End: 0x7f0000001000, Write: true}))
	const sp = 0x7f0000000800
	caller, child := maps[0].Start+0x1235, maps[0].Start+0x1111
	for _, c := range []struct {
		name         string
		pc, sp       uint64
		onStack, r12 uint64
	}{
		{"at the pop", at, sp - 8, caller, 0},
		{"at the call", at + 2, sp, child, caller},
		{"after the call", at + 4, sp, child, caller},
		{"after the push", at + 6, sp - 8, caller, caller},
	} {
		r := stack.Regs{PC: c.pc}
		r.Set(rule.AMD64.SP(), c.sp)
		r.Set(12, c.r12)
		frames, reason := unwind.NewWalker(s).Walk(&unwind.Thread{}, &r, &unwind.Copy{Blocks: []unwind.Block{unwind.Words(sp-8, c.onStack, 0, 0, 0)}})
		if len(frames) < 2 || frames[1].PC != caller || frames[0].CFA != sp {
			t.Errorf("%s: %+v, %v; want CFA %#x and caller %#x", c.name, frames, reason, uint64(sp), caller)
		}
	}
}

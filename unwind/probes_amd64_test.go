package unwind_test

import (
	"debug/elf"
	"io"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// The kernel executes copies of instructions with uprobes in a mapping that cannot be read. At the return of inner, the
// frame pointer is that of its caller outer, which must not be skipped.
func TestProbedReturn(t *testing.T) {
	testprog.Need(t, "gcc")
	path := testprog.GCC(t, "restored", restoredCode, "-O1", "-no-pie")
	at := map[string]uint64{}
	for _, name := range []string{"main", "outer", "afterinner"} {
		at[name] = testprog.Symbol(t, path, name).Vaddr
	}
	const sp, probes = 0x7f0000000800, 0x7fffffffe000
	const fp = sp + 32
	s := unwind.NewSpace(rule.AMD64, unwind.HostFiles{}, nil)
	s.Update(append(codeOf(t, path), stack.Mapping{Start: 0x7f0000000000, End: 0x7f0000001000, Write: true},
		stack.Mapping{Start: probes, End: probes + 4096, Exec: true, Path: "[uprobes]"}))
	for _, top := range []struct {
		name string
		word uint64
		want []uint64 // functions of the callers
	}{
		{"at an entry or return", at["afterinner"], []uint64{at["outer"], at["main"]}},
		{"inside a function", 17, []uint64{at["main"]}},
	} {
		r := stack.Regs{PC: probes + 128}
		r.Set(rule.AMD64.SP(), sp)
		r.Set(6, fp)
		mem := &unwind.Copy{Blocks: []unwind.Block{unwind.Words(sp, top.word, 0, 0, 0, 0, at["main"]+4, 0, 0)}}
		frames, reason := unwind.NewWalker(s).Walk(&unwind.Thread{}, &r, mem)
		if len(frames) < 1+len(top.want) {
			t.Fatalf("%s: %+v, %v", top.name, frames, reason)
		}
		for i, fn := range top.want {
			if frames[i+1].Func != fn {
				t.Errorf("%s: caller %d is in %#x, want %#x", top.name, i, frames[i+1].Func, fn)
			}
		}
	}
}

// patched is the memory of a program's code with one byte changed.
type patched struct {
	path string
	at   uint64
	b    byte
}

func (p patched) ReadAt(b []byte, off int64) (int, error) {
	f, err := elf.Open(p.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, prog := range f.Progs {
		if o := uint64(off) - prog.Vaddr; prog.Type == elf.PT_LOAD && uint64(off) >= prog.Vaddr && o < prog.Filesz {
			n, _ := prog.ReadAt(b, int64(o))
			if o := p.at - uint64(off); o < uint64(n) {
				b[o] = p.b
			}
			return n, nil
		}
	}
	return 0, io.EOF
}

// In the trap of a probe, a thread's PC is behind the breakpoint: at a return, in the next function or in none.
func TestProbeTrap(t *testing.T) {
	testprog.Need(t, "gcc")
	path := testprog.GCC(t, "restored", restoredCode, "-O1", "-no-pie")
	at := func(name string) uint64 { return testprog.Symbol(t, path, name).Vaddr }
	const sp, fp = 0x7f0000000800, 0x7f0000000848
	maps := append(codeOf(t, path), stack.Mapping{Start: 0x7f0000000000, End: 0x7f0000001000, Write: true})
	probes := stack.Mapping{Start: 0x7fffffffe000, End: 0x7fffffffe000 + 4096, Exec: true, Path: "[uprobes]"}
	ret := at("innerret")
	for _, c := range []struct {
		name string
		maps []stack.Mapping
		mem  patched
		want uint64 // PC of the leaf
	}{
		{"in the trap", append(maps, probes), patched{path, ret, 0xcc}, ret},
		{"no breakpoint", append(maps, probes), patched{path, 0, 0}, ret + 1},
		{"a process without probes", maps, patched{path, ret, 0xcc}, ret + 1},
	} {
		s := unwind.NewSpace(rule.AMD64, unwind.HostFiles{}, c.mem)
		s.Update(c.maps)
		r := stack.Regs{PC: ret + 1}
		r.Set(rule.AMD64.SP(), sp)
		r.Set(6, fp)
		mem := &unwind.Copy{Blocks: []unwind.Block{unwind.Words(sp, at("afterinner"), 0, 0, 0, 0, 0, 0, 0, 0, 0, at("main")+4)}}
		frames, reason := unwind.NewWalker(s).Walk(&unwind.Thread{}, &r, mem)
		if len(frames) == 0 || frames[0].PC != c.want || r.PC != ret+1 {
			t.Errorf("%s: %+v, %v; want the PC %#x", c.name, frames, reason, c.want)
		}
		if c.want == ret && (len(frames) < 3 || frames[0].Func != at("inner") || frames[1].Func != at("outer") || frames[2].Func != at("main")) {
			t.Errorf("%s: %+v, %v; want inner, outer, main", c.name, frames, reason)
		}
	}
}

// probedCode: outer calls framed, whose first instruction makes a frame.
const probedCode = `
asm(".text\n"
".type outer,@function\n" "outer: .cfi_startproc\n"
"sub $8,%rsp\n .cfi_def_cfa_offset 16\n call framed\n" "afterframed: add $8,%rsp\n .cfi_def_cfa_offset 8\n ret\n .cfi_endproc\n .size outer,.-outer\n"
".type framed,@function\n" "framed: .cfi_startproc\n"
"sub $24,%rsp\n .cfi_def_cfa_offset 32\n add $24,%rsp\n .cfi_def_cfa_offset 8\n ret\n .cfi_endproc\n .size framed,.-framed\n");
void outer(void);
int main(void) { outer(); return 0; }
`

// The copy of a first instruction that makes a frame has been executed: the return address is above that frame, in which an
// older one is left.
func TestProbedFrame(t *testing.T) {
	testprog.Need(t, "gcc")
	path := testprog.GCC(t, "probed", probedCode, "-O1", "-no-pie")
	at := func(name string) uint64 { return testprog.Symbol(t, path, name).Vaddr }
	const sp, probes = 0x7f0000000800, 0x7fffffffe000
	s := unwind.NewSpace(rule.AMD64, unwind.HostFiles{}, nil)
	s.Update(append(codeOf(t, path), stack.Mapping{Start: 0x7f0000000000, End: 0x7f0000001000, Write: true},
		stack.Mapping{Start: probes, End: probes + 4096, Exec: true, Path: "[uprobes]"}))
	old, ra, main := at("afterframed"), at("afterframed"), at("main")+9 // behind sub and call
	for _, c := range []struct {
		name  string
		pc    uint64
		words []uint64
	}{
		{"not executed", probes + 128, []uint64{ra, 0, main}},
		{"executed", probes + 128 + 4, []uint64{old, 0, 0, ra, 0, main}},
	} {
		r := stack.Regs{PC: c.pc}
		r.Set(rule.AMD64.SP(), sp)
		r.Set(6, 1)
		frames, reason := unwind.NewWalker(s).Walk(&unwind.Thread{}, &r, &unwind.Copy{Blocks: []unwind.Block{unwind.Words(sp, append(c.words, 0, 0, 0)...)}})
		if len(frames) < 3 || frames[1].Func != at("outer") || frames[1].CFA != sp+8*uint64(len(c.words)) || frames[2].Func != at("main") {
			t.Errorf("%s: %+v, %v; want outer and main", c.name, frames, reason)
		}
	}
}

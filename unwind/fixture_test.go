package unwind

import (
	"debug/elf"
	"os"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// TestWalkARM64 walks arm64 dumps in testdata without any other file.
func TestWalkARM64(t *testing.T) {
	for _, name := range []string{"plain", "nofp", "pac"} {
		t.Run(name, func(t *testing.T) {
			path := "testdata/arm64/" + name
			f, err := os.Open(path + ".dump")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			d, err := parseDump(f, rule.ARM64)
			if err != nil {
				t.Fatal(err)
			}
			e, err := elf.Open(path + ".elf")
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			for _, p := range e.Progs {
				if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
					d.maps = append(d.maps, stack.Mapping{Start: p.Vaddr &^ 4095, End: (p.Vaddr + p.Filesz + 4095) &^ 4095,
						Off: p.Off &^ 4095, Inode: 1, Exec: true, Path: path + ".elf"})
				}
			}
			s := NewSpace(rule.ARM64, hostFiles{}, d)
			s.Update(d.maps)
			w := NewWalker(s)
			var th Thread
			frames, reason := w.Walk(&th, &d.regs, &d.mem)
			syms, err := e.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, f := range frames {
				sym := slices.IndexFunc(syms, func(y elf.Symbol) bool {
					return f.Func == y.Value && elf.ST_TYPE(y.Info) == elf.STT_FUNC
				})
				if sym < 0 {
					got = append(got, "trampoline")
				} else {
					got = append(got, syms[sym].Name)
				}
				if exact := i == 0 || i == 3 || i == 4; f.Exact != exact { // nothing called the trampoline
					t.Errorf("frame %d (%s): exact %v", i, got[i], f.Exact)
				}
				if f.PC > pacMask {
					t.Errorf("frame %d (%s): PC %#x is signed", i, got[i], f.PC)
				}
			}
			want := []string{"leaf", "inner", "on_usr1", "trampoline", "raise_", "big", "dynamic", "cmain", "_start"}
			if !slices.Equal(got, want) || reason != stack.ReasonNone {
				t.Errorf("got %v, %v; want %v", got, reason, want)
			}
		})
	}
	// Check that the fixture holds a signed address; otherwise pac tests nothing.
	f, err := os.Open("testdata/arm64/pac.dump")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := parseDump(f, rule.ARM64)
	if err != nil {
		t.Fatal(err)
	}
	signed := false
	for a := d.regs.R[31]; ; a += 8 {
		v, ok := d.mem.Word(a)
		if !ok {
			break
		}
		signed = signed || v > pacMask && v&pacMask >= 0x400000 && v&pacMask < 0x410000
	}
	if !signed {
		t.Error("no signed return address in the dump")
	}
}

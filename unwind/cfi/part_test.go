package cfi

import (
	"debug/elf"
	"os"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/unwind/rule"
)

var archs = map[elf.Machine]rule.Arch{elf.EM_X86_64: rule.AMD64, elf.EM_AARCH64: rule.ARM64}

// TestPart: a part of a function that the compiler moved elsewhere is recognized by its entry in
// .eh_frame, at each of its instructions. No whole function is mistaken for a part.
func TestPart(t *testing.T) {
	parts, functions := 0, 0
	for _, program := range []string{"cpp/chain"} {
		path := testprog.Build(t, program, "O2")
		f, err := os.Open(path)
		need(t, "target programs", err)
		defer f.Close()
		e, err := OpenELF(f)
		if err != nil {
			t.Fatal(err)
		}
		table, err := Load(f, archs[e.Machine])
		if err != nil {
			t.Fatal(err)
		}
		syms, err := e.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range syms {
			if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 {
				continue
			}
			want := strings.HasSuffix(s.Name, ".cold")
			if lo, _, ok := table.Func(s.Value); !ok || lo != s.Value {
				continue
			}
			if want {
				parts++
			} else {
				functions++
			}
			for at := s.Value; at < s.Value+s.Size; at++ {
				var r rule.Rule
				if err := table.Rule(at, &r); err != nil {
					t.Fatalf("%s: %#x: %v", s.Name, at, err)
				}
				if r.Part != want && s.Name != "_start" {
					t.Errorf("%s+%#x: part: %v", s.Name, at-s.Value, r.Part)
					break
				}
			}
		}
	}
	if parts == 0 || functions < 10 {
		t.Errorf("%d parts and %d functions", parts, functions)
	}
}

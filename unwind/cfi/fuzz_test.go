package cfi

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/sliverprof/sliver/unwind/rule"
)

// FuzzLoad opens damaged ELF files and looks up rules all over them.
func FuzzLoad(f *testing.F) {
	for _, flags := range [][]string{
		{"-O2", "-nostdlib", "-static", "-Wl,-z,noseparate-code", "-s"},
		{"-O2", "-nostdlib", "-static", "-Wl,-z,noseparate-code,--no-eh-frame-hdr"},
		{"-O2", "-g", "-nostdlib", "-static", "-fno-asynchronous-unwind-tables", "-gz", "-Wl,-z,noseparate-code"},
	} {
		path := build(f, "gcc", "int g(int*); __attribute__((noinline)) int f(int n) { int a[n]; return n ? g(a) : n; }\n"+
			"int g(int *a) { return f(a[0]) + f(a[1]); }\nvoid _start(void) { f(1); for (;;); }\n", flags...)
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint64(0x401000))
	}
	f.Fuzz(func(t *testing.T, b []byte, vaddr uint64) {
		table, err := Load(bytes.NewReader(b), rule.AMD64)
		if err != nil {
			return
		}
		var out rule.Rule
		for range 8 {
			if lo, hi, ok := table.Func(vaddr); ok && (vaddr < lo || vaddr >= hi) {
				t.Fatalf("function [%#x,%#x) for %#x", lo, hi, vaddr)
			}
			if err := table.Rule(vaddr, &out); err == nil {
				checkRule(t, vaddr, &out)
				vaddr = out.Hi
			} else {
				vaddr += 16
			}
		}
	})
}

// checkRule checks the invariants of every rule.
func checkRule(t *testing.T, vaddr uint64, r *rule.Rule) {
	t.Helper()
	if vaddr < r.Lo || vaddr >= r.Hi {
		t.Fatalf("rule of [%#x,%#x) for %#x", r.Lo, r.Hi, vaddr)
	}
	if r.CFAIsExpr && int(r.CFAOff) >= len(r.Exprs) || !r.CFAIsExpr && r.CFAReg >= regs {
		t.Fatalf("CFA of %+v", r)
	}
	for _, l := range append(r.Saved[:r.NSaved:r.NSaved], r.RA) {
		if (l.Kind == rule.Expr || l.Kind == rule.ValExpr) && (l.Off < 0 || int(l.Off) >= len(r.Exprs)) ||
			l.Kind == rule.Register && (l.Off < 0 || l.Off >= regs) || l.Kind > rule.Undef {
			t.Fatalf("location %+v", l)
		}
	}
}

// FuzzFrames reads damaged .eh_frame and .debug_frame sections.
func FuzzFrames(f *testing.F) {
	cie := []byte{20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0}
	fde := []byte{20, 0, 0, 0, 28, 0, 0, 0, 0x10, 0, 0, 0, 0x40, 0, 0, 0, 0, 0x41, 0x0e, 16, 0x86, 2, 0x0a, 0x0b}
	f.Add(append(append([]byte(nil), cie...), fde...), uint64(0x30), true)
	f.Add(append(append([]byte(nil), cie...), fde...), uint64(0x44), false)
	f.Fuzz(func(t *testing.T, b []byte, vaddr uint64, eh bool) {
		for _, arch := range []rule.Arch{rule.AMD64, rule.ARM64} {
			fr := &frames{eh: eh, sec: bytesSection("fuzz", 0, b)}
			var out rule.Rule
			if ok, err := fr.rule(vaddr, arch, &out); ok && err == nil {
				checkRule(t, vaddr, &out)
			}
			for _, e := range fr.index {
				out = rule.Rule{}
				if ok, err := fr.rule(e.lo, arch, &out); ok && err == nil {
					checkRule(t, e.lo, &out)
					if lo, hi, ok, err := fr.function(e.lo); !ok || err != nil || lo != out.Func || lo > out.Lo || hi < out.Hi {
						t.Fatalf("function [%#x,%#x) for %#x (%v, %v), whose rule is of [%#x,%#x) in %#x", lo, hi, e.lo, ok, err, out.Lo, out.Hi, out.Func)
					}
				}
			}
		}
	})
}

// FuzzHeader reads damaged .eh_frame_hdr sections.
func FuzzHeader(f *testing.F) {
	f.Add([]byte{1, 0x1b, 3, 0x3b, 0, 1, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0}, uint64(0x150))
	f.Fuzz(func(t *testing.T, b []byte, vaddr uint64) {
		fr := &frames{eh: true, sec: bytesSection("fuzz", 0x200, b)}
		if _, err := fr.readHeader(bytesSection("hdr", 0x100, b)); err != nil || fr.hdr == nil {
			return
		}
		if off, ok, err := fr.find(vaddr); ok && (err != nil || off >= fr.sec.size) {
			t.Fatalf("offset %#x, %v", off, err)
		}
	})
}

// FuzzEval evaluates damaged expressions.
func FuzzEval(f *testing.F) {
	f.Add([]byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, uint64(0))
	f.Add([]byte{0x2f, 0xfd, 0xff}, uint64(1))
	f.Add([]byte{0x77, 0xa0, 1, 0x06}, uint64(0)) // breg7 160, deref: glibc's signal frames
	f.Add([]byte{0x77, 0x28}, uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, cfa uint64) {
		v, err := Eval(b, memory{}, 0x1000, cfa)
		if err != nil && v != 0 {
			t.Fatalf("%#x with %v", v, err)
		}
		if w, err2 := Eval(b, memory{}, 0x1000, cfa); w != v || (err == nil) != (err2 == nil) {
			t.Fatal("not the same again")
		}
		l, ok := LinearOf(b)
		if !ok {
			return
		}
		w, known := memory{}.Register(uint64(l.Reg))
		if w += uint64(l.Off); l.Deref && known {
			w, known = memory{}.Read(w, 8)
		}
		if known != (err == nil) || known && w != v {
			t.Fatalf("%x: %#x (%v) as %+v, else %#x, %v", b, w, known, l, v, err)
		}
	})
}

// memory holds its own addresses; registers hold 0x100 times their number.
type memory struct{}

func (memory) Register(n uint64) (uint64, bool) { return 0x100 * n, n < 17 }

func (memory) Read(addr uint64, size int) (uint64, bool) {
	return addr & (1<<(8*size-1)<<1 - 1), addr < 1<<48
}

func TestEval(t *testing.T) {
	for _, c := range []struct {
		expr []byte
		want uint64
		err  error
	}{
		// x86-64 PLT0's: rsp+8 + ((rip & 15) >= 11) << 3, with rip 0x1000 and rsp 0x700.
		{[]byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, 0x708, nil},
		{[]byte{0x77, 8, 0x80, 11, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, 0x710, nil},
		{[]byte{0x76, 0x78, 0x06}, 0x5f8, nil},                                    // *(rbp-8)
		{[]byte{opConst1s, 0xff}, ^uint64(0), nil},                                //
		{[]byte{opConst2s, 0xff, 0xff, opNeg}, 1, nil},                            //
		{[]byte{opConst4s, 0xfe, 0xff, 0xff, 0xff, opAbs}, 2, nil},                //
		{[]byte{opConst8u, 1, 2, 3, 4, 5, 6, 7, 8}, 0x0807060504030201, nil},      //
		{[]byte{opConstu, 0xe5, 0x8e, 0x26, opConsts, 0x7f, opPlus}, 624484, nil}, // DWARF 5, figures C.1 and C.2
		{[]byte{0x35, 0x33, opMinus}, 2, nil},
		{[]byte{0x35, 0x33, opSwap, opMinus}, ^uint64(1), nil},
		{[]byte{0x37, 0x33, opMod, 0x34, opMul}, 4, nil},
		{[]byte{opConst1s, 0xf8, 0x32, opDiv}, ^uint64(3), nil},
		{[]byte{opConst1s, 0xf8, 0x31, opShra}, ^uint64(3), nil},
		{[]byte{opConst1s, 0xff, opConst1u, 63, opShr}, 1, nil},
		{[]byte{0x31, opConst1u, 64, opShl}, 0, nil},
		{[]byte{0x31, 0x32, 0x33, opRot, opDrop}, 1, nil},             // 3 1 2
		{[]byte{0x31, 0x32, 0x33, opPick, 2}, 1, nil},                 //
		{[]byte{0x31, 0x32, opOver}, 1, nil},                          //
		{[]byte{0x31, opBra, 1, 0, 0x35, 0x36}, 6, nil},               //
		{[]byte{0x30, opBra, 1, 0, 0x35, 0x36, opDrop}, 5, nil},       //
		{[]byte{opSkip, 1, 0, 0x35, 0x36}, 6, nil},                    //
		{[]byte{opAddr, 0, 1, 0, 0, 0, 0, 0, 0}, 0x1100, nil},         // bias 0x1000
		{[]byte{opConst2u, 0x34, 0x12, opDerefSize, 1}, 0x34, nil},    //
		{[]byte{opConst1s, 0xff, 0x31, opLt}, 1, nil},                 // signed
		{[]byte{opConst1s, 0xff, 0x31, opGt, opNot}, ^uint64(0), nil}, //
		{[]byte{opBregx, 16, 1, opPlusUconst, 0x7f}, 0x1080, nil},
		{[]byte{}, 0xcfa, nil},
		{[]byte{0x70 + 18, 0}, 0, ErrRegister},
		{[]byte{opConst1s, 0xff, opDeref}, 0, ErrMemory},
		{[]byte{opDrop, opDrop}, 0, errExpr},
		{[]byte{opDrop}, 0, errExpr},
		{[]byte{0x31, 0x30, opDiv}, 0, errExpr},
		{[]byte{opSkip, 0xfd, 0xff}, 0, errExpr},
		{[]byte{opSkip, 0xf0, 0xff}, 0, errExpr},
		{[]byte{opConst8u, 1}, 0, errExpr},
		{[]byte{0xf3}, 0, errExpr},
		{bytes.Repeat([]byte{0x31}, 100), 0, errExpr},
	} {
		got, err := Eval(c.expr, memory{}, 0x1000, 0xcfa)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%x: got %#x, %v; want %#x, %v", c.expr, got, err, c.want, c.err)
		}
	}
}

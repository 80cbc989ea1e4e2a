package gopcln

import (
	"debug/gosym"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/sliverprof/sliver/unwind/rule"
)

// TestLoadAgreesWithGosym compares every function and sample lines of every kind of build with
// debug/gosym. The text start of gosym comes from an unstripped build's symbol if there is one.
func TestLoadAgreesWithGosym(t *testing.T) {
	for name, b := range builds {
		t.Run(name, func(t *testing.T) {
			tab, f := load(t, build(t, b))
			text := tab.text
			if syms, err := f.Symbols(); err == nil {
				for _, s := range syms {
					if s.Name == "runtime.text" && s.Value != text {
						t.Fatalf("text %#x, symbol %#x", text, s.Value)
					}
					if (s.Name == "go:func.*" || s.Name == "go.func.*") && s.Value != tab.gofunc {
						t.Fatalf("gofunc %#x, symbol %#x", tab.gofunc, s.Value)
					}
				}
			}
			if tab.gofunc == 0 {
				t.Error("gofunc not found")
			}
			raw := make([]byte, min(tab.size, 64<<20))
			if n, err := tab.img.r.ReadAt(raw, tab.off); err != nil && err != io.EOF {
				t.Fatal(n, err)
			}
			gs, err := gosym.NewTable(nil, gosym.NewLineTable(raw, text))
			if err != nil {
				t.Fatal(err)
			}
			if len(gs.Funcs) != int(tab.nfunc) {
				t.Fatalf("%d functions, gosym %d", tab.nfunc, len(gs.Funcs))
			}
			lines := 0
			for i := range gs.Funcs {
				g := &gs.Funcs[i]
				if g.End <= g.Entry {
					continue
				}
				for _, pc := range []uint64{g.Entry, (g.Entry + g.End) / 2 &^ 3, g.End - 1} {
					if pc < g.Entry {
						continue
					}
					entry, name, ok := tab.Func(pc)
					if !ok || entry != g.Entry || name != g.Name {
						t.Fatalf("%#x: %#x %q %v, gosym %#x %q", pc, entry, name, ok, g.Entry, g.Name)
					}
					file, line, ok := tab.Line(pc)
					wantFile, want, _ := gs.PCToLine(pc)
					if ok && (line != want || file != wantFile) {
						t.Fatalf("%#x %s: %s:%d, gosym %s:%d", pc, name, file, line, wantFile, want)
					}
					if ok {
						lines++
					}
				}
			}
			if lines < len(gs.Funcs) {
				t.Fatalf("only %d lines in %d functions", lines, len(gs.Funcs))
			}
			t.Logf("go1.%d: %d functions, %d lines", tab.version, len(gs.Funcs), lines)
		})
	}
}

// TestLoadWithoutSections removes the section headers, and then the magic.
func TestLoadWithoutSections(t *testing.T) {
	for _, name := range []string{"plain", "stripped pie", "cgo stripped pie", "arm64"} {
		t.Run(name, func(t *testing.T) {
			path := build(t, builds[name])
			want, _ := load(t, path)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			binary.LittleEndian.PutUint64(b[0x28:], 0) // e_shoff
			binary.LittleEndian.PutUint16(b[0x3c:], 0) // e_shnum
			binary.LittleEndian.PutUint16(b[0x3e:], 0) // e_shstrndx
			got, err := Load(readerAt(b), want.arch)
			if err != nil {
				t.Fatal(err)
			}
			if got.addr != want.addr || got.text != want.text || got.gofunc != want.gofunc || got.nfunc != want.nfunc {
				t.Errorf("%+v, with sections %+v", got.header, want.header)
			}
			binary.LittleEndian.PutUint32(b[want.off:], 0)
			if _, err := Load(readerAt(b), want.arch); !errors.Is(err, ErrNotGo) {
				t.Errorf("without magic: %v", err)
			}
			if _, err := Load(readerAt(b[:100]), want.arch); err == nil {
				t.Error("torn file loads")
			}
			other := rule.AMD64 + rule.ARM64 - want.arch
			if _, err := Load(readerAt(b), other); err == nil {
				t.Error("loads as", other)
			}
		})
	}
}

type readerAt []byte

func (r readerAt) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(r)) {
		return 0, io.EOF
	}
	n := copy(b, r[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"plain", "stripped pie", "cgo stripped pie"} {
		path := build(b, builds[name])
		r, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				if _, err := Load(r, rule.AMD64); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRule(b *testing.B) {
	tab, _ := load(b, build(b, plainBuild))
	lo, hi := tab.Bounds()
	var r rule.Rule
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		pc := lo + uint64(i)*7919%(hi-lo)
		if err := tab.Rule(pc, &r); err != nil && !errors.Is(err, rule.ErrNoRule) {
			b.Fatal(err)
		}
	}
}

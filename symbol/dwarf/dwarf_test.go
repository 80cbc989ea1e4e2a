package dwarf

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

const program = `#include <stddef.h>
static inline __attribute__((always_inline)) int deep(int x) { return x * 31; }
static inline __attribute__((always_inline)) int mid(int x) { return deep(x + 1) ^ 5; }
__attribute__((noinline)) int outer(int x) { int s = 0; for (int i = 0; i < x; i++) s += mid(i); return s; }
namespace a { struct b { static __attribute__((noinline)) int c(int x) { return outer(x) + mid(x); } }; }
int main(int n, char **) { return a::b::c(n); }
`

// build compiles the program and returns its DWARF in memory, with the bounds
// of its code.
func build(t testing.TB, flags ...string) (s Sections, raw map[string][]byte, lo, hi uint64) {
	t.Helper()
	testprog.Need(t, "g++")
	// Cached, because every worker of a fuzz run calls it.
	key := sha256.Sum256(fmt.Appendf(nil, "%q %q", program, flags))
	cache := filepath.Join(testprog.CacheDir(t), "symbol-dwarf")
	out := filepath.Join(cache, hex.EncodeToString(key[:8]))
	if _, err := os.Stat(out); err != nil {
		if err := os.MkdirAll(cache, 0o755); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		src, tmp := filepath.Join(dir, "p.cc"), filepath.Join(dir, "p")
		if err := os.WriteFile(src, []byte(program), 0o644); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"-O2", "-g", "-nostdlib", "-static", "-Wl,-e,main", "-o", tmp, src}, flags...)
		if b, err := exec.Command("g++", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		b, err := os.ReadFile(tmp)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := os.CreateTemp(cache, "writing-")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := whole.Write(b); err != nil {
			t.Fatal(err)
		}
		whole.Close()
		if err := os.Rename(whole.Name(), out); err != nil {
			t.Fatal(err)
		}
	}
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw = make(map[string][]byte)
	for _, x := range f.Sections {
		if strings.HasPrefix(x.Name, ".debug_") {
			if raw[x.Name[7:]], err = x.Data(); err != nil {
				t.Fatal(err)
			}
		}
		if x.Name == ".text" {
			lo, hi = x.Addr, x.Addr+x.Size
		}
	}
	return sections(raw), raw, lo, hi
}

func sections(raw map[string][]byte) Sections {
	return Sections{Info: Bytes(raw["info"]), Abbrev: Bytes(raw["abbrev"]), Str: Bytes(raw["str"]), LineStr: Bytes(raw["line_str"]),
		Line: Bytes(raw["line"]), Addr: Bytes(raw["addr"]), StrOffsets: Bytes(raw["str_offsets"]), Ranges: Bytes(raw["ranges"]),
		RngLists: Bytes(raw["rnglists"]), Aranges: Bytes(raw["aranges"]), CUIndex: Bytes(raw["cu_index"])}
}

func names(calls []Call) string {
	var b []string
	for _, c := range calls {
		b = append(b, c.Name)
	}
	return strings.Join(b, "<")
}

// TestLookup finds the chains of the program, in memory and piecewise, with and without
// a budget for the cache.
func TestLookup(t *testing.T) {
	for _, v := range []string{"2", "3", "4", "5"} {
		s, raw, lo, hi := build(t, "-gdwarf-"+v)
		seen := map[string]int{}
		whole := New(Config{Sections: s})
		var pieces Sections
		for i, p := range []**Section{&pieces.Info, &pieces.Abbrev, &pieces.Str, &pieces.LineStr, &pieces.Line, &pieces.Addr,
			&pieces.StrOffsets, &pieces.Ranges, &pieces.RngLists, &pieces.Aranges, &pieces.CUIndex} {
			x := s.all()[i]
			*p = At(bytes.NewReader(x.data), x.size)
		}
		piecewise, poor := New(Config{Sections: pieces}), New(Config{Sections: s, Budget: 1})
		for a := lo; a < hi; a++ {
			got := whole.Lookup(a, nil)
			seen[names(got)]++
			for _, d := range []*Data{piecewise, poor} {
				if other := d.Lookup(a, nil); fmt.Sprint(other) != fmt.Sprint(got) {
					t.Fatalf("DWARF %s at %#x: %v and %v", v, a, got, other)
				}
			}
		}
		for _, want := range []string{"mid<outer", "deep<mid<c", "outer", "main"} {
			if seen[want] == 0 {
				t.Errorf("DWARF %s: no %s among %v", v, want, seen)
			}
		}
		if p := append(whole.Problems(), piecewise.Problems()...); len(p) > 0 {
			t.Errorf("DWARF %s: %v", v, p)
		}
		if len(raw["info"]) == 0 {
			t.Error("no .debug_info")
		}
	}
}

// TestUnitsWithoutRanges: if a unit has no ranges, they come from aranges or from its
// functions.
func TestUnitsWithoutRanges(t *testing.T) {
	s, _, lo, hi := build(t, "-gdwarf-5")
	want := New(Config{Sections: s}).Lookup((lo+hi)/2, nil)
	for _, without := range []bool{false, true} {
		if without {
			s.Aranges = nil
		}
		d := New(Config{Sections: s})
		d.scan()
		u := d.ranges[0].u
		d.ranges, d.unranged = nil, []*unit{u}
		if !without {
			d.readAranges()
		}
		d.sortRanges()
		if got := d.Lookup((lo+hi)/2, nil); len(want) == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("without aranges %v: %v, want %v", without, got, want)
		}
	}
}

// TestToil: a file that would cost too much is abandoned, with an error.
func TestToil(t *testing.T) {
	s, _, lo, hi := build(t)
	d := New(Config{Sections: s, Budget: 1})
	d.limit = 5000
	n := 0
	for range 1000 {
		for a := lo; a < hi; a += 8 {
			n += len(d.Lookup(a, nil))
			d.last = nil
		}
	}
	if p := d.Problems(); n == 0 || len(p) == 0 || !strings.Contains(p[len(p)-1].Error(), "given up") {
		t.Errorf("%d calls, problems %v", n, p)
	}
	if got := d.Lookup(lo, nil); len(got) != 0 {
		t.Errorf("%v after it was given up", got)
	}
}

var order = []string{"info", "abbrev", "line", "str", "line_str", "ranges", "rnglists", "addr", "str_offsets", "cu_index"}

func ask(raw map[string][]byte, lo uint64) {
	s := sections(raw)
	d := New(Config{Sections: s, Budget: 1 << 16,
		Alt:     func() *Data { return New(Config{Sections: s}) },
		Package: func() *Sections { return &s },
		Object:  func(_, _ string, try func(*Sections) bool) { try(&s) }})
	d.limit = 1 << 26
	for i := range uint64(40) {
		d.Lookup(lo+i*5, nil)
	}
	d.Lookup(^uint64(0), nil)
}

// TestDamage changes bytes of every section of valid files.
func TestDamage(t *testing.T) {
	for _, flags := range [][]string{{"-gdwarf-2"}, {"-gdwarf-4"}, {"-gdwarf-5"}, {"-gdwarf-5", "-gsplit-dwarf"}} {
		_, raw, lo, _ := build(t, flags...)
		rnd := rand.New(rand.NewSource(1))
		for range 3000 {
			bad := make(map[string][]byte)
			for k, v := range raw {
				bad[k] = v
			}
			k := order[rnd.Intn(5)]
			if len(raw[k]) == 0 {
				continue
			}
			b := bytes.Clone(raw[k])
			for range 1 + rnd.Intn(6) {
				b[rnd.Intn(len(b))] = byte(rnd.Intn(256))
			}
			if rnd.Intn(4) == 0 {
				b = b[:rnd.Intn(len(b))]
			}
			bad[k] = b
			ask(bad, lo)
		}
	}
}

func FuzzLookup(f *testing.F) {
	if _, err := exec.LookPath("g++"); err == nil {
		for _, v := range []string{"-gdwarf-2", "-gdwarf-4", "-gdwarf-5"} {
			_, raw, lo, _ := build(f, v)
			f.Add(raw["info"], raw["abbrev"], raw["line"], append(raw["rnglists"], raw["ranges"]...), raw["str"], lo)
		}
	}
	f.Add([]byte{}, []byte{}, []byte{}, []byte{}, []byte{}, uint64(0))
	f.Fuzz(func(_ *testing.T, info, abbrev, line, ranges, str []byte, lo uint64) {
		ask(map[string][]byte{"info": info, "abbrev": abbrev, "line": line, "ranges": ranges, "rnglists": ranges,
			"str": str, "line_str": str, "addr": str, "str_offsets": str, "cu_index": line}, lo)
	})
}

func FuzzLEB(f *testing.F) {
	f.Add([]byte{0x80, 0x01, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := cursor{b: b}
		for c.pos < len(b) && !c.bad {
			was := c.pos
			if len(b)%2 == 0 {
				c.uleb()
			} else {
				c.sleb()
			}
			if c.pos <= was || c.pos > len(b) {
				t.Fatalf("from %d to %d of %d", was, c.pos, len(b))
			}
		}
	})
}

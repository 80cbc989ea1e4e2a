package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// object returns chain.c compiled and not linked, with a code section at addr.
func object(t testing.TB, addr uint64) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(fixture(t, "gcc -c -O0 -g chain.c -o a"), "a"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	headers := binary.LittleEndian.Uint64(b[40:]) // e_shoff
	for i, s := range f.Sections {
		if s.Name == ".text" {
			binary.LittleEndian.PutUint64(b[headers+uint64(i)*64+16:], addr) // sh_addr
		}
	}
	return b
}

// An unlinked file has the names and lines of a linked one, at its sections' claimed
// addresses. Opening it leaves the bytes unchanged.
func TestJITObject(t *testing.T) {
	const at = 0x7f0012345000
	b := object(t, at)
	was := bytes.Clone(b)
	o, err := OpenJITObject(b, false)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, was) {
		t.Error("the bytes were changed")
	}
	if o.Covers(at-1) || !o.Covers(at) {
		t.Error("not where its section is")
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF || f.Sections[s.Section].Name != ".text" {
			continue
		}
		n++
		fr := o.Frames(at+s.Value+s.Size-1, nil)
		if len(fr) == 0 || fr[len(fr)-1].Func != s.Name || fr[len(fr)-1].Start != at+s.Value || filepath.Base(fr[0].File) != "chain.c" || fr[0].Line == 0 {
			t.Errorf("%s: %+v", s.Name, fr)
		}
	}
	if n < 2 {
		t.Errorf("only %d functions", n)
	}
	if _, err := OpenJITObject(object(t, 0), false); err == nil {
		t.Error("code nowhere was taken")
	}
	if _, err := OpenJITObject([]byte("no ELF"), false); err == nil {
		t.Error("no ELF file was taken")
	}
}

// A variable is found in a file's exported symbols and in its own.
func TestVariable(t *testing.T) {
	for script, want := range map[string]bool{
		"echo 'int first, __jit_x = 5, last;' >x.c; gcc -shared -fPIC -nostdlib x.c -o full; strip -o a full":     true,
		"echo 'int _start, __jit_x = 5, my__jit_x = 6;' >x.c; gcc -static -nostdlib x.c -o a":                     true,
		"echo 'int _start, __jit_x = 5;' >x.c; gcc -static -nostdlib x.c -o full; strip -o a full":                false,
		"echo 'extern int __jit_x; int *f(void) { return &__jit_x; }' >x.c; gcc -shared -fPIC -nostdlib x.c -o a": false,
		"echo 'int first, __jit_xy = 5;' >x.c; gcc -shared -fPIC -nostdlib x.c -o a":                              false,
	} {
		b, err := os.ReadFile(filepath.Join(fixture(t, script), "a"))
		if err != nil {
			t.Fatal(err)
		}
		vaddr, ok := Variable(bytes.NewReader(b), "__jit_x")
		if ok != want {
			t.Errorf("%s: %v", script, ok)
		}
		if !ok {
			continue
		}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr < p.Vaddr+p.Filesz {
				if b[p.Off+vaddr-p.Vaddr] == 5 {
					ok = false // as expected
				}
			}
		}
		if ok {
			t.Errorf("%s: another one, at %#x", script, vaddr)
		}
	}
}

// A text is found wherever the parts of a section begin that are read one after another.
func TestHolds(t *testing.T) {
	const part = 256 << 10
	text := []byte("jit_debug_descriptor\x00")
	for _, size := range []int{len(text) - 1, len(text), 1000, part - 1, part, part + 1, 3*part + 5} {
		for _, at := range []int{0, size - len(text), part - len(text), part - 7, part - 1, part, 2*part - 40, 2*part - 21, 2*part - 20} {
			if at < 0 || at+len(text) > size {
				continue
			}
			b := bytes.Repeat([]byte("j"), size+100)
			copy(b[at:], text)
			m := &image{r: bytes.NewReader(b)}
			if s := (&elf.Section{SectionHeader: elf.SectionHeader{FileSize: uint64(size)}}); !m.holds(s, text) {
				t.Errorf("not found at %d of %d bytes", at, size)
			}
			if s := (&elf.Section{SectionHeader: elf.SectionHeader{FileSize: uint64(at + len(text) - 1)}}); m.holds(s, text) {
				t.Errorf("found at %d of %d bytes", at, at+len(text)-1)
			}
		}
		if m := (&image{r: bytes.NewReader(text[:5])}); m.holds(&elf.Section{SectionHeader: elf.SectionHeader{FileSize: uint64(size)}}, text) {
			t.Errorf("found in a file that ends early, of %d bytes", size)
		}
	}
}

func FuzzJITObject(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	if len(seeds(f)) > 0 {
		f.Add(object(f, 0x1000))
		f.Add(seeds(f)[0])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		Variable(bytes.NewReader(b), "main")
		o, err := OpenJITObject(b, false)
		if err != nil {
			return
		}
		o.Code(func(lo, hi uint64) {
			if lo >= hi || !o.Covers(lo) {
				t.Errorf("%#x-%#x", lo, hi)
			}
			o.Frames(lo, nil)
			o.Frames(hi-1, nil)
		})
	})
}

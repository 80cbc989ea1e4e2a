package data

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

const source = `
struct { long a, lock, b; } registry = {1, 2, 3};
long zeroed[100];
static long hidden = 7;
int main(void) { return (int)(registry.lock + zeroed[3] + hidden); }
`

func compile(t testing.TB, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "x.c"), filepath.Join(dir, "x")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if msg, err := exec.Command(testprog.Tool(t, "gcc"), append(flags, "-O0", "-o", out, src)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// values reads the variables as the compiler describes them.
func values(t testing.TB, b []byte) map[string]elf.Symbol {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]elf.Symbol{}
	for _, s := range all {
		out[s.Name] = s
	}
	return out
}

func TestLookup(t *testing.T) {
	b := compile(t)
	tab, err := Read(bytes.NewReader(b), nil)
	if err != nil {
		t.Fatal(err)
	}
	at := values(t, b)
	for _, c := range []struct {
		name   string
		offset uint64
	}{{"registry", 0}, {"registry", 8}, {"registry", 23}, {"zeroed", 0}, {"zeroed", 799}, {"hidden", 0}} {
		if name, off, ok := tab.Lookup(at[c.name].Value + c.offset); !ok || name != c.name || off != c.offset {
			t.Errorf("%s+%d: %q+%d, %v", c.name, c.offset, name, off, ok)
		}
	}
	if name, _, ok := tab.Lookup(at["main"].Value); ok {
		t.Errorf("a function is no variable: %q", name)
	}
	if name, ok := tab.Function(at["main"].Value); ok {
		t.Errorf("nobody wanted %q", name)
	}
	tab, err = Read(bytes.NewReader(b), func(name []byte) bool { return string(name) == "main" })
	if err != nil {
		t.Fatal(err)
	}
	main := at["main"]
	for v, want := range map[uint64]string{main.Value: "main", main.Value + main.Size - 1: "main", main.Value + main.Size: "",
		main.Value - 1: "", at["_start"].Value: "", at["registry"].Value: ""} {
		if name, ok := tab.Function(v); name != want || ok != (want != "") {
			t.Errorf("%#x: %q, want %q", v, name, want)
		}
	}
	for _, v := range []uint64{0, 1 << 40, ^uint64(0)} {
		if name, _, ok := tab.Lookup(v); ok {
			t.Errorf("%#x: %q", v, name)
		}
	}
	if _, _, ok := (*Table)(nil).Lookup(1); ok {
		t.Error("a nil table knows something")
	}
	if _, ok := (*Table)(nil).Function(1); ok {
		t.Error("a nil table knows a function")
	}
}

func TestStripped(t *testing.T) {
	tab, err := Read(bytes.NewReader(compile(t, "-s")), nil)
	if err == nil {
		if _, _, ok := tab.Lookup(values(t, compile(t))["registry"].Value); ok {
			t.Error("a name that is not in the file")
		}
	}
	if _, err := Read(strings.NewReader("no ELF file"), nil); err == nil {
		t.Error("no error")
	}
}

func TestNested(t *testing.T) {
	tab := &Table{syms: []symbol{{100, 50, "whole"}, {100, 8, "first"}, {120, 8, "part"}}}
	for v, want := range map[uint64]string{100: "first", 107: "first", 108: "whole", 120: "part", 128: "whole", 149: "whole", 150: "", 99: ""} {
		if name, off, ok := tab.Lookup(v); name != want || ok != (want != "") || ok && want == "whole" && off != v-100 {
			t.Errorf("%d: %q+%d, want %q", v, name, off, want)
		}
	}
}

func TestLoad(t *testing.T) {
	b := compile(t)
	l, err := ReadLoad(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	const bias = 0x5500_0000_0000
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 {
			continue
		}
		// As the kernel maps it: from the first page of the segment.
		off, addr := p.Off&^4095, bias+p.Vaddr&^4095
		if got, ok := l.Bias(off, addr); !ok || got != bias {
			t.Errorf("offset %#x at %#x: bias %#x, %v", off, addr, got, ok)
		}
	}
	if _, ok := l.Bias(1<<50, bias); ok {
		t.Error("a bias beyond the file")
	}
	at := values(t, b)
	if !l.Spans(at["zeroed"].Value+799) || l.Spans(1<<50) {
		t.Error("memory of the file is not told from others'")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x7fELF"), uint64(0))
	if exe, err := os.Executable(); err == nil {
		if b, err := os.ReadFile(exe); err == nil && len(b) > 4096 {
			f.Add(b[:4096], uint64(0x400000))
		}
	}
	f.Add(tiny(), uint64(0x2008))
	f.Fuzz(func(t *testing.T, b []byte, v uint64) {
		if tab, err := Read(bytes.NewReader(b), func([]byte) bool { return true }); err == nil {
			if _, off, ok := tab.Lookup(v); ok && off > v {
				t.Errorf("%#x lies %#x into its variable", v, off)
			}
			tab.Function(v)
		}
		if l, err := ReadLoad(bytes.NewReader(b)); err == nil {
			l.Bias(v, v)
			l.Spans(v)
		}
	})
}

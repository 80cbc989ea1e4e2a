package live

import (
	"debug/elf"
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

// A variable of a shared library must be reported with its name and its file, wherever
// that is mapped, and an address inside it with its offset.
func TestVariablesOfLibrary(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "locks/pthread", "O2"), "cond")
	p.Line("{")
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	tg, err := New(proc, nil)
	if err != nil {
		t.Fatal(err)
	}
	vars := tg.Variables(nil)
	defer vars.Close()
	for _, m := range tg.Maps() {
		if filepath.Base(m.Path) != "libc.so.6" || m.Off != 0 {
			continue
		}
		f, err := elf.Open(m.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.Name != "_IO_2_1_stderr_" || s.Size < 8 {
				continue
			}
			// libc's first segment is at address 0.
			got, ok := vars.Lookup(m.Start + s.Value + 8)
			if !ok || got.Name != s.Name || got.Offset != 8 || got.Module != m.Path {
				t.Errorf("%+v %v, want %s+8 of %s", got, ok, s.Name, m.Path)
			}
			return
		}
		t.Fatalf("%s has no such variable", m.Path)
	}
	t.Fatal("the C library is not mapped")
}

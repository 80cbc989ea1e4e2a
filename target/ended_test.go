package target

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestMappingsOfEnded: the files of a program that ended before they were opened are found, and another file at
// the path of one is not taken for it.
func TestMappingsOfEnded(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "copy")
	b, err := os.ReadFile(build(t, "testdata/spin.c"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin, b, 0o755); err != nil {
		t.Fatal(err)
	}
	prog := start(t, bin, "1")
	prog.line()
	p := openProcess(t, prog.pid())
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	var code stack.Mapping
	for _, m := range maps {
		if m.Exec && m.Path == bin {
			code = m
		}
	}
	if code.Path == "" {
		t.Fatalf("no code of %s in %v", bin, maps)
	}
	if f, err := p.openHere(code); err == nil {
		f.Close()
		t.Error("a file of a running program was looked up in the root of sliver")
	}
	if err := prog.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = prog.cmd.Wait()
	f, err := p.OpenMapping(code)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
	f.Close()
	if err != nil || string(got) != string(b) {
		t.Errorf("%d bytes, want %d, %v", len(got), len(b), err)
	}
	other := bin + ".new" // made before the first is gone: its inode is another
	if err := os.WriteFile(other, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, bin); err != nil {
		t.Fatal(err)
	}
	if f, err := p.OpenMapping(code); err == nil {
		f.Close()
		t.Error("another file was opened for the mapping")
	}
}

package cache

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A section is found with its size alone, and counts towards the bound of the folder.
func TestSections(t *testing.T) {
	d := open(t, 10_000)
	b := bytes.Repeat([]byte("debug"), 800)
	d.KeepSection("a", b)
	if got := d.Section("a", len(b)); !bytes.Equal(got, b) {
		t.Errorf("%d bytes", len(got))
	}
	if d.Section("a", len(b)-1) != nil || d.Section("b", len(b)) != nil || d.Section("../a", len(b)) != nil {
		t.Error("a section of another size or name")
	}
	for _, key := range []string{"b", "c", "d", "e"} {
		d.KeepSection(key, b)
	}
	d.KeepSection("huge", make([]byte, 20_000))
	if es, err := os.ReadDir(d.path); err != nil || len(es) != 2 || d.Section("e", len(b)) == nil {
		t.Errorf("%d files, %v", len(es), err)
	}
	if _, err := os.Stat(filepath.Join(d.path, "huge.section")); err == nil {
		t.Error("a section larger than the folder is kept")
	}
}

// The files of other programs are noticed at the next look.
func TestBoundOfSeveral(t *testing.T) {
	d := open(t, 10_000)
	d.KeepSection("a", make([]byte, 10))
	if err := os.WriteFile(filepath.Join(d.path, "other"), make([]byte, 9_950), 0o600); err != nil {
		t.Fatal(err)
	}
	for range lookEvery {
		d.KeepSection("b", make([]byte, 100))
	}
	if _, err := os.Stat(filepath.Join(d.path, "other")); err == nil {
		t.Error("the folder exceeds its bound")
	}
}

package live

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// programOf starts a program and returns it with the mapping of its own code.
func programOf(t *testing.T, path string) (*target.Process, stack.Mapping) {
	t.Helper()
	p := testprog.Start(t, path, "--seconds", "120")
	proc, err := target.Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.Close() })
	for begin := time.Now(); time.Since(begin) < time.Minute; <-time.After(time.Millisecond) {
		maps, err := proc.Maps()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range maps {
			if m.Exec && m.Path == path {
				return proc, m
			}
		}
	}
	t.Fatalf("%s is not mapped", path)
	return nil, stack.Mapping{}
}

// TestShared: a file is the same for two processes as long as its content is, and is closed when
// neither uses it any more.
func TestShared(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	b, err := os.ReadFile(testprog.Build(t, "c/spin", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "shared")
	put := func() {
		if err := os.WriteFile(path+".new", b, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	put()
	s := NewShared()
	open := func(p *target.Process, m stack.Mapping) *SharedFile {
		t.Helper()
		f, err := s.Open(p, m)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	p1, m1 := programOf(t, path)
	p2, m2 := programOf(t, path)
	a, again := open(p1, m1), open(p2, m2)
	if a != again || a.uses != 2 {
		t.Errorf("two files for one program, %d uses", a.uses)
	}
	segs, id, err := a.Head()
	if err != nil || len(segs) == 0 || id == "" {
		t.Errorf("segments %v, build ID %q, %v", segs, id, err)
	}
	// The same inode with another modification time may have another content.
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	changed := open(p2, m2)
	if changed == a {
		t.Error("a file that was written since is taken for the old one")
	}
	// Another file with the same path.
	put()
	p3, m3 := programOf(t, path)
	replaced := open(p3, m3)
	if replaced == a || replaced == changed {
		t.Error("a file that was replaced is taken for the old one")
	}
	// A file without users is kept for the next process.
	a.Close()
	again.Close()
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	replaced.Close()
	late := open(p3, m3)
	if late == replaced {
		t.Error("a file that was written while it had no users is taken for the old one")
	}
	s.Close()
	for _, f := range []*SharedFile{a, replaced} {
		if _, err := f.ReadAt(make([]byte, 4), 0); err == nil {
			t.Error("a file without users is still open")
		}
	}
	head := make([]byte, 4)
	if _, err := late.ReadAt(head, 0); err != nil || string(head) != "\x7fELF" {
		t.Errorf("a file with a user: %q, %v", head, err)
	}
	late.Close()
	changed.Close()
	if _, err := late.ReadAt(head, 0); err == nil || len(s.files) > 0 {
		t.Errorf("files are left after the last use: %v", s.files)
	}
}

// TestSharedTargets: the second Target of a program opens none of its files, and has the same names
// of variables.
func TestSharedTargets(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	s := NewShared()
	path := testprog.Build(t, "c/spin", "O2")
	var images []any
	var tables []*variables
	for range 2 {
		p, m := programOf(t, path)
		tg, err := s.New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		tg.Preload()
		if errs := tg.space.Errors(); len(errs) > 0 {
			t.Error(errs)
		}
		m.Gen = p.Written(m)
		f := tg.shares.file(&m)
		if f == nil {
			t.Fatalf("%s is not shared", path)
		}
		images = append(images, (*files)(tg).Image(m))
		v := tg.Variables(nil)
		tables = append(tables, v.file(&m))
		<-tables[len(tables)-1].ready
		v.Close()
		tg.Release()
		if tg.shares.file(&m) != nil {
			t.Error("a file is held after Release")
		}
	}
	if images[0] != images[1] || tables[0] != tables[1] || tables[0].table == nil {
		t.Error("unwind tables or variables are not shared")
	}
	s.Close()
	if len(s.files) > 0 {
		t.Errorf("files are left: %v", s.files)
	}
}

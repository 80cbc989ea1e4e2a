package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/watch/control"
)

// TestOutputsInPlace: a recording is written through a pipe and through a link, and
// replaces neither.
func TestOutputsInPlace(t *testing.T) {
	testprog.Need(t, "ptrace")
	dir := t.TempDir()
	p := spin(t)
	if err := os.Symlink("to.sliver", filepath.Join(dir, "link.sliver")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "to.sliver"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	w := slivercmd(t, dir, "watch", "-p", pidOf(p), "--no-triggers", "--as", "one")
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = w.Process.Kill()
		_ = w.Wait()
	}()
	status(t, dir, func(all []control.Status) bool {
		return len(all) == 1 && len(all[0].Targets) == 1 && all[0].Targets[0].Samples > 10
	})
	for _, args := range [][]string{
		{"record", "-p", pidOf(p), "-t", "main", "-d", "100ms", "--format", "sliver", "-o"},
		{"dump", "one", "-o"},
	} {
		pipe := filepath.Join(dir, args[0]+".sliver")
		if err := syscall.Mkfifo(pipe, 0o666); err != nil {
			t.Fatal(err)
		}
		got := make(chan []byte, 1)
		go func() {
			b, _ := os.ReadFile(pipe)
			got <- b
		}()
		if r := sliver(t, dir, append(args, pipe)...); r.status != 0 {
			t.Fatalf("%q to a pipe: %+v", args, r)
		}
		if fi, err := os.Lstat(pipe); err != nil || fi.Mode().Type() != fs.ModeNamedPipe {
			t.Fatalf("%q: the pipe is %v by now, %v", args, fi.Mode(), err)
		}
		whole(t, args[0], string(<-got))
		link := filepath.Join(dir, "link.sliver")
		if r := sliver(t, dir, append(args, link)...); r.status != 0 {
			t.Fatalf("%q to a link: %+v", args, r)
		}
		if fi, err := os.Lstat(link); err != nil || fi.Mode().Type() != fs.ModeSymlink {
			t.Errorf("%q: the link is %v by now, %v", args, fi.Mode(), err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "to.sliver"))
		if err != nil {
			t.Fatal(err)
		}
		whole(t, args[0], string(b))
		if left, _ := filepath.Glob(filepath.Join(dir, ".*.partial")); len(left) > 0 {
			t.Errorf("%q left %v behind", args, left)
		}
	}
}

func whole(t *testing.T, what, recording string) {
	t.Helper()
	rec, err := trace.Open(strings.NewReader(recording), int64(len(recording)))
	if err != nil || rec.End == nil && what == "record" {
		t.Fatalf("%s: a recording of %d bytes: %v", what, len(recording), err)
	}
}

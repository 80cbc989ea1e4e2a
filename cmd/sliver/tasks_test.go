package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
)

// SIGUSR1 triggers a scan of all goroutines, in addition to those at the begin and the
// end. For a program without goroutines it prints so.
func TestTasksAsked(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "go/routines", "default"))
	p.Line("{")
	dir := t.TempDir()
	cmd := slivercmd(t, dir, "record", "-p", pidOf(p), "-o", "x.sliver")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	looks := func() int {
		part, _ := filepath.Glob(filepath.Join(dir, ".*.partial"))
		if len(part) == 0 {
			return 0
		}
		b, err := os.ReadFile(part[0])
		if err != nil {
			t.Fatal(err)
		}
		rec, err := trace.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return 0
		}
		return len(rec.Tasks)
	}
	waitFor(t, func() bool { return looks() > 0 })
	_ = cmd.Process.Signal(syscall.SIGUSR1)
	waitFor(t, func() bool { return looks() > 3 }) // others come by themselves
	_ = cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	rec := openFile(t, filepath.Join(dir, "x.sliver"))
	if len(rec.Tasks) < 5 {
		t.Fatalf("%d looks", len(rec.Tasks))
	}
	for _, all := range rec.Tasks {
		if len(all.List) < 10 || all.At < rec.Tasks[0].At {
			t.Errorf("a look at %d goroutines at %d", len(all.List), all.At)
		}
	}

	c := spin(t)
	cmd = slivercmd(t, dir, "record", "-p", pidOf(c), "-o", "c.sliver")
	var errs safeBuffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	growing(t, dir)
	_ = cmd.Process.Signal(syscall.SIGUSR1)
	waitFor(t, func() bool { return strings.Contains(errs.String(), "SIGUSR1: the program has no goroutines") })
	_ = cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, %s", err, errs.String())
	}
}

func openFile(t *testing.T, path string) *trace.Recording {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return openBytes(t, b)
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/watch/control"

	"github.com/sliverprof/sliver/internal/testprog"
)

// Without an argument, dump uses only the recorder of the working folder. The error names
// others, and these write nothing.
func TestDumpOfThisFolder(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	p := spin(t)
	here, there := t.TempDir(), t.TempDir()
	start := func(dir, name string) {
		t.Helper()
		w := slivercmd(t, dir, "watch", "-p", pidOf(p), "--no-triggers", "--as", name)
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = w.Process.Signal(syscall.SIGTERM)
			_ = w.Wait()
		})
	}
	running := func(n int) {
		t.Helper()
		status(t, here, func(all []control.Status) bool {
			ready := 0
			for _, s := range all {
				if len(s.Targets) == 1 && s.Targets[0].Samples > 10 {
					ready++
				}
			}
			return ready == n
		})
	}
	dumps := func(dir string) int {
		t.Helper()
		got, err := filepath.Glob(filepath.Join(dir, "*.sliver"))
		if err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	refused := func(dir string, want ...string) {
		t.Helper()
		for _, args := range [][]string{{"dump"}, {"dump", "-o", "x.sliver"}} {
			r := sliver(t, dir, args...)
			if r.status != 1 || r.out != "" || strings.Count(r.errors, "\n") != 1 {
				t.Errorf("%q: %+v", args, r)
			}
			for _, w := range want {
				if !strings.Contains(r.errors, w) {
					t.Errorf("%q: %q has no %q", args, r.errors, w)
				}
			}
		}
	}

	start(there, "theirs")
	running(1)
	refused(here, "no recorder has its dumps in this folder", "'sliver dump theirs'", "dumps in "+there)
	if here, there := dumps(here), dumps(there); here != 0 || there != 0 {
		t.Fatalf("refused, but there are %d and %d dumps", here, there)
	}
	if r := sliver(t, here, "dump", "theirs"); r.status != 0 || dumps(there) != 1 {
		t.Fatalf("by its name: %+v", r)
	}

	start(here, "ours")
	running(2)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(here, link); err != nil {
		t.Fatal(err)
	}
	for i, dir := range []string{here, link} {
		if r := sliver(t, dir, "dump"); r.status != 0 || dumps(here) != i+1 || dumps(there) != 1 {
			t.Fatalf("in %s: %+v", dir, r)
		}
	}

	start(here, "second")
	running(3)
	refused(here, "several recorders have their dumps in this folder", "ours", "second")
	if r := sliver(t, here, "dump"); strings.Contains(r.errors, "theirs") {
		t.Errorf("another folder's recorder is offered: %q", r.errors)
	}
	if dumps(here) != 2 || dumps(there) != 1 {
		t.Errorf("refused, but there are %d and %d dumps", dumps(here), dumps(there))
	}
}

// A recorder that does not answer (stopped, or waiting for a disk) does not keep ls and dump from the
// others, and is named.
func TestSilentRecorder(t *testing.T) {
	testprog.Whole(t, "a recorder that waits for its time")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	p := spin(t)
	dir := t.TempDir()
	var stopped *os.Process
	for _, name := range []string{"answers", "stopped"} {
		w := slivercmd(t, t.TempDir(), "watch", "-p", pidOf(p), "--no-triggers", "--as", name)
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = w.Process.Kill()
			_ = w.Wait()
		})
		stopped = w.Process
	}
	status(t, dir, func(all []control.Status) bool {
		return len(all) == 2 && len(all[0].Targets) == 1 && len(all[1].Targets) == 1 && all[0].Targets[0].Samples > 10
	})
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const says = "recorder stopped does not answer"
	if r := sliver(t, dir, "ls"); r.status != 0 || !strings.Contains(r.out, "recorder answers, process") || strings.Contains(r.out, "recorder stopped, process") || !strings.Contains(r.errors, says) {
		t.Errorf("ls: %+v", r)
	}
	if r := sliver(t, dir, "dump", "answers"); r.status != 0 || strings.Count(r.out, ".sliver") != 1 {
		t.Errorf("dump of the other: %+v", r)
	}
	if r := sliver(t, dir, "dump", "stopped"); r.status != 1 || !strings.Contains(r.errors, says) || strings.Count(r.errors, "\n") != 1 {
		t.Errorf("dump: %+v", r)
	}
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	status(t, dir, func(all []control.Status) bool { return len(all) == 2 })
}

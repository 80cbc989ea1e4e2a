package canary

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
)

// TestGoroutines reads a file of a Go program from two threads in turn: the operations of both count as
// those of one, and run on from one thread to the other.
func TestGoroutines(t *testing.T) {
	testprog.Need(t, "ptrace")
	path := slow(t, 2*time.Millisecond)
	for _, c := range []struct {
		n, size int
		fires   bool
	}{{21, 4095, true}, {20, 4095, false}, {21, 4096, false}} {
		p := testprog.Start(t, testprog.Build(t, "go/files", "default"), path, strconv.Itoa(c.n), strconv.Itoa(c.size))
		p.Ready()
		s := watch(t, p.PID, "small-buffer gap=8s") // with 8 s, a pause of the machine does not end a run
		p.Go()
		var each [2]int
		if _, err := fmt.Sscanf(p.Line("truth "), "truth %d %d", &each[0], &each[1]); err != nil {
			t.Fatal(err)
		}
		p.Done()
		s.end(t)
		if each[0] != (c.n+1)/2 || each[1] != c.n/2 {
			t.Errorf("%d and %d reads", each[0], each[1])
		}
		var of []*iowatch.Finding
		for _, f := range s.Engine.Findings() {
			if f.Path == path {
				of = append(of, f)
			}
		}
		if len(of) > 0 != c.fires {
			t.Errorf("%+v: %d findings", c, len(of))
		}
		for _, f := range of {
			// The least is the time of all reads but the first: a run over both threads.
			if f.Ops != 21 || f.Bytes != 21*4095 || f.Longer < int64(c.n-1)*2e6 || !strings.Contains(s.stackOf(f.Where), "main.sharing") {
				t.Errorf("%+v at %s", f, s.stackOf(f.Where))
			}
		}
		for _, f := range s.Engine.Files() {
			if f.Path == path && (f.Ops != uint64(c.n) || f.Got != uint64(c.n*c.size) || f.Opens != 1 || f.Open != 0) {
				t.Errorf("%+v", f)
			}
		}
	}
}

// TestGoAfterExec runs a Go program in the place of a shell: the threads of the shell have sums of their
// own, those of the Go program share them.
func TestGoAfterExec(t *testing.T) {
	testprog.Need(t, "ptrace")
	path := slow(t, 2*time.Millisecond)
	p := testprog.Start(t, "/bin/sh", "-c", `echo shell; read line; exec "$@"`, "sh", testprog.Build(t, "go/files", "default"), path, "21", "100")
	p.Line("shell")
	found := make(chan struct{}, 1)
	s := watch(t, p.PID, "small-buffer gap=8s")
	s.Engine.Found = func(f *iowatch.Finding) { found <- struct{}{} }
	p.Go()
	p.Ready() // the Go program, which is noticed some time later
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for n := 0; ; n++ {
		if n == 200 {
			t.Fatal("no finding")
		}
		p.Go()
		select {
		case <-every.C:
			continue
		case <-found:
		}
		break
	}
	s.end(t)
	// A program that closed its file before it was noticed has the file's last name alone.
	if f := only(t, s); f.Ops != 21 || f.Path != path && f.Path != filepath.Base(path) {
		t.Errorf("%+v", f)
	}
}

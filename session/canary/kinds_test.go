package canary

import (
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/iowatch"
)

// TestLeakKinds leaks descriptors of every kind until the rule has fired for each: a finding has the kind and
// the place that opened them.
func TestLeakKinds(t *testing.T) {
	testprog.Unraced(t, "it compares what one goroutine finds; TestBacktrace and TestLeak are its short form")
	testprog.Need(t, "gcc", "ptrace")
	want := map[string]iowatch.Kind{
		"leaking_file": iowatch.KindFile, "leaking_folder": iowatch.KindDir, "leaking_stream": iowatch.KindSocket, "leaking_pair": iowatch.KindSocket,
		"leaking_eventfd": iowatch.KindAnon, "leaking_epoll": iowatch.KindAnon, "leaking_timer": iowatch.KindAnon, "leaking_inotify": iowatch.KindAnon,
		"leaking_memfd": iowatch.KindFile, "leaking_pipe": iowatch.KindFIFO, "leaking_dup": iowatch.KindFIFO, "leaking_fcntl": iowatch.KindFIFO,
		"leaking_dup3": iowatch.KindFIFO, "leaking_signal": iowatch.KindAnon, "leaking_pidfd": iowatch.KindAnon, "leaking_userfault": iowatch.KindAnon,
		"leaking_fanotify": iowatch.KindAnon, "leaking_perf": iowatch.KindAnon, "leaking_accept": iowatch.KindSocket, "receiving": iowatch.KindFile,
		"leaking_openat2": iowatch.KindFile, "leaking_epoll1": iowatch.KindAnon, "leaking_accept0": iowatch.KindSocket, "leaking_uring": iowatch.KindAnon,
		"leaking_secret": iowatch.KindFile, "leaking_taken": iowatch.KindFIFO, "leaking_handle": iowatch.KindFile, "leaking_bpf": iowatch.KindAnon,
		"leaking_fsopen": iowatch.KindAnon, "leaking_tree": iowatch.KindDir, "leaking_landlock": iowatch.KindAnon, "leaking_queue": iowatch.KindFile,
		"leaking_child": iowatch.KindAnon,
	}
	if runtime.GOARCH == "amd64" { // arm64 has none of these calls
		want["leaking_inotify0"], want["leaking_eventfd0"], want["leaking_signal0"] = iowatch.KindAnon, iowatch.KindAnon, iowatch.KindAnon
	}
	leaking := func(stack string) string {
		functions := strings.Fields(stack)
		i := slices.IndexFunc(functions, func(name string) bool { return strings.HasPrefix(name, "leaking_") || name == "receiving" })
		if i < 0 {
			return ""
		}
		return functions[i]
	}
	p := testprog.Start(t, testprog.Build(t, "c/files", "O2"), "leaks", testprog.Build(t, "c/files", "O2"), "1", "0")
	p.Ready()
	found := make(chan string, 1000)
	s := watch(t, p.PID, "leak age=500ms count=6")
	s.Engine.Found = func(f *iowatch.Finding) { found <- leaking(s.stackOf(f.Stack)) }
	every := time.NewTicker(500 * time.Millisecond) // so that each open has a stack
	defer every.Stop()
	missing := maps.Clone(want)
	for n := 0; len(missing) > 0; n++ {
		if n == 60 {
			t.Errorf("no findings of %v", missing)
			break
		}
		p.Go()
		for _, name := range strings.Fields(p.Line("lacks"))[1:] {
			t.Logf("%s: not on this machine", name)
			delete(want, name)
			delete(missing, name)
		}
		p.Done()
		for waits := true; waits; {
			select {
			case <-every.C:
				waits = false
			case name := <-found:
				delete(missing, name)
			}
		}
	}
	s.end(t)
	got := map[string]iowatch.Kind{}
	for _, f := range s.Engine.Findings() {
		name := leaking(s.stackOf(f.Stack))
		if f.Count < 6 || !strings.Contains(f.Advice(), "still open, and the number grows") {
			t.Errorf("%+v at %q: %s", f, name, f.Advice())
		}
		if _, twice := got[name]; twice && name != "" {
			t.Errorf("%s is found twice", name)
		}
		got[name] = f.Kind
	}
	for name, kind := range want {
		if got[name] != kind {
			t.Errorf("%s has kind %v, want %v", name, got[name], kind)
		}
	}
}

// TestNoLeaks keeps one descriptor less of each kind than the rule needs, and opens and closes as many in each
// round. Neither is a leak.
func TestNoLeaks(t *testing.T) {
	testprog.Whole(t, "TestLeakKinds counts the same descriptors")
	testprog.Unraced(t, "it compares what one goroutine finds; the rule's own test is its short form")
	testprog.Need(t, "gcc", "ptrace")
	prog := testprog.Build(t, "c/files", "O2")
	p := testprog.Start(t, prog, "keeps", prog, "5", "0")
	p.Ready()
	s := watch(t, p.PID, "leak age=500ms count=6")
	every := time.NewTicker(300 * time.Millisecond)
	defer every.Stop()
	for range 12 {
		p.Go()
		p.Done()
		<-every.C
	}
	s.end(t)
	if all := s.Engine.Findings(); len(all) > 0 {
		t.Errorf("%d findings: %+v at %s", len(all), all[0], s.stackOf(all[0].Stack))
	}
	kept := map[iowatch.Kind]int{}
	for _, f := range s.Engine.Files() {
		kept[f.Kind] += f.Open
	}
	if kept[iowatch.KindAnon] < 5*8 || kept[iowatch.KindSocket] < 5*4 || kept[iowatch.KindDir] < 5 {
		t.Errorf("open are %v", kept)
	}
}

// TestSmallWriteFile writes 1,000 times 511 bytes, once less, and one byte more.
func TestSmallWriteFile(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	path := filepath.Join(t.TempDir(), "log")
	for _, c := range []struct {
		n, size int
		fires   bool
	}{{1000, 511, true}, {999, 511, false}, {1000, 512, false}} {
		// The file is closed when they are made, which takes less than a minute.
		s, _, _ := filesRun(t, []string{"small-write within=60s"}, "write", path, c.n, c.size)
		all := s.Engine.Findings()
		if len(all) > 0 != c.fires {
			t.Errorf("%+v: %d findings", c, len(all))
		}
		if len(all) > 0 && (all[0].Path != path || all[0].Count != 1000 || !strings.Contains(s.stackOf(all[0].Stack), "opening main ")) {
			t.Errorf("%+v at %s", all[0], s.stackOf(all[0].Stack))
		}
	}
}

// TestSyncWriteFile writes to a file with O_DSYNC at the edges of the rule.
func TestSyncWriteFile(t *testing.T) {
	testprog.Unraced(t, "it compares with clocks, and a slow sampler would take the CPUs")
	path := filepath.Join(t.TempDir(), "log")
	for _, c := range []struct {
		n, size int
		fires   bool
	}{{21, 4095, true}, {20, 4095, false}, {21, 4096, false}} {
		s, _, _ := filesRun(t, []string{"sync-write"}, "osync", path, c.n, c.size)
		all := s.Engine.Findings()
		if len(all) > 0 != c.fires {
			t.Errorf("%+v: %d findings", c, len(all))
		}
		if len(all) > 0 && (all[0].Path != path || all[0].Count != 21 || !strings.Contains(s.stackOf(all[0].Stack), "opening main ")) {
			t.Errorf("%+v at %s", all[0], s.stackOf(all[0].Stack))
		}
	}
	s, _, _ := filesRun(t, []string{"sync-write"}, "write", path, 50, 100) // without the flag
	if all := s.Engine.Findings(); len(all) > 0 {
		t.Errorf("%+v", all[0])
	}
}

// TestRepeatOpenFile opens a file 20 times, and 19 times.
func TestRepeatOpenFile(t *testing.T) {
	path := stored(t, 1)
	for n, want := range map[int]int{20: 1, 19: 0} {
		s, _, _ := filesRun(t, []string{"repeat-open within=60s"}, "reopen", path, n, 100)
		all := s.Engine.Findings()
		if len(all) != want {
			t.Errorf("%d opens: %d findings", n, len(all))
		}
		if len(all) > 0 && (all[0].Path != path || all[0].Count != 20 || !strings.Contains(s.stackOf(all[0].Stack), "opening main ")) {
			t.Errorf("%+v at %s", all[0], s.stackOf(all[0].Stack))
		}
	}
}

// TestUnseen has descriptors that no system call made by its result: of an ioctl, and the third of a message. They are
// leaks without a stack. Those that io_uring closes are none.
func TestUnseen(t *testing.T) {
	testprog.Unraced(t, "it compares what one goroutine finds; the rule's own test is its short form")
	testprog.Need(t, "gcc", "ptrace")
	prog := testprog.Build(t, "c/files", "O2")
	p := testprog.Start(t, prog, "unseen", prog, "2", "0")
	p.Ready()
	found := make(chan iowatch.Kind, 1000)
	s := watch(t, p.PID, "leak age=500ms count=6")
	s.Engine.Found = func(f *iowatch.Finding) { found <- f.Kind }
	every := time.NewTicker(300 * time.Millisecond)
	defer every.Stop()
	got := map[iowatch.Kind]int{}
	for n := 0; n < 20 || len(got) < 2; n++ { // io_uring's need as many
		if n == 200 {
			t.Errorf("findings by kind: %v", got)
			break
		}
		p.Go()
		p.Done()
		<-every.C
		for waits := true; waits; {
			select {
			case kind := <-found:
				got[kind]++
			default:
				waits = false
			}
		}
	}
	s.end(t)
	if got[iowatch.KindChar] != 1 || got[iowatch.KindFile] != 1 || len(got) != 2 {
		t.Errorf("findings by kind: %v", got)
	}
	for _, f := range s.Engine.Findings() {
		if f.Stack != 0 || f.Call != "" {
			t.Errorf("%+v at %s", f, s.stackOf(f.Stack))
		}
	}
}

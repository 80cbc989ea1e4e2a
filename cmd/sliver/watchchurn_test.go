package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/watch/control"
)

// used is the resource usage of a recorder at one moment.
type used struct {
	rss     int64 // bytes
	fds     int
	threads int
	files   int // in its folders
	blocks  int64
}

// helpers returns how many processes for reading files (internal/safefile) a recorder has. Each has two
// descriptors, and ends some seconds after its last request.
func helpers(t *testing.T, pid int) (n int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		b, _ := os.ReadFile(list) // the thread may have ended
		for _, child := range strings.Fields(string(b)) {
			if name, _ := os.ReadFile("/proc/" + child + "/comm"); strings.TrimSpace(string(name)) == safefile.HelperName {
				n++
			}
		}
	}
	return n
}

func usedNow(t *testing.T, pid int, dirs ...string) (u used) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			u.rss = kb << 10
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	u.fds, u.threads = len(fds), len(tasks)
	for _, d := range dirs {
		_ = filepath.WalkDir(d, func(_ string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return nil // removed in the meantime
			}
			if fi, err := e.Info(); err == nil {
				u.files++
				u.blocks += fi.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return nil
		})
	}
	return u
}

// most returns the maximum of each field.
func most(us []used) (m used) {
	for _, u := range us {
		m = used{max(m.rss, u.rss), max(m.fds, u.fds), max(m.threads, u.threads), max(m.files, u.files), max(m.blocks, u.blocks)}
	}
	return m
}

// A recorder watches programs that start hundreds of threads and end, over and over, and dumps all the
// time. At the end it uses no more memory, descriptors, threads and disk space than near the
// beginning. The test simulates a day 50 times as fast: targets live for a second instead of a minute,
// and one second is kept instead of 30. With SLIVER_CHURN=1728s the day takes 29 minutes; by default
// the test runs a part of it.
func TestWatchChurn(t *testing.T) {
	testprog.Need(t, "ptrace")
	if testing.Short() {
		t.Skip("takes long")
	}
	lasts := 12 * time.Second
	if s := os.Getenv("SLIVER_CHURN"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	run, dir := t.TempDir(), t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", run)
	// With a unique name.
	name := fmt.Sprintf("chn-%d", os.Getpid())
	b, err := os.ReadFile(testprog.Build(t, "c/churn", "O2"))
	if err != nil {
		t.Fatal(err)
	}
	prog := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(prog, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := slivercmd(t, dir, "watch", "--name", name, "--as", "churn", "--keep", "1s", "-i", "5ms", "--groups", "2", "--max-cpu", "0%", "--max-dumps", "10",
		"--max-bytes", "20MiB", "-o", ".folded", "--exec", "test -s $SLIVER_DUMP", "--stall", "100ms,threads=all,cool=3s", "--cpu", "90%,cool=3s")
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var restarts atomic.Int64
	var running sync.RWMutex // read-locked by running targets
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	ended := sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the recorder ended with %v: %s", err, log.String())
		}
	})
	defer ended()
	for k := range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				running.RLock()
				p := exec.CommandContext(ctx, prog, "--live", "4", "--seconds", "1", "--seed", fmt.Sprint(k+1+int(restarts.Load())))
				if err := p.Run(); err != nil && ctx.Err() == nil {
					t.Errorf("the target ended with %v", err)
				}
				running.RUnlock()
				restarts.Add(1)
			}
		})
	}
	var client *control.Client
	waitFor(t, func() bool {
		cs, err := control.Clients(filepath.Join(run, "sliver"))
		if err == nil && len(cs) == 1 {
			client = cs[0]
			_, err = client.Status(ctx)
		}
		return client != nil && err == nil
	})
	var seen []used
	var asked atomic.Int64
	wg.Go(func() {
		for tick := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			if _, err := client.Dump(ctx, control.Request{}); err == nil { // fails without a target, or if it has just ended
				asked.Add(1)
			}
		}
	})
	tick := time.NewTicker(400 * time.Millisecond)
	defer tick.Stop()
	// A busy machine needs longer for as many targets and dumps.
	few := func() bool {
		return restarts.Load() < int64(lasts/time.Second) || asked.Load() < int64(lasts/time.Second)/2
	}
	// resting returns the usage without a target: the minimum over a few seconds, as the resources of
	// ended ones may not be released yet.
	resting := func() (least used) {
		running.Lock()
		defer running.Unlock()
		waitFor(t, func() bool {
			s, err := client.Status(ctx)
			return err == nil && len(s.Targets) == 0 && helpers(t, cmd.Process.Pid) == 0
		})
		least = usedNow(t, cmd.Process.Pid, dir, run)
		for range 10 {
			<-tick.C
			u := usedNow(t, cmd.Process.Pid, dir, run)
			least.rss, least.fds, least.threads = min(least.rss, u.rss), min(least.fds, u.fds), min(least.threads, u.threads)
		}
		return least
	}
	begin := time.Now()
	var base used
	for ; time.Since(begin) < lasts || few() && time.Since(begin) < 4*lasts; <-tick.C {
		seen = append(seen, usedNow(t, cmd.Process.Pid, dir, run))
		if len(seen) == 150 || base.fds == 0 && time.Since(begin) > lasts/3 {
			pause := time.Now()
			base = resting()
			begin = begin.Add(time.Since(pause)) // it waits for the helpers; that time has no churn
		}
	}
	rest := resting()
	s, err := client.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ended()
	// The first minute must match the last tenth; in a short run, the first third must.
	first := min(len(seen)/3, 150)
	early, late := most(seen[first/3:first]), most(seen[len(seen)-max(len(seen)/10, 5):])
	t.Logf("at rest %+v, in the end %+v", base, rest)
	t.Logf("%v: %d targets, %d dumps asked for, %d triggers; then %+v, in the end %+v", time.Since(begin).Round(time.Second), restarts.Load(), asked.Load(), s.Fired, early, late)
	if late.rss > early.rss*5/4+8<<20 {
		t.Errorf("memory grew from %d to %d bytes", early.rss, late.rss)
	}
	// The number of overlapping targets and their threads varies, so leaks are measured at rest.
	if late.fds > early.fds*2+16 || late.threads > early.threads+8 || late.files > 2*10+3*2+4 {
		t.Errorf("it takes more and more: %+v, in the end %+v", early, late)
	}
	if rest.fds > base.fds+2 || rest.threads > base.threads+4 || rest.rss > base.rss*5/4+8<<20 {
		t.Errorf("at rest it takes more and more: %+v, in the end %+v", base, rest)
	}
	if late.blocks > 96<<20 {
		t.Errorf("%d bytes on disk", late.blocks)
	}
	if few() || s.Failed > int(asked.Load())/5 {
		t.Errorf("%d restarts, %d dumps, %d failed: %s", restarts.Load(), asked.Load(), s.Failed, s.Trouble)
	}
	if left, _ := os.ReadDir(filepath.Join(run, "sliver")); slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".ring") }) {
		t.Errorf("left behind: %v", left)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/internal/testprog"
)

// reportOf records p until enough finds nothing missing in its report.
func reportOf(t *testing.T, p *testprog.Proc, enough func(*report.Report) string, flags ...string) *report.Report {
	t.Helper()
	dir, lacks := t.TempDir(), ""
	for _, d := range []string{"1s", "3s", "9s", "27s"} { // function names are available some time after the first sample
		if r := sliver(t, dir, "record", "-q", "-p", pidOf(p), "-d", d, "-o", "r.sliver"); r.status != 0 {
			t.Fatalf("%+v", r)
		}
		r := sliver(t, dir, append([]string{"report", "r.sliver", "--json"}, flags...)...)
		doc := &report.Report{}
		if err := json.Unmarshal([]byte(r.out), doc); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		if lacks = enough(doc); lacks == "" {
			return doc
		}
	}
	t.Fatal(lacks)
	return nil
}

// TestIdlePool: idle threads of a C program's pool are omitted and counted, a thread that waits for a
// response is ranked, and --idle shows all.
func TestIdlePool(t *testing.T) {
	testprog.Whole(t, "TestIdleRuntimes has the idle threads of runtimes")
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/pool", "O2"))
	p.Line("{")
	waits := func(r *report.Report) (fs []string) {
		for _, f := range r.Functions {
			fs = append(fs, f.Name)
		}
		return fs
	}
	r := reportOf(t, p, func(r *report.Report) string {
		if fs := waits(r); r.Idle.Threads != 4 || slices.Contains(fs, "work") || !slices.Contains(fs, "call_server") {
			return fmt.Sprintf("left out %+v, waits in %v", r.Idle, fs)
		}
		return ""
	})
	for _, th := range r.Threads {
		if sum := th.CPU + th.Runnable + th.Blocked + th.Disk + th.Stopped; sum != th.Observed {
			t.Errorf("times of %+v add up to %d", th, sum)
		}
	}
	reportOf(t, p, func(r *report.Report) string {
		if fs := waits(r); r.Idle.Any() || !slices.Contains(fs, "work") || len(r.Threads) != 6 {
			return fmt.Sprintf("left out %+v, waits in %v", r.Idle, fs)
		}
		return ""
	}, "--idle")
	dir := t.TempDir()
	res := sliver(t, dir, "record", "-p", pidOf(p), "-d", "2s", "-o", "r.folded", "-o", "r.svg")
	if !strings.Contains(res.errors, "4 idle threads, ") || !strings.Contains(res.errors, "; --idle shows them") {
		t.Errorf("%+v", res)
	}
	for name, want := range map[string]bool{"r.folded": false, "i.folded": true} {
		if name[0] == 'i' {
			sliver(t, dir, "record", "-q", "--idle", "-p", pidOf(p), "-d", "2s", "-o", name)
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "work;pthread_cond") != want {
			t.Errorf("%s has the pool's waits: %v", name, !want)
		}
	}
	if res = sliver(t, dir, "top", "--once", "-d", "2s", pidOf(p)); !strings.Contains(res.out, "idle threads, ") || !strings.Contains(res.out, "; --idle shows them") {
		t.Errorf("%+v", res)
	}
}

// TestIdleRuntimes: idle threads of Redis, Node, Java and Go are omitted, whatever their names.
func TestIdleRuntimes(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, c := range []struct {
		name  string
		cmd   func(t *testing.T) *exec.Cmd
		least int      // minimum number of idle threads
		not   []string // functions with idle waits
	}{
		{"redis", func(t *testing.T) *exec.Cmd {
			path, err := exec.LookPath("redis-server")
			if err != nil {
				testprog.Missing(t, "redis", err.Error())
			}
			return exec.Command(path, "--port", "0", "--unixsocket", filepath.Join(t.TempDir(), "s"), "--save", "")
		}, 4, []string{"bioProcessBackgroundJobs", "aeApiPoll"}},
		{"node", func(t *testing.T) *exec.Cmd {
			return exec.Command(testprog.Tool(t, "node22"), "-e", "require('dns').lookup('localhost',()=>{}); setInterval(()=>{}, 1000)")
		}, 8, []string{"worker", "uv__io_poll"}},
		{"java", func(t *testing.T) *exec.Cmd {
			cmd := exec.Command(testprog.Tool(t, "java17"), "-Xmx64m", "-cp", testprog.JavaClasses(t, "Idle"), "Idle")
			cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=")
			return cmd
		}, 15, []string{"java.util.concurrent.ThreadPoolExecutor.getTask", "java.util.concurrent.ThreadPoolExecutor.runWorker",
			"java.util.concurrent.LinkedBlockingQueue.take", "java.util.concurrent.SynchronousQueue.take", "Idle.lambda$worker$5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testprog.StartCmd(t, c.cmd(t))
			reportOf(t, p, func(r *report.Report) string {
				for _, f := range r.Functions {
					if slices.Contains(c.not, f.Name) {
						return fmt.Sprintf("%+v is ranked", f)
					}
				}
				if r.Idle.Threads < c.least {
					return fmt.Sprintf("left out %+v, want %d threads", r.Idle, c.least)
				}
				return ""
			})
		})
	}
}

// TestReportGoroutines: a report of a Go program has each kind of wait by name and place, with the mutex
// holder if it can be inferred.
func TestReportGoroutines(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "go/waits", "default"))
	p.Line("{")
	want := map[string]string{"sync.Mutex": "main.hold", "sync.RWMutex (read)": "main.read", "sync.RWMutex (write)": "main.write", "channel (receive)": "main.receive",
		"select": "main.choose", "sync.WaitGroup": "main.join", "sleep": "main.hold"}
	r := reportOf(t, p, func(r *report.Report) string {
		if r.Tasks == nil {
			return "no goroutines"
		}
		for what, fn := range want {
			if !slices.ContainsFunc(r.Tasks.Waits, func(w report.TaskWait) bool {
				return w.For == what && w.Func == fn && w.Line > 0 && w.Total > 500_000_000
			}) {
				return fmt.Sprintf("%s in %s is not in %+v", what, fn, r.Tasks.Waits)
			}
		}
		return ""
	})
	for _, w := range r.Tasks.Waits {
		if w.For == "sync.Mutex" && (len(w.Holders) != 1 || !strings.HasPrefix(w.Holders[0], "goroutine ") || !strings.HasSuffix(w.Holders[0], " main.hold (inferred)") || w.Tasks != 2) {
			t.Errorf("mutex %+v", w)
		}
	}
	for _, f := range r.Functions {
		if strings.HasPrefix(f.Name, "[") {
			t.Errorf("%+v", f)
		}
	}
}

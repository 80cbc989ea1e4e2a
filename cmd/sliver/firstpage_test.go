package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
)

// firstCase is a program with what the page's first screen says of it: see web/page/test/first.mjs.
type firstCase struct {
	Name string   `json:"name"`
	File string   `json:"file"`
	PID  int      `json:"pid,omitempty"`
	Want []string `json:"want"`
	Not  []string `json:"not,omitempty"`
	// Rows is a function that a track shows, Runtime one of an interpreter that none shows at first.
	Rows    string `json:"rows,omitempty"`
	Runtime string `json:"runtime,omitempty"`
}

// TestPageFirstScreen opens the page of each kind of program at 1440×900. The first screen names the slow
// function or the contended lock, without a click and without scrolling.
func TestPageFirstScreen(t *testing.T) {
	testprog.Need(t, "ptrace", "node", "chromium", "npm")
	dir := t.TempDir()
	script := func(program string, args ...string) func(t *testing.T) *exec.Cmd {
		return func(t *testing.T) *exec.Cmd {
			args[len(args)-1] = filepath.Join(testprog.Root(t), "testdata", "targets", args[len(args)-1])
			return exec.Command(testprog.Tool(t, program), args...)
		}
	}
	var cases []firstCase
	for _, c := range []struct {
		name  string
		cmd   func(t *testing.T) *exec.Cmd
		ready string // a line of its output
		more  func(t *testing.T)
		live  bool
		want  []string
		not   []string
		rows  string
		own   string // see firstCase.Runtime
	}{
		{name: "mutex", cmd: func(t *testing.T) *exec.Cmd {
			return exec.Command(testprog.Build(t, "locks/kitchen", "O2"), "--seconds", "600")
		}, live: true, want: []string{"mutex oven", `held mostly by cook-\d`, `in (bake|pause_us|prog_spin)`, `wanted in bake`}, rows: `^bake$`},
		{name: "gil", cmd: script("python3.11", "python/gil.py"), ready: "fighting",
			want: []string{"Python GIL", `held mostly by Thread-\d`, `in (deep|JSONEncoder|matching|numbers|generating|sub)`}, rows: `^(deep|matching|numbers|generating|sub)$`, own: `^_?Py[A-Z_]`},
		{name: "go", cmd: func(t *testing.T) *exec.Cmd { return exec.Command(testprog.Build(t, "go/slow", "default")) }, ready: "serving",
			want: []string{`main\.reportHandler`, `sync\.Mutex in main\.(health|report)Handler`, `goroutines? waited`}},
		{name: "node", cmd: script("node", "node/slow.js"), ready: "serving", live: true, want: []string{"renderReport", "slowReportHandler"}},
		{name: "asyncio", cmd: script("python3.11", "python/slowtask.py"), ready: "serving", want: []string{"slow_report_task", "kept its thread busy", "crunch_report"}, rows: `crunch_report`, own: `^_?Py[A-Z_]`},
		{name: "java", cmd: func(t *testing.T) *exec.Cmd {
			cmd := exec.Command(testprog.Tool(t, "java17"), "-Xmx64m", "-cp", testprog.JavaClasses(t, "Convoy"), "Convoy", "600")
			cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=")
			return cmd
		}, want: []string{`java\.lang\.Object monitor`, `held mostly by worker-\d`, `Convoy\.(work|handle)`}, rows: `Convoy\.(work|handle)`},
		{name: "redis", cmd: func(t *testing.T) *exec.Cmd {
			return exec.Command(testprog.Tool(t, "redis"), "--port", "0", "--unixsocket", filepath.Join(dir, "redis.sock"), "--save", "", "--appendonly", "no")
		}, more: func(t *testing.T) {
			cli := func(args ...string) *exec.Cmd {
				cmd := exec.Command(testprog.Tool(t, "redis-cli"), append([]string{"-s", filepath.Join(dir, "redis.sock")}, args...)...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				return cmd
			}
			for begin := time.Now(); cli("eval", "for i=1,20000 do redis.call('rpush','biglist',tostring((i*7919)%20000)) end", "0").Run() != nil; {
				if time.Since(begin) > time.Minute {
					t.Fatal("redis-server does not answer")
				}
			}
			load := cli("-r", "100000000", "sort", "biglist", "alpha", "limit", "0", "10")
			load.Stdout = io.Discard
			if err := load.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = load.Process.Kill(); _ = load.Wait() })
		}, want: []string{`sort(Command|Compare)|compareStringObjects`}, not: []string{`bio_`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "mutex" && c.name != "go" {
				testprog.Whole(t, "programs in C and Go")
			}
			p := testprog.StartCmd(t, c.cmd(t))
			if c.ready != "" {
				p.Line(c.ready)
			}
			if c.more != nil {
				c.more(t)
			}
			pid := fmt.Sprint(p.PID)
			f := firstCase{Name: c.name, File: filepath.Join(dir, c.name+".sliver"), Want: c.want, Not: c.not, Rows: c.rows, Runtime: c.own}
			recordEnough(t, dir, 150, 4*time.Second, "-p", pid, "-i", "5ms", "--max-overhead", "0", "-o", f.File)
			looks := []firstCase{f}
			if c.live {
				f.Name, f.PID, f.File = c.name+"-live", p.PID, filepath.Join(dir, c.name+"-live.sliver")
				looks = append(looks, f)
			}
			checkFirst(t, looks)
			cases = append(cases, looks...)
		})
	}
	if !t.Failed() && len(cases) == 0 {
		t.Fatal("no program was looked at")
	}
}

// checkFirst runs web/page/test/first.mjs.
func checkFirst(t *testing.T, cases []firstCase) {
	t.Helper()
	list, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	out := runPage(t, "first.mjs", bin, string(list))
	if strings.Count(out, "ok   ") != len(cases) {
		t.Fatal(out)
	}
	t.Log(out)
}

// runPage runs a script of web/page/test in Chromium: node SCRIPT PROGRAM CHROMIUM PICTURES ARGS….
func runPage(t *testing.T, script, program string, args ...string) string {
	t.Helper()
	return runBrowser(t, "chromium", script, program, args...)
}

func runBrowser(t *testing.T, browser, script, program string, args ...string) string {
	t.Helper()
	all := append([]string{filepath.Join("test", script), program, testprog.Tool(t, browser), cmp.Or(os.Getenv("SLIVER_PICTURES"), "-")}, args...)
	cmd := exec.CommandContext(t.Context(), testprog.Tool(t, "node"), all...)
	cmd.Dir = filepath.Join(testprog.Root(t), "web", "page")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok   ") {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// TestShareFile writes a recording as one HTML file and opens it in two browsers without a network; the
// second also opens the page that sliver serves.
func TestShareFile(t *testing.T) {
	testprog.Whole(t, "TestPage of package web has the same page from a server")
	testprog.Need(t, "ptrace", "node", "chromium", "firefox", "npm")
	dir := t.TempDir()
	p := testprog.StartCmd(t, exec.Command(testprog.Build(t, "locks/kitchen", "O2"), "--seconds", "600"))
	recordEnough(t, dir, 50, 3*time.Second, "-p", pidOf(p), "-i", "5ms", "--max-overhead", "0", "-o", "run.sliver")
	if r := sliver(t, dir, "export", "run.sliver", "-o", "run.html"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	html := filepath.Join(dir, "run.html")
	runPage(t, "share.mjs", "-", html)
	out := runBrowser(t, "firefox", "firefox.mjs", bin, html, filepath.Join(dir, "run.sliver"))
	if n := strings.Count(out, "ok   Firefox"); n != 2 {
		t.Errorf("Firefox opened %d of 2 pages:\n%s", n, out)
	}
}

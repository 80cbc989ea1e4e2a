package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sliverprof/sliver/watch/control"
)

// TestWatchBadInput: errors are reported at the start, in one line.
func TestWatchBadInput(t *testing.T) {
	p := spin(t)
	pid := pidOf(p)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	conf := func(text string) string {
		path := filepath.Join(t.TempDir(), "watch.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"watch", 2, "give one of -p PID, --name PATTERN, --unit NAME, --cgroup PATH or -- CMD"},
		{"watch -p " + pid + " --name x", 2, "give one of"},
		{"watch -p " + pid + " x", 2, `unexpected "x"`},
		{"watch -p 0", 2, "invalid PID"},
		{"watch -p 4194303", 1, "no process 4194303"},
		{"watch -p " + pid + " --stall 5", 2, `stall "5": invalid time "5" (examples: 100ms, 5s)`},
		{"watch -p " + pid + " --slow f", 2, "FUNCTION>TIME"},
		{"watch -p " + pid + " --cpu 90", 2, "write 90% for percent"},
		{"watch -p " + pid + " --cpu 90% --no-triggers", 2, "choose one"},
		{"watch -p " + pid + " --on-crash never", 2, "write yes or no"},
		{"watch -p " + pid + " --keep 1ms", 2, "use 1s to 24h"},
		{"watch -p " + pid + " --keep-bytes 5", 2, "use 1MiB to 64GiB"},
		{"watch -p " + pid + " --keep-bytes x", 2, `invalid size "x" (example: 64MiB)`},
		{"watch -p " + pid + " -o pftrace", 2, "invalid file extension"},
		{"watch -p " + pid + " -o .frob", 2, ".pftrace"},
		{"watch -p " + pid + " --dir /nonexistent", 1, "is not a directory"},
		{"watch -p " + pid + " --ring-file /nonexistent", 1, "is not a directory"},
		{"watch -p " + pid + " --log xml", 2, "text, json"},
		{"watch -p " + pid + " --as a/b", 2, "file's name"},
		{"watch -p " + pid + " --webhook example.org/hook", 1, "invalid web hook address"},
		{"watch -p " + pid + " --http 5", 2, "invalid listen address"},
		{"watch -p " + pid + " --http 0.0.0.0:0", 2, "choose a token with --http-token or $SLIVER_HTTP_TOKEN"},
		{"watch -p " + pid + " --http-token x", 2, "add --http"},
		{"watch -p " + pid + " --cpu 500%", 2, "add of=process"},
		{"watch -p " + pid + " --cpu 100%,of=thread", 2, "add of=process"},
		{"watch -p " + pid + " --cpu 900000%,of=process", 2, "out of range"},
		{"watch -p " + pid + " --keep 30", 2, "a time needs its unit: write 30s or 30ms"},
		{"watch -p -5", 2, "invalid PID"},
		{"watch -5", 2, "-5 is not a PID, TID or flag"},
		{"watch -p " + pid + " -t nosuch", 1, `no thread of process ` + pid + ` matches "nosuch"`},
		{"watch --name [", 2, "cannot be read"},
		{"watch -p " + pid + " --config /nonexistent", 1, "no such file"},
		{"watch -p " + pid + " --config " + conf("frob: 1\n"), 1, `line 1: unknown setting "frob"`},
		{"watch -p " + pid + " -t nosuch --config " + conf("name: frob\n"), 1, `no thread of process ` + pid + ` matches "nosuch"`}, // -p wins
		{"watch -p " + pid + " --config " + conf("keep: 1s\nstall: 5s\n"), 1, "line 2: unknown setting \"stall\"; triggers go into the list"},
		{"watch -p " + pid + " --config " + conf("keep: x\n"), 1, "line 1: keep:"},
		{"watch -p " + pid + " --config " + conf("triggers:\n- stall: 5\n"), 1, "line 2: stall"},
		{"dump", 1, "no recorder of yours is running"},
		{"dump a b", 2, "one recorder or process"},
		{"recover", 2, "one ring file"},
		{"recover /nonexistent/x.ring", 1, "no such file"},
		{"recover /bin/sh -o x.sliver", 1, "not a ring file"},
		{"recover x.ring -o x.pftrace", 2, "ends in .sliver"},
		{"ls /nonexistent", 1, "no such file"},
	} {
		dir := t.TempDir()
		r := sliver(t, dir, strings.Fields(c.args)...)
		lines := strings.Split(strings.TrimSpace(r.errors), "\n")
		if last := lines[len(lines)-1]; r.status != c.status || !strings.HasPrefix(last, "sliver: ") || !strings.Contains(last, c.says) {
			t.Errorf("sliver %s: status %d, %q; want %d and %q", c.args, r.status, r.errors, c.status, c.says)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("sliver %s: left %v behind", c.args, left)
		}
	}
}

// status polls the output of 'sliver ls' until want is satisfied.
func status(t *testing.T, dir string, want func([]control.Status) bool) []control.Status {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(2 * time.Minute); ; <-tick.C {
		var all []control.Status
		r := sliver(t, dir, "ls", "--json")
		if err := json.Unmarshal([]byte(r.out), &all); err != nil {
			t.Fatalf("%v: %q %q", err, r.out, r.errors)
		}
		if want(all) {
			return all
		}
		if time.Now().After(limit) {
			t.Fatalf("it waits in vain: %+v", all)
		}
	}
}

// TestWatchDumpRecover covers the whole cycle: watch, ls, all kinds of dumps, a kill, and
// recovery by hand and by the next watch.
func TestWatchDumpRecover(t *testing.T) {
	p := spin(t)
	run := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", run)
	dir := t.TempDir()
	watching := func(all []control.Status) bool {
		return len(all) == 1 && len(all[0].Targets) == 1 && all[0].Targets[0].Samples > 30
	}
	w := slivercmd(t, dir, "watch", "-p", pidOf(p), "--no-triggers", "--as", "one")
	var log bytes.Buffer
	w.Stderr = &log
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	s := status(t, dir, watching)
	ring := s[0].Targets[0].RingFile
	if s[0].Name != "one" || s[0].PID != w.Process.Pid || filepath.Dir(ring) != filepath.Join(run, "sliver") {
		t.Errorf("%+v", s)
	}
	if r := sliver(t, dir, "recover", ring); r.status != 1 || !strings.Contains(r.errors, "use 'sliver dump'") {
		t.Errorf("recover of a living recorder: %+v", r)
	}
	r := sliver(t, dir, "dump", pidOf(p))
	if r.status != 0 || !strings.Contains(r.out, "-request.sliver") {
		t.Fatalf("dump: %+v", r)
	}
	checkDump(t, dir, strings.TrimSpace(r.out))
	if r := sliver(t, dir, "dump", "one", "-o", "mine.sliver"); r.status != 0 {
		t.Fatalf("dump -o: %+v", r)
	}
	checkDump(t, dir, filepath.Join(dir, "mine.sliver"))
	if err := w.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	s = status(t, dir, func(all []control.Status) bool { return len(all) == 1 && len(all[0].Dumps) == 2 })
	if d := s[0].Dumps[1]; d.Reason != "signal" || !strings.Contains(d.Files[0], "-signal.sliver") {
		t.Errorf("%+v", d)
	}
	if r := sliver(t, dir, "ls"); !strings.Contains(r.out, "recorder one, process") || !strings.Contains(r.out, "-signal.sliver") {
		t.Errorf("%+v", r)
	}
	if err := w.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = w.Wait()
	if all := status(t, dir, func(all []control.Status) bool { return len(all) == 0 }); all == nil {
		t.Error("ls shows a dead recorder")
	}
	if r := sliver(t, dir, "recover", "-o", "last.sliver", ring); r.status != 0 || !strings.Contains(r.errors, "of spin ("+pidOf(p)+")") {
		t.Fatalf("recover: %+v", r)
	}
	checkDump(t, dir, filepath.Join(dir, "last.sliver"))
	// The next one recovers it by itself.
	w = slivercmd(t, dir, "watch", "-p", pidOf(p), "--as", "two")
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	status(t, dir, watching)
	got, err := filepath.Glob(filepath.Join(dir, "*-recovered.sliver"))
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	checkDump(t, dir, got[0])
	// It lists the dumps in its folder, including those of the killed recorder.
	if r := sliver(t, dir, "ls"); strings.Count(r.out, "-signal.sliver") != 1 || strings.Count(r.out, "-request.sliver") != 1 || !strings.Contains(r.out, got[0]) {
		t.Errorf("%+v", r)
	}
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(); err != nil {
		t.Errorf("watch ended with %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(run, "sliver")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	free(t, p.PID)
}

// checkDump exports a dump and looks for the target's functions.
func checkDump(t *testing.T, dir, path string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "x.folded")
	if r := sliver(t, dir, "export", path, "-o", out); r.status != 0 {
		t.Fatalf("export %s: %+v", path, r)
	}
	b, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(b), "spin_29;spin_28") || !strings.Contains(string(b), "spin_0") {
		t.Errorf("%s: %.300s, %v", path, b, err)
	}
}

// TestWatchCommand: a watched command handles its own signals, and crashes are kept.
func TestWatchCommand(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	spin(t) // uses CPU time
	dir := t.TempDir()
	r := sliver(t, dir, "watch", "--", "/bin/sh", "-c", "exit 7")
	if r.status != 7 {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		triggers []string
		dumps    int
	}{
		{nil, 1},
		{[]string{"--on-crash", "yes"}, 1},
		{[]string{"--slow", "f>1s"}, 1}, // it is kept whatever other triggers are given
		{[]string{"--slow", "f>1s", "--on-crash", "no"}, 0},
		{[]string{"--no-triggers"}, 0},
	} {
		dir := t.TempDir()
		args := append(append([]string{"watch", "--dir", dir}, c.triggers...),
			"--", "/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; kill -SEGV $$")
		r := sliver(t, dir, args...)
		got, err := filepath.Glob(filepath.Join(dir, "sh-*-crash.sliver"))
		if r.status != 128+int(syscall.SIGSEGV) || err != nil || len(got) != c.dumps {
			t.Errorf("%v: status %d, %v: %s", c.triggers, r.status, fmt.Sprint(got, err), r.errors)
		}
	}
}

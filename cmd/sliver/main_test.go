package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
)

// TestBadInput: one clear line on standard error, the right status, and no output file.
func TestBadInput(t *testing.T) {
	p := spin(t)
	pid := pidOf(p)
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"frob", 2, `unknown command "frob"`},
		{"recrod -p 1", 2, `unknown command "recrod"; did you mean record?`},
		{"record --treads main", 2, "unknown flag: --treads; did you mean -t, --threads LIST?"},
		{"record -F 99", 2, "unknown flag: -F; did you mean -r, --rate HZ?"},
		{"record --freq 99", 2, "did you mean -r, --rate HZ?"},
		{"record -p " + pid + " -r 0", 2, `invalid rate "0" (example: 100)`},
		{"record -p " + pid + " -r 99 -i 1ms", 2, "both --interval and --rate given; choose one"},
		{"record x", 2, `unexpected "x"; give a PID, or a command after --`},
		{"record", 2, "sliver record PID"},
		{"record", 2, "sliver record -- COMMAND"},
		{"record -p abc", 2, `invalid PID "abc" ('pgrep -l abc' finds the PID of a program)`},
		{"record -p 1.5", 2, `invalid PID "1.5"`},
		{"record -p -d 1s", 2, `missing PID before "-d"`},
		{"record --pid= -d 1s", 2, "the PID is empty: is the program running?"},
		{"record -p 12 13 x", 2, `unexpected "x"; a command goes after --`},
		{"record 12 13 --trace main", 2, "--trace is for one process"},
		{"record 12 -- ls", 2, `unexpected "12" before --`},
		{"watch --name x --cgroup y -p 12", 2, "give one of -p PID"},
		{"trace -p 12 -p 13 main", 2, "--pid given twice"},
		{"record -p 12, -d 1s", 2, "the PID is empty"},
		{"record --children --no-children -- true", 2, "contradict each other"},
		{"record --no-children -p 12", 2, "--no-children is for a command"},
		{"record --max-processes 0 -- true", 2, "max-processes: 0 is out of range"},
		{"record --max-cpu=-1% -p 1", 2, "max-cpu: -1% is out of range; use 0% (no limit) or more"},
		{"record --name [ -d 1s", 2, "the pattern \"[\" cannot be read"},
		{"record -p -5", 2, `invalid PID "-5"`},
		{"record -p 0", 2, "invalid PID"},
		{"record -p 1 x", 2, `unexpected "x"`},
		{"record -p 1 -- ls", 2, "both a process and a command"},
		{"record --frob", 2, "unknown flag: --frob"},
		{"record -p 4194303", 1, "no process 4194303"},
		{"record -p " + pid + " -i 0", 2, "interval: 0s is out of range; use 100µs"},
		{"record -p " + pid + " -i 1us", 2, "out of range"},
		{"record -p " + pid + " --jitter 60%", 2, "out of range"},
		{"record -p " + pid + " --samplers 0", 2, "samplers: 0 is out of range"},
		{"record -p " + pid + " --max-overhead 100%", 2, "out of range"},
		{"record -p " + pid + " -d -1s", 2, "negative"},
		{"record -p " + pid + " --stop-policy never", 2, "auto, always, running"},
		{"record -p " + pid + " --engine fast", 2, `engine: "fast" is unknown; use auto, ptrace, perf or kernel`},
		{"record -p " + pid + " -t nosuch", 1, `no thread of process ` + pid + ` matches "nosuch"; there are: 1=spin`},
		{"record -p " + pid + " -t /(/", 2, "threads:"},
		{"record -p " + pid + " -o x.foo", 2, ".pftrace"},
		{"record -p " + pid + " -o x --format foo", 2, "perfetto"},
		{"record -p " + pid + " -o -", 2, "--format"},
		{"record -p " + pid + " -o - --format pprof --json", 2, "standard output"},
		{"record -p " + pid + " -o . --format pprof", 1, "is a directory"},
		{"record -p " + pid + " -o " + filepath.Join(t.TempDir(), "missing", "x.sliver"), 1, "no such file or directory"},
		{"record -- /nonexistent/program", 127, "cannot start /nonexistent/program: no such file or directory"},
		{"record -- nonexistent-program", 127, "cannot start nonexistent-program"},
		{"record -- /etc/passwd", 126, "cannot start /etc/passwd: permission denied"},
		{"record -- /", 126, "cannot start /"},
		{"trace -f f -- /nonexistent/program", 127, "cannot start /nonexistent/program"},
		{"io -- /nonexistent/program", 127, "cannot start /nonexistent/program"},
		{"watch -- /nonexistent/program", 127, "cannot start /nonexistent/program"},
		{"export", 2, "give one recording"},
		{"export a.sliver", 2, "no output is given"},
		{"export a.sliver -o x.pb.gz", 1, "cannot open a.sliver: no such file"},
		{"export /bin/sh -o x.pb.gz", 1, "not a sliver recording, and not a Nanoscope, Chrome or pprof file"},
		{"export a.sliver -o x.pb.gz --range 1s", 2, `invalid range "1s" (examples: 1.5s..3s`},
		{"export a.sliver -o x.pb.gz --range 1..2s", 2, `invalid time "1"`},
		{"export a.sliver -o x.pb.gz --range 3s..2s", 2, "ends before it begins"},
		{"export a.sliver -o x.pb.gz -t a,,b", 2, "threads: an empty name"},
		{"export a.sliver -o x.pb.gz --focus a(", 2, "focus: error parsing regexp"},
		{"export a.sliver -o x.sliver --focus a", 2, "copied whole"},
		{"record -p " + pid + " --web=8080", 2, `web: invalid listen address "8080": write HOST:PORT`},
		{"record -p " + pid + " --web 127.0.0.1:99999", 2, "a number up to 65535"},
		{"record -p " + pid + " --web=", 2, "write HOST:PORT"},
		{"record -p " + pid + " --web=0.0.0.0:0", 2, "choose a token with --web-token"},
		{"record -p " + pid + " --web 192.0.2.1:0", 2, "can be reached by other machines"},
		{"record -p " + pid + " --web --web-token short", 2, "can be guessed; use at least 16"},
		{"record -p " + pid + " --web --web-token 0123456789abcde/", 2, "letters, digits, - and _"},
		{"record -p " + pid + " --web --web-token=", 2, "web-token: it is empty"},
		{"record -p " + pid + " --open", 2, "--open needs the page: add --web"},
		{"record -p " + pid + " --web-token 0123456789abcdef", 2, "add --web"},
		{"record -p " + pid + " --web 192.0.2.1:1 --web-token 0123456789abcdef", 1, "listen for the page: "},
		{"record -p " + pid + " --metrics=", 2, `metrics: invalid listen address ""`},
		{"record -p " + pid + " --metrics abc", 2, `metrics: invalid listen address "abc"`},
		{"watch --metrics abc --name x --dir .", 2, `metrics: invalid listen address "abc"`},
		{"record -p " + pid + " -o a.sliver -o ./a.sliver", 2, "./a.sliver is given twice"},
		{"export a.sliver -o x.pb.gz -o x.pb.gz", 2, "x.pb.gz is given twice"},
		{"view", 2, "give one recording"},
		{"view a.sliver b.sliver", 2, "after --compare"},
		{"view a.sliver", 1, "cannot open a.sliver: no such file"},
		{"view /bin/sh", 1, "not a sliver recording"},
		{"view /tmp", 1, "not a regular file"},
		{"view a.sliver --web 10.0.0.1:0", 2, "choose a token with --web-token"},
		{"view a.sliver --web=", 2, "write HOST:PORT"},
		{"record -p " + pid + " --otlp localhost:4318", 2, `otlp: invalid address "localhost:4318" (example: http://localhost:4318)`},
		{"record -p " + pid + " --parca ftp://x", 2, "parca: "},
		{"record -p " + pid + " --window 5s", 2, "add --otlp, --pyroscope or --parca"},
		{"record -p " + pid + " --otlp http://x --window 5ms", 2, "window: 5ms is out of range"},
		{"record -p " + pid + " --otlp http://x --spool-max 0", 2, "spool-max: 0 is out of range"},
		{"record -p " + pid + " --otlp http://x --resource a", 2, "write NAME=VALUE"},
		{"record -p " + pid + " --otlp http://x --push-header a", 2, "write 'NAME: VALUE'"},
		{"record -p " + pid + " --otlp http://x --spool /proc/x", 1, "spool: "},
		{"sql", 2, "give a recording and a question"},
		{"sql a.sliver select 1", 2, "give a recording and a question"},
		{"sql a.sliver x", 1, "cannot open a.sliver: no such file"},
		{"sql a.sliver x --format xml", 2, "table, csv, json"},
		{"sql a.sliver", 2, "the question is empty"},
		{"sql a.sliver a;b", 2, "one question at a time"},
		{"threads", 2, "a process number"},
		{"threads x", 2, "invalid PID"},
		{"doctor x", 2, "invalid PID"},
		{"completion tcsh", 2, "use bash, zsh or fish"},
		{"version x", 2, "no arguments"},
		{"demo x", 2, "no arguments"},
	} {
		dir := t.TempDir()
		r := sliver(t, dir, strings.Fields(c.args)...)
		if r.status != c.status || !strings.Contains(r.errors, c.says) || !strings.HasPrefix(r.errors, "sliver: ") {
			t.Errorf("sliver %s: status %d, %q; want %d and %q", c.args, r.status, r.errors, c.status, c.says)
		}
		if strings.Count(r.errors, "\n") != 1 || r.out != "" {
			t.Errorf("sliver %s: more than one line: %q, %q", c.args, r.errors, r.out)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("sliver %s: left %v behind", c.args, left)
		}
	}
	free(t, p.PID)
}

func TestRefusals(t *testing.T) {
	testprog.Need(t, "ptrace", "root")
	p := spin(t)
	kthread := sliver(t, t.TempDir(), "record", "-p", "2", "-d", "1s")
	if _, err := os.Stat("/proc/2"); err == nil && (kthread.status != 1 || !strings.Contains(kthread.errors, "kernel thread")) {
		t.Errorf("kernel thread: %+v", kthread)
	}
	// A process of another user.
	cmd := slivercmd(t, "/", "record", "-p", pidOf(p), "-d", "1s", "-o", "/dev/null", "--format", "pprof")
	bin := copyFor(t, cmd.Path)
	cmd.Path = bin
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	out, _ := cmd.CombinedOutput()
	if s := string(out); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(s, "user") || strings.Count(s, "\n") != 1 {
		t.Errorf("other user's process: status %d, %q", cmd.ProcessState.ExitCode(), s)
	}
	// A zombie.
	z := exec.Command("true")
	if err := z.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", z.Process.Pid))
		return bytes.Contains(b, []byte(") Z "))
	})
	if r := sliver(t, t.TempDir(), "record", "-p", fmt.Sprint(z.Process.Pid)); r.status != 1 || !strings.Contains(r.errors, "zombie") {
		t.Errorf("zombie: %+v", r)
	}
	_ = z.Wait()
}

// TestEveryFormat records a process once into all formats, and exports the same formats from
// the recording.
func TestEveryFormat(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	r := recordEnough(t, dir, 10, 400*time.Millisecond, "-p", pidOf(p), "-o", "r.sliver", "-o", "r.pftrace", "-o", "r.pb.gz",
		"-o", "r.nanoscope.txt", "-o", "second.sliver")
	free(t, p.PID)
	var sum map[string]any
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil {
		t.Fatalf("%v: %q", err, r.out)
	}
	for _, k := range []string{"samples", "threads", "late", "truncated", "timed_out", "overwritten", "tasks_lost", "stops", "stopped_share",
		"pause_ns", "duration_ns", "files"} {
		if _, ok := sum[k]; !ok {
			t.Errorf("the summary has no %s: %s", k, r.out)
		}
	}
	pause := sum["pause_ns"].(map[string]any)
	for _, k := range []string{"mean", "p50", "p90", "p99", "p999", "max"} {
		if v, ok := pause[k].(float64); !ok || v <= 0 {
			t.Errorf("pause_ns.%s is %v", k, pause[k])
		}
	}
	if n := sum["samples"].(float64); n < 1 {
		t.Errorf("%v samples", n)
	}
	for _, f := range sum["files"].([]any) {
		f := f.(map[string]any)
		fi, err := os.Stat(filepath.Join(dir, f["path"].(string)))
		if err != nil || float64(fi.Size()) != f["bytes"].(float64) {
			t.Errorf("file %v: %v", f, err)
		}
	}
	a, err1 := os.ReadFile(filepath.Join(dir, "r.sliver"))
	b, err2 := os.ReadFile(filepath.Join(dir, "second.sliver"))
	if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Errorf("the second recording is not the first one (%v, %v)", err1, err2)
	}
	// The same content from the recording alone.
	if r := sliver(t, dir, "export", "r.sliver", "-o", "again.pb.gz", "-o", "again.pftrace", "-o", "again.nanoscope.txt"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	for _, ext := range []string{".pftrace", ".nanoscope.txt"} {
		a, err1 := os.ReadFile(filepath.Join(dir, "r"+ext))
		b, err2 := os.ReadFile(filepath.Join(dir, "again"+ext))
		if err1 != nil || err2 != nil || len(a) == 0 || !bytes.Equal(a, b) {
			t.Errorf("%s: export and record differ (%v, %v)", ext, err1, err2)
		}
	}
	f, err := os.Open(filepath.Join(dir, "again.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	prof, err := profile.Parse(f)
	if err != nil || prof.CheckValid() != nil {
		t.Fatalf("profile: %v", err)
	}
	if !strings.Contains(prof.String(), "spin") {
		t.Errorf("no function of the program in the profile")
	}
	// Through standard output.
	if r := sliver(t, dir, "export", "r.sliver", "--format", "pprof", "-o", "-"); r.status != 0 || len(r.out) < 100 {
		t.Errorf("to standard output: status %d, %d bytes, %s", r.status, len(r.out), r.errors)
	}
	if hidden, _ := filepath.Glob(filepath.Join(dir, ".*")); len(hidden) > 0 {
		t.Errorf("left behind: %v", hidden)
	}
}

// TestInterrupt: Ctrl-C and SIGTERM end a recording properly.
func TestInterrupt(t *testing.T) {
	p := spin(t)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		cmd := slivercmd(t, dir, "record", "-p", pidOf(p), "-i", "1ms", "-o", "x.sliver", "--json")
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		growing(t, dir)
		_ = cmd.Process.Signal(sig)
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), `"reason": "interrupted"`) {
			t.Errorf("%v: %v, %s", sig, err, out.String())
		}
		if _, err := os.Stat(filepath.Join(dir, "x.sliver")); err != nil {
			t.Error(err)
		}
		free(t, p.PID)
	}
}

// TestInterruptAgain: the same signal again, at once, does not cut the end of a recording short. timeout(1) sends one to
// the command and one to its process group.
func TestInterruptAgain(t *testing.T) {
	x, now := &ender{}, time.Now()
	for _, c := range []struct {
		sig          syscall.Signal
		after        time.Duration
		first, again bool
	}{{syscall.SIGINT, 0, true, false}, {syscall.SIGINT, time.Millisecond, false, true}, {syscall.SIGTERM, time.Millisecond, false, false}, {syscall.SIGINT, twiceWithin, false, false}} {
		if first, again := x.note(c.sig, now.Add(c.after)); first != c.first || again != c.again {
			t.Errorf("%v after %v: first %v, again %v", c.sig, c.after, first, again)
		}
	}
	timeout, err := exec.LookPath("timeout") // of coreutils
	if err != nil {
		t.Fatal(err)
	}
	p := spin(t)
	for _, sig := range []string{"INT", "TERM"} {
		dir := t.TempDir()
		cmd := slivercmd(t, dir, "record", "-p", pidOf(p), "-i", "1ms", "-o", "x.sliver")
		cmd.Args = append([]string{timeout, "-s", sig, "1", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = timeout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 124 || !strings.Contains(string(out), "wrote    x.sliver") {
			t.Errorf("%s: %v: %s", sig, err, out)
		}
		free(t, p.PID)
	}
}

// TestInterruptTwice: a second signal exits at once. The samples so far are in a readable
// file, even if the first signal had already ended the recording.
func TestInterruptTwice(t *testing.T) {
	p := spin(t)
	for range 3 {
		dir := t.TempDir()
		cmd := slivercmd(t, dir, "record", "-p", pidOf(p), "-i", "1ms", "-o", "x.sliver")
		var out bytes.Buffer
		cmd.Stderr = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		growing(t, dir)
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Process.Signal(syscall.SIGTERM) // a different one: two pending equal signals may be merged
		if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) && cmd.ProcessState.ExitCode() != 128+int(syscall.SIGINT) {
			t.Errorf("%v, %s", err, out.String())
		}
		b, err := os.ReadFile(filepath.Join(dir, "x.sliver"))
		if err != nil {
			t.Fatalf("%v; %s", err, out.String())
		}
		rec, err := trace.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil || len(rec.Threads) == 0 || rec.Count(rec.Threads[0].Seq) == 0 {
			t.Errorf("%v: nothing is in the recording; %s", err, out.String())
		}
		letGo(t, p.PID)
	}
}

// growing waits until a recording in progress has written some of its events.
func growing(t *testing.T, dir string) string {
	t.Helper()
	name := ""
	waitFor(t, func() bool {
		m, _ := filepath.Glob(filepath.Join(dir, ".*.partial"))
		for _, f := range m {
			file, err := os.Open(f)
			if err != nil {
				continue
			}
			fi, _ := file.Stat()
			rec, err := trace.Open(file, fi.Size())
			n := uint64(0)
			if err == nil {
				for _, th := range rec.Threads {
					n += rec.Count(th.Seq)
				}
			}
			file.Close()
			if n > 20 {
				name = f
				return true
			}
		}
		return false
	})
	return name
}

// TestKilled: the file of a killed recorder is readable up to the tear, and the target
// continues.
func TestKilled(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	cmd := slivercmd(t, dir, "record", "-p", pidOf(p), "-i", "1ms", "-o", "x.sliver")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	part := growing(t, dir)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	waitFor(t, func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		return bytes.Contains(b, []byte("TracerPid:\t0\n")) && bytes.Contains(b, []byte("State:\tR"))
	})
	if _, err := os.Stat(filepath.Join(dir, "x.sliver")); err == nil {
		t.Error("something has the final name")
	}
	r := sliver(t, dir, "export", filepath.Base(part), "-o", "x.pb.gz")
	if r.status != 1 || !strings.Contains(r.errors, "is truncated") {
		t.Fatalf("%+v", r)
	}
	f, err := os.Open(filepath.Join(dir, "x.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	prof, err := profile.Parse(f)
	if err != nil || len(prof.Sample) == 0 || !strings.Contains(prof.String(), "spin") {
		t.Errorf("names are not found again: %v, %d samples", err, len(prof.Sample))
	}
}

// TestExportSaysWhatWasLost: a damaged piece of a recording is reported in one line, and is a
// gap at its position: the timeline still begins with the recording. A full disk is reported
// too.
func TestExportSaysWhatWasLost(t *testing.T) {
	p := spin(t)
	dir := t.TempDir()
	recordEnough(t, dir, 10, 300*time.Millisecond, "-q", "-p", pidOf(p), "-i", "1ms", "-o", "x.sliver")
	path := filepath.Join(dir, "x.sliver")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("EVNT"))+40] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r := sliver(t, dir, "report", "x.sliver")
	if r.status != 1 || strings.Count(r.errors, "\n") != 1 || !strings.Contains(r.errors, "pieces of thread") {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"report", "x.sliver"}, {"export", "x.sliver", "-o", "x.folded"}, {"sql", "x.sliver", "select 1"}} {
		lost, accepted := sliver(t, dir, args...), sliver(t, dir, append(args, "--partial")...)
		if lost.status != 1 || accepted.status != 0 || lost.errors == "" || accepted.out != lost.out {
			t.Errorf("%q: %+v, with --partial: %+v", args, lost, accepted)
		}
	}
	_, span, _ := strings.Cut(r.out, "): ")
	span, _, _ = strings.Cut(span, " ")
	if d, err := time.ParseDuration(span); err != nil || d > 10*time.Second {
		t.Errorf("%s of a recording of 300 ms: %v", span, err)
	}
	for _, name := range []string{"/dev/full", "-"} {
		for _, format := range []string{"perfetto", "sliver"} {
			cmd := slivercmd(t, dir, "export", "x.sliver", "-o", name, "--format", format)
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer full.Close()
			var said strings.Builder
			cmd.Stdout, cmd.Stderr = full, &said
			err = cmd.Run()
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			if last := lines[len(lines)-1]; err == nil || len(lines) != 2 || !strings.Contains(last, "no space left") || strings.Count(last, "write") != 1 {
				t.Errorf("%s to %s: %v: %q", format, name, err, said.String())
			}
		}
	}
}

// An empty recording name, from an unset variable, gets a specific error.
func TestEmptyRecording(t *testing.T) {
	for _, args := range [][]string{{"report", ""}, {"export", "", "-o", "x.folded"}, {"sql", "", "select 1"}, {"view", ""}} {
		if r := sliver(t, t.TempDir(), args...); r.status != 1 || r.errors != "sliver: the recording's name is empty\n" {
			t.Errorf("%q: status %d, %q", args, r.status, r.errors)
		}
	}
}

// A command whose output cannot be written fails.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"threads", "-d", "0s", pidOf(spin(t))}, {"version"}, {"doctor"}, {"help"}, {"record", "--help"}, {"completion", "bash"}} {
		cmd := slivercmd(t, t.TempDir(), args...)
		var errs strings.Builder
		cmd.Stdout, cmd.Stderr = full, &errs
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 ||
			!strings.Contains(errs.String(), "no space left") || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q: %v: %q", args, err, errs.String())
		}
	}
}

// A flag with an empty value is an error, and not treated as omitted.
func TestEmptyFlags(t *testing.T) {
	for _, args := range [][]string{{"export", "x.sliver", "-o", "x.pb.gz", "--format", ""}, {"stack", "--kinds=", "1"}, {"record", "-p", "1", "--threads", ""}} {
		if r := sliver(t, t.TempDir(), args...); r.status != 2 || !strings.Contains(r.errors, " is empty: set a value, or omit the flag") || strings.Count(r.errors, "\n") != 1 {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// TestFullDisk: the recording ends with a one-line error that names a complete recording of the first part, with
// names, beside the output.
func TestFullDisk(t *testing.T) {
	testprog.Need(t, "root")
	p := spin(t)
	for _, output := range []string{"x.sliver", "x.pftrace"} {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
			t.Skipf("no tmpfs can be mounted here: %v", err)
		}
		defer syscall.Unmount(dir, syscall.MNT_DETACH)
		r := sliver(t, dir, "record", "-q", "-p", pidOf(p), "-i", "100us", "--max-overhead", "0", "-d", "100s", "-o", output)
		if r.status != 1 || !strings.Contains(r.errors, "the disk is full: no space left on device; x.sliver has the first ") || strings.Count(r.errors, "\n") != 1 {
			t.Errorf("%+v", r)
		}
		var names []string
		files, err := os.ReadDir(dir)
		for _, f := range files {
			names = append(names, f.Name())
		}
		if err != nil || !slices.Equal(names, []string{"x.sliver"}) {
			t.Errorf("left %v, error %v", names, err)
		}
		if rep := sliver(t, dir, "report", "x.sliver"); rep.status != 0 || !strings.Contains(rep.out, "a sample every 100µs") || rep.errors != "" {
			t.Errorf("%+v", rep)
		}
		free(t, p.PID)
	}
}

func TestThreads(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "120", "--threads", "3", "--wait-go")
	p.Ready()
	p.Go()
	waitFor(t, func() bool {
		m, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", p.PID))
		return len(m) >= 3
	})
	r := sliver(t, t.TempDir(), "threads", pidOf(p))
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.status != 0 || len(lines) < 4 || !strings.Contains(lines[0], "TID  POS  NAME") || !strings.Contains(lines[1], pidOf(p)) {
		t.Fatalf("%+v", r)
	}
	var rows []map[string]any
	r = sliver(t, t.TempDir(), "threads", "--json", pidOf(p))
	if err := json.Unmarshal([]byte(r.out), &rows); err != nil || rows[0]["position"].(float64) != 1 || int(rows[0]["tid"].(float64)) != p.PID {
		t.Fatalf("%v: %s", err, r.out)
	}
}

func TestHelpAndCompletion(t *testing.T) {
	for _, c := range commands() {
		r := sliver(t, t.TempDir(), c.name, "--help")
		if r.status != 0 || !strings.Contains(r.out, "Usage: sliver "+c.name) || r.errors != "" {
			t.Errorf("%s --help: %+v", c.name, r)
		}
		if c.name != "version" && !strings.Contains(r.out, "Examples:") {
			t.Errorf("%s --help shows no examples", c.name)
		}
	}
	for _, sh := range []string{"bash", "zsh", "fish"} {
		r := sliver(t, t.TempDir(), "completion", sh)
		if r.status != 0 || !strings.Contains(r.out, "sliver") {
			t.Errorf("%s: %+v", sh, r)
		}
		if _, err := exec.LookPath(sh); err != nil || sh == "zsh" {
			continue
		}
		cmd := exec.Command(sh, "-n")
		cmd.Stdin = strings.NewReader(r.out)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s does not read its script: %v\n%s", sh, err, out)
		}
	}
}

func TestDoctor(t *testing.T) {
	testprog.Need(t, "ptrace")
	r := sliver(t, t.TempDir(), "doctor")
	if r.status != 0 || !strings.Contains(r.out, "can be sampled") {
		t.Errorf("%+v", r)
	}
	p := spin(t)
	if r = sliver(t, t.TempDir(), "doctor", pidOf(p)); r.status != 0 || !strings.Contains(r.out, "stops took") {
		t.Errorf("%+v", r)
	}
	if r = sliver(t, t.TempDir(), "doctor", "4194303"); r.status != 1 || !strings.Contains(r.out, "FAIL") {
		t.Errorf("%+v", r)
	}
}

// TestDemo: the files of the demo can be opened.
func TestDemo(t *testing.T) {
	testprog.Need(t, "ptrace")
	dir := t.TempDir()
	r := sliver(t, dir, "demo", "-d", "500ms")
	if r.status != 0 {
		t.Fatalf("%+v", r)
	}
	f, err := os.Open(filepath.Join(dir, "sliver-demo.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	prof, err := profile.Parse(f)
	if err != nil || !strings.Contains(prof.String(), "main.") {
		t.Fatalf("demo's profile: %v", err)
	}
}

// TestPick: in a terminal, sliver record without a process asks for one.
func TestPick(t *testing.T) {
	p := spin(t)
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("no script(1) to make a terminal")
	}
	dir := t.TempDir()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, "-qec", bin+" record -t main -d 200ms -o x.sliver", "/dev/null")
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out safeBuffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return strings.Contains(out.String(), "or nothing to leave") })
	n := ""
	for _, l := range strings.Split(out.String(), "\n") {
		if f := strings.Fields(l); len(f) > 2 && f[1] == pidOf(p) {
			n = f[0]
		}
	}
	if n == "" {
		fmt.Fprintln(in)
		_ = cmd.Wait()
		t.Skipf("more than a screenful of busier processes on this machine:\n%s", out.String())
	}
	fmt.Fprintln(in, n)
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "x.sliver")); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
}

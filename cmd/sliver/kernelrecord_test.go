package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session"
)

// recordWoken records the program wakes with context switches.
func recordWoken(t *testing.T, dir string, flags ...string) result {
	t.Helper()
	testprog.Need(t, "gcc", "ptrace")
	cmd := slivercmd(t, dir, append(append([]string{"record"}, flags...), "--", testprog.Build(t, "c/wakes", "O2"), "40", "5000")...)
	cmd.Stdin = strings.NewReader("\n\n") // it begins at once, and ends when it is done
	return runCmd(t, cmd)
}

// TestRecordKernel records context switches. SQL and the report have the waker of each wait as measured.
func TestRecordKernel(t *testing.T) {
	if why := session.TrySwitches(); why != "" {
		testprog.Missing(t, "bpf", why)
	}
	dir := t.TempDir()
	r := recordWoken(t, dir, "--kernel=on", "--no-children", "-o", "run.sliver")
	if r.status != 0 || !strings.Contains(r.errors, "context switches: ") || !strings.Contains(r.errors, " recorded exactly") {
		t.Fatalf("%+v", r)
	}
	q := sliver(t, dir, "sql", "run.sliver", `select distinct t.name, s.woken_by from states s join threads t on t.id = s.thread
		where s.exact = 1 and s.state = 'blocked' and s.woken_by is not null and t.name in ('pipe', 'nap', 'child')`, "--format", "csv")
	for _, want := range []string{"pipe,driver (", "nap,a timer (measured)", "child,process outsider ("} {
		if !strings.Contains(q.out, want) {
			t.Errorf("sql lacks %q:\n%s%s", want, q.out, q.errors)
		}
	}
	if q := sliver(t, dir, "sql", "run.sliver", "select count(*) > 10 from states s join threads w on w.tid = s.waker where w.name = 'driver'", "--format", "csv"); !strings.Contains(q.out, "\n1\n") {
		t.Errorf("sql does not join wakers to threads:\n%s%s", q.out, q.errors)
	}
	if r := sliver(t, dir, "report", "run.sliver", "--json"); !strings.Contains(r.out, "(measured)") {
		t.Errorf("the report has no measured waker:\n%.3000s%s", r.out, r.errors)
	}
	if q := sliver(t, dir, "sql", "run.sliver", "select distinct t.name from states s join threads t on t.id = s.thread where s.kernel_stack like '%;vfs_read;%pipe_read%' and s.exact = 1", "--format", "csv"); !strings.Contains(q.out, "\npipe\n") && !strings.Contains(r.errors, "no kernel stacks") {
		t.Errorf("sql has no kernel stack of a pipe's reader:\n%s%s", q.out, q.errors)
	}
	if d := sliver(t, dir, "doctor"); !strings.Contains(d.out, "ok    context switches") {
		t.Errorf("doctor:\n%s", d.out)
	}
}

// TestRecordKernelRefused: without rights, --kernel=auto records states by samples and names the missing rights in
// one line. --kernel=on fails.
func TestRecordKernelRefused(t *testing.T) {
	testprog.Need(t, "ptrace")
	if os.Geteuid() != 0 {
		testprog.Missing(t, "root", "it runs sliver as another user")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		testprog.Missing(t, "setpriv", err.Error())
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	home := publicDir(t, map[string]string{"sliver": bin, "spin": testprog.Build(t, "c/spin", "O2")})
	out := filepath.Join(home, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(out, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		caps, missing string
	}{{"", "missing: CAP_BPF, CAP_PERFMON"}, {"+bpf", "missing: CAP_PERFMON"}, {"+perfmon", "missing: CAP_BPF"}} {
		run := func(args ...string) result {
			cmd := asUser(strings.TrimSuffix(c.caps, ","), append([]string{filepath.Join(home, "sliver")}, args...)...)
			if c.caps == "" {
				cmd = asUser("-bpf", append([]string{filepath.Join(home, "sliver")}, args...)...)
			}
			cmd.Dir, cmd.Env = out, append(os.Environ(), "XDG_CACHE_HOME="+out)
			return runCmd(t, cmd)
		}
		r := run("record", "--kernel=auto", "-o", "run.sliver", "--", filepath.Join(home, "spin"), "--seconds", "1")
		line := ""
		n := 0
		for l := range strings.SplitSeq(r.errors, "\n") {
			if strings.Contains(l, "context switches") {
				line, n = l, n+1
			}
		}
		if r.status != 0 || n != 1 || !strings.Contains(line, c.missing) || !strings.Contains(line, "setcap cap_bpf,cap_perfmon") || strings.Contains(r.errors, "MEMLOCK") {
			t.Errorf("%q: %d lines, %+v", c.caps, n, r)
		}
		if q := run("sql", "run.sliver", "select count(*) > 0, sum(exact) from states", "--format", "csv"); !strings.Contains(q.out, "\n1,0\n") {
			t.Errorf("%q: states by samples: %+v", c.caps, q)
		}
		if r := run("record", "--kernel=on", "-o", "other.sliver", "--", filepath.Join(home, "spin"), "--seconds", "1"); r.status == 0 || !strings.Contains(r.errors, c.missing) || strings.Contains(r.errors, "MEMLOCK") {
			t.Errorf("%q: --kernel=on: %+v", c.caps, r)
		}
		if d := run("doctor"); !strings.Contains(d.out, "note  context switches") || !strings.Contains(d.out, c.missing) {
			t.Errorf("%q: doctor:\n%s", c.caps, d.out)
		}
	}
}

func TestKernelFlag(t *testing.T) {
	if r := sliver(t, t.TempDir(), "record", "--kernel=maybe", "--", "true"); r.status != exitUsage || !strings.Contains(r.errors, `kernel: "maybe" is unknown; use auto, on or off`) {
		t.Errorf("%+v", r)
	}
}

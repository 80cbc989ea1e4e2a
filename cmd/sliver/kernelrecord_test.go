package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

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

// foldedSum adds up the values of folded stacks, and those with a function of the kernel whose name contains a text.
func foldedSum(t *testing.T, text, want string) (all, kernel int64) {
	t.Helper()
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		n, err := strconv.ParseInt(strings.TrimSpace(line[at+1:]), 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all += n
		if _, inner, ok := strings.Cut(line[:at], ";[kernel] "); ok && strings.Contains(inner, want) {
			kernel += n
		}
	}
	return all, kernel
}

// pprofSum is foldedSum for the CPU time in a profile.
func pprofSum(t *testing.T, b []byte, mark, want string) (all, kernel int64) {
	t.Helper()
	p, err := profile.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == "cpu" })
	if at < 0 {
		t.Fatalf("no CPU time: %v", p.SampleType)
	}
	for _, s := range p.Sample {
		all += s.Value[at]
		if slices.ContainsFunc(s.Location, func(l *profile.Location) bool {
			return strings.HasPrefix(l.Line[0].Function.Name, mark) && strings.Contains(l.Line[0].Function.Name, want)
		}) {
			kernel += s.Value[at]
		}
	}
	return all, kernel
}

// TestRecordKernelSamples: with --kernel, folded stacks and pprof have the kernel's functions of CPU samples as frames,
// and their sums are those of the same recording without such frames.
func TestRecordKernelSamples(t *testing.T) {
	if why := session.TrySwitches(); why != "" {
		testprog.Missing(t, "bpf", why)
	}
	testprog.Need(t, "gcc", "ptrace")
	dir := t.TempDir()
	cmd := slivercmd(t, dir, "record", "--kernel=on", "--no-children", "-i", "2ms", "-o", "run.sliver", "--", testprog.Build(t, "c/inkernel", "O2"), "2")
	cmd.Stdin = strings.NewReader("\n\n")
	r := runCmd(t, cmd)
	if r.status != 0 {
		t.Fatalf("%+v", r)
	}
	// On a busy machine many samples are taken by stops, and a line says that these have none.
	if strings.Contains(r.errors, "no kernel stacks") && !strings.Contains(r.errors, "were taken by stops") {
		testprog.Missing(t, "perf", r.errors)
	}
	var sums [2][2]int64
	for i, kinds := range []string{"kernel,native", "no-kernel"} {
		for j, format := range []string{"cpu.folded", "pb.gz"} {
			out := kinds + "." + format
			if r := sliver(t, dir, "export", "run.sliver", "--kinds", kinds, "-o", out); r.status != 0 {
				t.Fatalf("%+v", r)
			}
			b, err := os.ReadFile(filepath.Join(dir, out))
			if err != nil {
				t.Fatal(err)
			}
			var kernel int64
			if format == "cpu.folded" {
				sums[i][j], kernel = foldedSum(t, string(b), "getrandom")
			} else {
				sums[i][j], kernel = pprofSum(t, b, "[kernel] ", "getrandom")
			}
			if (kernel > 0) != (i == 0) {
				t.Errorf("%s of --kinds %s: %d of %d in getrandom", format, kinds, kernel, sums[i][j])
			}
		}
	}
	if sums[0] != sums[1] || sums[0][0] == 0 {
		t.Errorf("with frames of the kernel %d, without %d", sums[0], sums[1])
	}
	if q := sliver(t, dir, "sql", "run.sliver", "select count(*) > 0 from slices s join functions f on f.id = s.function where s.kind = 'kernel' and f.name like '[kernel] %getrandom%'", "--format", "csv"); !strings.Contains(q.out, "\n1\n") {
		t.Errorf("sql has no function of the kernel:\n%s%s", q.out, q.errors)
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

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/exact"
)

// rightsRow is a way to run sliver with fewer rights, with the reasons that doctor gives.
type rightsRow struct {
	name     string
	as       []string // command before that of sliver
	switches string   // part of the reason against switches; "": they are recorded
	uprobes  string   // part of the reason against uprobes; "": they work
}

// lineOf returns the only line of out with a text, without blanks around it; "": there is none, or another one.
func lineOf(out, text string) string {
	var found []string
	for l := range strings.Lines(out) {
		if strings.Contains(l, text) {
			found = append(found, strings.TrimSpace(l))
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// TestDoctorRows compares, for each set of rights, the answers of doctor with the behaviour of record --kernel and
// record --trace. Both give the same reason in one line.
func TestDoctorRows(t *testing.T) {
	testprog.Whole(t, "TestRecordKernelRefused has one of the rows")
	testprog.Need(t, "gcc", "ptrace", "root", "setpriv", "unshare")
	if many, _ := exact.Try(os.Getpid()); many != nil {
		testprog.Missing(t, "bpf", many.Error())
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	home := publicDir(t, map[string]string{"sliver": bin, "traced": testprog.Build(t, "c/traced", "O2")})
	user := func(caps string, args ...string) []string { return asUser(caps, args...).Args }
	hidden := []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", `mount -t tmpfs none /sys/kernel/btf && exec "$@"`, "sh"}
	rows := []rightsRow{
		{"nobody", user("-bpf"), "missing: CAP_BPF, CAP_PERFMON", "missing: CAP_BPF, CAP_PERFMON"},
		{"CAP_BPF", user("+bpf"), "missing: CAP_PERFMON", "missing: CAP_PERFMON"},
		{"CAP_PERFMON", user("+perfmon"), "missing: CAP_BPF", "missing: CAP_BPF"},
		{"both", user("+bpf,+perfmon"), "", ""},
		{"user namespace", user("-bpf", "unshare", "--user", "--map-root-user"), "run sliver outside of it", "run sliver outside of it"},
		{"user namespace of root", []string{"unshare", "--user", "--map-root-user"}, "run sliver outside of it", "run sliver outside of it"},
		{"no type information", hidden, "no type information (/sys/kernel/btf/vmlinux)", ""},
		{"PID namespace", []string{"unshare", "--pid", "--fork", "--mount-proc"}, "PID namespace of its own", "PID namespace of its own"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) { r.try(t, home) })
	}
	t.Run("perf_event_paranoid 3", func(t *testing.T) {
		const file = "/proc/sys/kernel/perf_event_paranoid"
		was, err := os.ReadFile(file)
		if err != nil {
			t.Skipf("this kernel has no perf events: %v", err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(file, was, 0); err != nil {
				t.Errorf("kernel.perf_event_paranoid is not %s again: %v", was, err)
			}
		})
		if err := os.WriteFile(file, []byte("3\n"), 0); err != nil {
			t.Skipf("kernel.perf_event_paranoid cannot be set: %v", err)
		}
		r := rightsRow{"nobody", user("-bpf"), "missing: CAP_BPF, CAP_PERFMON", "missing: CAP_BPF, CAP_PERFMON"}
		r.try(t, home) // whether breakpoints are allowed then depends on the distribution
	})
}

func (r *rightsRow) try(t *testing.T, home string) {
	out := t.TempDir()
	for d := out; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // also a folder above is the test's own
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) result {
		all := append(append(append([]string{}, r.as...), filepath.Join(home, "sliver")), args...)
		cmd := exec.Command(all[0], all[1:]...)
		cmd.Dir, cmd.Env, cmd.Stdin = out, append(os.Environ(), "XDG_CACHE_HOME="+out), strings.NewReader("\n")
		res := runCmd(t, cmd)
		if s := res.out + res.errors; strings.Contains(s, "MEMLOCK") || strings.Contains(s, "goroutine ") {
			t.Errorf("%q: %s", args, s)
		}
		return res
	}
	record := func(flags ...string) result {
		return run(append(append([]string{"record", "--no-children", "-o", "run.sliver"}, flags...), "--", filepath.Join(home, "traced"), "return", "100")...)
	}
	d := run("doctor")
	switches, calls := lineOf(d.out, "  context switches "), lineOf(d.out, "  exact calls ")
	if switches == "" || calls == "" {
		t.Fatalf("doctor: %+v", d)
	}
	if strings.HasPrefix(switches, "ok") != (r.switches == "") || !strings.Contains(switches, r.switches) {
		t.Errorf("doctor: %s", switches)
	}
	if strings.HasPrefix(calls, "ok") != (r.uprobes == "") || !strings.Contains(calls, r.uprobes) {
		t.Errorf("doctor: %s", calls)
	}

	// Switches.
	on, auto := record("--kernel=on"), record("--kernel=auto")
	if r.switches == "" {
		if on.status != 0 || auto.status != 0 || lineOf(auto.errors, " recorded exactly") == "" {
			t.Errorf("--kernel: %+v, %+v", on, auto)
		}
	} else {
		_, why, _ := strings.Cut(switches, "(no record --kernel): ")
		refused, said := lineOf(on.errors, "sliver: record context switches: "), lineOf(auto.errors, " were not recorded: ")
		if on.status == 0 || auto.status != 0 || why == "" || !strings.HasSuffix(refused, why) || !strings.HasPrefix(said, "context switches") || !strings.HasSuffix(said, why) {
			t.Errorf("doctor: %s\n--kernel=on: %d, %q\n--kernel=auto: %d, %q\n%s", why, on.status, refused, auto.status, said, auto.errors)
		}
	}

	// Calls.
	traced := func(flags ...string) (ok bool, res result) {
		res = record(append(flags, "-q")...)
		if res.status != 0 {
			return false, res
		}
		q := run("sql", "run.sliver", "select count(*) from calls where function = 'probed'", "--format", "csv")
		if !strings.Contains(q.out, "\n100\n") {
			t.Errorf("%q: %s%s", flags, q.out, q.errors)
		}
		return true, res
	}
	breakpoints := r.uprobes == "" || strings.Contains(calls, "by CPU breakpoints")
	for _, c := range []struct {
		flags []string
		ok    bool
	}{
		{[]string{"--trace", "probed", "--trace-engine", "kernel"}, r.uprobes == ""},
		{[]string{"--trace", "probed", "--trace-engine", "cpu"}, breakpoints},
		{[]string{"--trace", "probed"}, breakpoints || r.uprobes == ""},
		{[]string{"--trace", "traced.c:*", "--trace-limit", "0"}, r.uprobes == ""},
	} {
		ok, res := traced(c.flags...)
		line := lineOf(res.errors, "sliver: ")
		if ok != c.ok || !ok && r.uprobes != "" && c.flags[len(c.flags)-1] != "cpu" && !strings.Contains(line, r.uprobes) {
			t.Errorf("%q: %+v", c.flags, res)
		}
	}
}

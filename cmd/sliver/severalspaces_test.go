package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestFamilyInNamespaces records a tree of processes in a PID namespace, and in one with a user namespace. Their own
// numbers are others than those of the recording: each life is there once, by its name and that of its parent, and
// the exit status is the command's.
func TestFamilyInNamespaces(t *testing.T) {
	testprog.Whole(t, "TestSnapshotNamespaces of package target has a PID namespace")
	testprog.Need(t, "root")
	unshare := testprog.Tool(t, "unshare")
	for name, flags := range map[string][]string{"pid": {"--pid", "--fork"}, "user": {"--user", "--map-root-user", "--pid", "--fork"}} {
		t.Run(name, func(t *testing.T) {
			dir, first, kid := family(t)
			log := filepath.Join(dir, "log")
			// The shell is the first process of the namespace: it waits for the daemon.
			const script = `log=$1; shift; "$@" > "$log"; status=$?; until [ "$(grep -c "^died" "$log")" -ge 9 ]; do sleep .05; done; exit $status`
			command := append(append([]string{unshare}, flags...), "sh", "-c", script, "sh", log, first, "100", "3", kid)
			r := sliver(t, dir, append([]string{"record", "-i", "2ms", "--max-overhead", "0", "-o", "x.sliver", "--"}, command...)...)
			if r.status != 7 {
				t.Fatalf("%+v", r)
			}
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			lives := familyLog(strings.Split(string(text), "\n"))
			var want, got []string
			for pid, x := range lives {
				parent := "sh"
				if p := lives[x.parent]; p != nil {
					parent = p.name
				}
				if pid >= 1000 {
					t.Errorf("process %d is not in a new namespace", pid)
				}
				want = append(want, x.name+" of "+parent)
			}
			rec := openSeveral(t, filepath.Join(dir, "x.sliver"))
			names, met := map[int]string{}, map[int]bool{}
			type life struct {
				pid, parent int
				name        string
			}
			var all []life
			for _, one := range rec.All() {
				all = append(all, life{one.Process.PID, one.Process.Parent, one.Process.Comm})
			}
			for _, l := range rec.Left.Processes {
				all = append(all, life{l.PID, l.Parent, l.Name})
			}
			for _, x := range all {
				if met[x.pid] {
					t.Errorf("process %d is there twice", x.pid)
				}
				met[x.pid], names[x.pid] = true, x.name
			}
			for _, x := range all {
				if x.name == "first" || x.name == "kid" {
					got = append(got, x.name+" of "+names[x.parent])
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("recorded and left out are %q, the processes say %q\n%s", got, want, r.errors)
			}
			sql := sliver(t, dir, "sql", "x.sliver", "SELECT DISTINCT p.name, f.name FROM slices s JOIN threads t ON t.id = s.thread JOIN processes p ON p.id = t.process JOIN functions f ON f.id = s.function WHERE f.name LIKE 'burn_%' ORDER BY 1, 2", "--format", "csv")
			if have := strings.Fields(sql.out)[1:]; fmt.Sprint(have) != "[first,burn_daemon first,burn_first first,burn_fork kid,burn_chain kid,burn_exec]" {
				t.Errorf("functions %q", have)
			}
		})
	}
}

// TestRecordGroups: a recording of a systemd unit, or of a control group, has the processes in it and no other.
func TestRecordGroups(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.Build(t, "c/spin", "O2")
	in, other := testprog.Start(t, program, "--seconds", "120"), testprog.Start(t, program, "--seconds", "120")
	unit := fmt.Sprintf("sliver-test-record-%d.service", os.Getpid())
	inGroup(t, in.PID, unit)
	dir := t.TempDir()
	for _, by := range [][]string{{"--unit", unit}, {"--unit", strings.TrimSuffix(unit, ".service")}, {"--cgroup", "/" + unit}, {"--cgroup", "/sys/fs/cgroup/" + unit}} {
		r := sliver(t, dir, append([]string{"record", "-d", "300ms", "-o", "x.sliver"}, by...)...)
		if r.status != 0 {
			t.Fatalf("%v: %+v", by, r)
		}
		if all := openSeveral(t, filepath.Join(dir, "x.sliver")).All(); len(all) != 1 || all[0].Process.PID != in.PID {
			t.Errorf("%v: %d processes, want %d alone", by, len(all), in.PID)
		}
	}
	for _, c := range []string{"stack", "threads", "top"} {
		args := map[string][]string{"top": {"--once", "-d", "200ms"}}[c]
		if r := sliver(t, dir, append([]string{c, "--unit", "no-" + unit, "--cgroup", "/no-" + unit}, args...)...); r.status != 1 ||
			r.errors != fmt.Sprintf("sliver: there is no process of unit no-%s or process of control group /no-%[1]s\n", unit) {
			t.Errorf("%s: %+v", c, r)
		}
	}
	// Both by one list: a unit and a number.
	r := sliver(t, dir, "record", "-d", "300ms", "-o", "x.sliver", "--unit", unit, "-p", strconv.Itoa(other.PID))
	if all := openSeveral(t, filepath.Join(dir, "x.sliver")).All(); r.status != 0 || len(all) != 2 {
		t.Errorf("%d processes, want 2: %+v", len(all), r)
	}
}

// TestUnitWithoutSystemd: where systemd does not run, a unit is wrong input. A namespace hides that of this machine.
func TestUnitWithoutSystemd(t *testing.T) {
	testprog.Need(t, "root")
	unshare := testprog.Tool(t, "unshare")
	for _, command := range []string{"record -d 1s", "top --once", "stack", "threads", "watch"} {
		sliver := slivercmd(t, t.TempDir(), append(strings.Fields(command), "--unit", "nginx")...)
		cmd := exec.Command(unshare, append([]string{"--pid", "--fork", "--cgroup", "--mount-proc", "sh", "-c", `mount -t tmpfs none /run && exec "$@"`, "sh"}, sliver.Args...)...)
		cmd.Dir = sliver.Dir
		r := runCmd(t, cmd)
		if r.status != 2 || !strings.HasPrefix(r.errors, "sliver: unit nginx: systemd does not run here, and no process belongs to a unit; use --name, --cgroup or -p (see ") {
			t.Errorf("%s: %+v", command, r)
		}
	}
}

// TestGroupJoined: a recording of a control group that is still empty, or not there yet, waits for its first process,
// and has those that are moved into it later.
func TestGroupJoined(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.Build(t, "c/spin", "O2")
	group := fmt.Sprintf("sliver-test-joined-%d", os.Getpid())
	dir := t.TempDir()
	cmd := slivercmd(t, dir, "record", "--cgroup", "/"+group, "-o", "x.sliver")
	var errs safeBuffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	waitFor(t, func() bool { return strings.Contains(errs.String(), "waiting for a process of control group /"+group) })
	first := testprog.Start(t, program, "--seconds", "120")
	procs := filepath.Join(inGroup(t, first.PID, group), "cgroup.procs")
	waitFor(t, func() bool { return partialWith(dir, "EVNT") != "" })
	second := testprog.Start(t, program, "--seconds", "120")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(second.PID)), 0o644); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		all := openSeveral(t, partialWith(dir, "EVNT")).All()
		return len(all) == 2 && all[1].Count(0) > 0
	})
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var got []int
	for _, one := range openSeveral(t, filepath.Join(dir, "x.sliver")).All() {
		if got = append(got, one.Process.PID); one.Count(0) == 0 {
			t.Errorf("process %d has no sample", one.Process.PID)
		}
	}
	if want := []int{first.PID, second.PID}; !slices.Equal(got, want) {
		t.Errorf("processes %v, want %v: %s", got, want, errs.String())
	}
}

// TestSeveralMain: "-t main" is the main thread of each process.
func TestSeveralMain(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	program := testprog.Build(t, "c/spin", "O2")
	a, b := testprog.Start(t, program, "--seconds", "120", "--threads", "3"), testprog.Start(t, program, "--seconds", "120", "--threads", "2")
	dir := t.TempDir()
	if r := sliver(t, dir, "record", "-p", fmt.Sprintf("%d,%d", a.PID, b.PID), "-t", "main", "-d", "500ms", "-o", "x.sliver"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	for i, one := range openSeveral(t, filepath.Join(dir, "x.sliver")).All() {
		want := []int{a.PID, b.PID}[i]
		if len(one.Threads) != 1 || int(one.Threads[0].TID) != want {
			t.Errorf("process %d: threads %+v, want the main one", want, one.Threads)
		}
	}
}

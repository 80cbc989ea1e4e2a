package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/testprog"
)

// shell runs a script as root in its own mount namespace. $S is a sliver that every user may
// run, and $D a folder that every user may write to.
func shell(t *testing.T, script string, args ...string) string {
	t.Helper()
	testprog.Need(t, "root", "setpriv")
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(copyFor(t, bin))
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "bash", "-c", script, "bash"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "S="+filepath.Join(dir, filepath.Base(bin)), "D="+dir, "XDG_CACHE_HOME="+dir, "XDG_RUNTIME_DIR=", "HOME="+dir)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(out)
}

// A user who may run sliver with capabilities may inspect processes, but not files: sliver
// opens files with the user's rights.
func TestCapabilitiesOpenNoFiles(t *testing.T) {
	p := spin(t)
	out := shell(t, `
		$S record -q -p $1 -d 200ms -o $D/root.sliver && test "$(stat -c %a $D/root.sliver)" = 600 || exit 1
		echo secret-token-of-root-0123456789 > $D/token; chmod 600 $D/token
		mkdir -m 700 $D/closed; cp $D/root.sliver $D/closed/
		U="setpriv --reuid 23456 --regid 23456 --clear-groups --inh-caps -all,+sys_ptrace,+dac_read_search --ambient-caps -all,+sys_ptrace,+dac_read_search"
		echo "== control"; $U head -c 4 $D/root.sliver >/dev/null && echo control reads it
		echo "== files"
		for c in "report" "export -o $D/x.pftrace" "recover -o $D/y.sliver"; do $U $S $c $D/root.sliver 2>&1; $U $S $c $D/closed/root.sliver 2>&1; done
		$U $S sql $D/root.sliver "select 1" 2>&1
		$U $S ls --left $D/closed 2>&1
		$U $S record -p $1 -d 200ms -o $D/u.sliver --web --web-token-file $D/token 2>&1
		$U $S record -p $1 -d 200ms -o $D/u.sliver --otlp http://127.0.0.1:1 --push-header-file $D/token 2>&1
		$U $S watch -p $1 --config $D/token 2>&1
		for c in "heap histo" "heap leaks" "hprof info"; do $U $S $c $D/closed/root.sliver 2>&1; done
		$U $S record -p $1 -d 200ms -o $D/closed/root.sliver 2>&1
		$U $S record -p $1 -d 200ms -o $D/closed/new.sliver 2>&1
		echo "== process"
		$U $S record -q -p $1 -d 200ms -o $D/u.sliver && echo recorded
		exit 0`, pidOf(p))
	_, out, _ = strings.Cut(out, "== control")
	control, out, _ := strings.Cut(out, "== files")
	files, process, _ := strings.Cut(out, "== process")
	if !strings.Contains(control, "control reads it") {
		t.Fatal("the capability that is to be given up does nothing here")
	}
	if n := strings.Count(strings.ToLower(files), "permission denied"); n != 16 {
		t.Errorf("%d of 16 files are denied:\n%s", n, files)
	}
	if strings.Contains(files, "secret") || !strings.Contains(process, "recorded") {
		t.Errorf("files:\n%s\nprocess:\n%s", files, process)
	}
}

// Root's sliver keeps the capabilities that its command can need, and a command that it starts
// has them all.
func TestRootDropsCapabilities(t *testing.T) {
	testprog.Need(t, "root", "ptrace")
	held := func(pid int) (caps uint64) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"CapPrm:", "CapEff:"} {
			_, s, _ := strings.Cut(string(b), key)
			s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
			n, err := strconv.ParseUint(s, 16, 64)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			caps |= n
		}
		return caps
	}
	own := held(os.Getpid())
	check := func(what string, caps uint64, has, lacks []uintptr) {
		t.Helper()
		for _, c := range has {
			if own&(1<<c) != 0 && caps&(1<<c) == 0 {
				t.Errorf("%s: capability %d is missing: %#x", what, c, caps)
			}
		}
		for _, c := range lacks {
			if caps&(1<<c) != 0 {
				t.Errorf("%s: capability %d is kept: %#x", what, c, caps)
			}
		}
	}
	useless := []uintptr{unix.CAP_SYS_MODULE, unix.CAP_SETUID, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_MKNOD, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_SYS_RAWIO, unix.CAP_SYS_CHROOT}
	p := spin(t)
	dir := t.TempDir()
	cmd := slivercmd(t, dir, "record", "-q", "-p", pidOf(p), "-o", "r.sliver")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	growing(t, dir)
	check("record", held(cmd.Process.Pid), []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_PERFMON}, useless)
	var children []byte
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	for _, l := range lists {
		b, _ := os.ReadFile(l)
		children = append(children, b...)
	}
	for _, f := range strings.Fields(string(children)) {
		n, _ := strconv.Atoi(f)
		if comm, _ := os.ReadFile("/proc/" + f + "/comm"); string(comm) == "sliver-files\n" {
			check("sliver-files", held(n), []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH},
				append([]uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_KILL, unix.CAP_BPF, unix.CAP_SYS_NICE}, useless...))
		}
	}
	if s := ends(t, cmd, syscall.SIGINT); s != 0 {
		t.Errorf("status %d", s)
	}
	t.Setenv("SLIVER_WEB_TOKEN", "a-token-for-the-test-0123456789")
	view := slivercmd(t, dir, "view", "r.sliver")
	out, err := view.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	check("view", held(view.Process.Pid), []uintptr{unix.CAP_DAC_READ_SEARCH},
		append([]uintptr{unix.CAP_SYS_PTRACE, unix.CAP_SYS_ADMIN, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_KILL}, useless...))
	ends(t, view, syscall.SIGTERM)
	r := sliver(t, dir, "record", "-q", "-o", "c.sliver", "--", "sh", "-c", "grep CapPrm /proc/self/status")
	want := ""
	if b, err := exec.Command("grep", "CapPrm", "/proc/self/status").Output(); err == nil {
		want = string(b)
	}
	if r.out != want {
		t.Errorf("a command has %q instead of %q; %s", r.out, want, r.errors)
	}
}

// Errors name hidepid and the limit that is too low.
func TestLimitsByTheirNames(t *testing.T) {
	p := spin(t)
	out := shell(t, `
		U="setpriv --reuid 23456 --regid 23456 --clear-groups"
		mount -t proc -o hidepid=2 proc /proc || { echo "no hidepid here"; exit 0; }
		echo "== hidepid"; $U $S record -p $1 -d 100ms -o $D/a.sliver 2>&1; $U $S doctor 2>&1 | grep hidepid
		echo "== gone"; $U $S record -p 4194303 -d 100ms -o $D/a.sliver 2>&1
		echo "== addresses"; (ulimit -v 900000; $S record -p $1 -d 100ms -o $D/a.sliver 2>&1)
		echo "== few addresses"; for v in 100000 300000 500000 740000 840000; do (ulimit -v $v; $S record -p $1 -d 100ms -o $D/a.sliver 2>&1; echo "status $?"); done
		echo "== files"; (ulimit -n 40; $S record -p $1 -d 100ms -o $D/a.sliver 2>&1)
		echo "== tasks"; $U bash -c 'ulimit -u 14; exec $S version' 2>&1
		exit 0`, pidOf(p))
	if strings.Contains(out, "no hidepid here") {
		testprog.Lack(t, "root", "/proc cannot be mounted")
	}
	for part, want := range map[string]string{
		"hidepid": "is another user's, and /proc is mounted with hidepid", "gone": "no process 4194303", "addresses": "ulimit -v allows 878 MB of address space",
		"few addresses": strings.Repeat("sliver: ulimit -v allows less than 850 MB of address space; sliver takes 1000 MB, most of it only reserved\nstatus 1\n", 5),
		"files":         "ulimit -n allows 40 open files", "tasks": "ulimit -u is 14",
	} {
		_, got, _ := strings.Cut(out, "== "+part+"\n")
		got, _, _ = strings.Cut(got, "== ")
		if !strings.Contains(got, want) || strings.Contains(got, "goroutine") {
			t.Errorf("%s: %q", part, got)
		}
	}
}

// A recording that waits for a name says which processes have it and cannot be recorded.
func TestWaitingNamesRefused(t *testing.T) {
	testprog.Need(t, "ptrace", "root")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		uid  uint32
		mode os.FileMode // of its program
		want string      // of name, PID, and name
	}{
		{0, 0o755, "waiting for a process named %[1]s; 1 process of another user matches: %[1]s (%[2]d); sudo gives access\n"},
		// It cannot read its own program.
		{65534, 0o711, "1 process not recorded (no permission): %[1]s (%[2]d); waiting for another process named %[1]s\n"},
	} {
		name, copied := fmt.Sprintf("refuse%c%d", 'a'+i, os.Getpid()), copyFor(t, sleep)
		other := exec.Command(filepath.Join(filepath.Dir(copied), name), "300")
		if err := errors.Join(os.Rename(copied, other.Path), os.Chmod(other.Path, c.mode)); err != nil {
			t.Fatal(err)
		}
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.uid, Gid: c.uid}}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
		cmd := slivercmd(t, "/", "record", "--name", name, "-o", "/dev/null", "--format", "pprof")
		cmd.Path = copyFor(t, cmd.Path)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		pipe, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		line, err := bufio.NewReader(pipe).ReadString('\n')
		if want := "sliver: " + fmt.Sprintf(c.want, name, other.Process.Pid); err != nil || line != want {
			t.Errorf("%q, %v, want %q", line, err, want)
		}
	}
}

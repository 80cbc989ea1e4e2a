package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
		echo "== process"
		$U $S record -q -p $1 -d 200ms -o $D/u.sliver && echo recorded
		exit 0`, pidOf(p))
	_, out, _ = strings.Cut(out, "== control")
	control, out, _ := strings.Cut(out, "== files")
	files, process, _ := strings.Cut(out, "== process")
	if !strings.Contains(control, "control reads it") {
		t.Fatal("the capability that is to be given up does nothing here")
	}
	if n := strings.Count(strings.ToLower(files), "permission denied"); n != 9 {
		t.Errorf("%d of 9 files are denied:\n%s", n, files)
	}
	if strings.Contains(files, "secret") || !strings.Contains(process, "recorded") {
		t.Errorf("files:\n%s\nprocess:\n%s", files, process)
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
		echo "== files"; (ulimit -n 40; $S record -p $1 -d 100ms -o $D/a.sliver 2>&1)
		echo "== tasks"; $U bash -c 'ulimit -u 14; exec $S version' 2>&1
		exit 0`, pidOf(p))
	if strings.Contains(out, "no hidepid here") {
		testprog.Lack(t, "root", "/proc cannot be mounted")
	}
	for part, want := range map[string]string{
		"hidepid": "is another user's, and /proc is mounted with hidepid", "gone": "no process 4194303", "addresses": "ulimit -v allows 878 MB of address space",
		"files": "ulimit -n allows 40 open files", "tasks": "ulimit -u is 14",
	} {
		_, got, _ := strings.Cut(out, "== "+part+"\n")
		got, _, _ = strings.Cut(got, "== ")
		if !strings.Contains(got, want) || strings.Contains(got, "goroutine") {
			t.Errorf("%s: %q", part, got)
		}
	}
}

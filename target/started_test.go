package target

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
)

// startLoop in the environment makes this test program a process that starts commands, one after another.
const startLoop = "SLIVER_TEST_START"

func TestMainOfStart(t *testing.T) {
	argv := strings.Fields(os.Getenv(startLoop))
	if len(argv) == 0 {
		t.Skip("it is a part of TestStartKilled")
	}
	for i := 0; ; i++ {
		cmd, err := Start(argv)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Release()
		if _, err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		cmd.Process.Close()
		if i == 3 {
			fmt.Println("looping")
		}
	}
}

// If sliver is killed while it starts a command, that one goes on to its end, or does not begin. In particular it does
// not stop for the process that is its parent then.
func TestStartKilled(t *testing.T) {
	testprog.Need(t, "ptrace")
	in := t.TempDir()
	for range rounds(100, 2000) {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestMainOfStart$")
		cmd.Env = append(os.Environ(), startLoop+"=/bin/true")
		cmd.Dir = in // shows which processes are of this test
		p := testprog.StartCmd(t, cmd)
		p.Line("looping")
		for end := monotonic() + stack.Time(rand.IntN(4_000_000)); monotonic() < end; {
		}
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-p.Exited()
		eventually(t, "the command ends", func() bool {
			left := commandsIn(t, in)
			for _, pid := range left {
				if b, err := os.ReadFile(fmt.Sprintf("/proc/%s/status", pid)); err == nil && bytes.Contains(b, []byte("\nTracerPid:\t1\n")) {
					_ = syscall.Kill(atoi(t, pid), syscall.SIGKILL)
					t.Fatalf("init traces process %s", pid)
				}
			}
			return len(left) == 0
		})
	}
}

// commandsIn returns the processes in a folder that have not ended.
func commandsIn(t *testing.T, dir string) (pids []string) {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if at, err := os.Readlink("/proc/" + e.Name() + "/cwd"); err == nil && at == dir {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// A command has the limits, the signals and the streams that it would have without sliver.
func TestStartedAs(t *testing.T) {
	testprog.Need(t, "ptrace")
	const script = "ulimit -Sn; ulimit -Hn; grep -E '^(SigBlk|SigIgn|SigCgt|TracerPid)' /proc/self/status | grep -v Tracer; ls -l /proc/self/fd | wc -l"
	run := func(traced bool) string {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", `ulimit -Sn 300; trap "" HUP; exec "$0" "$@"`, os.Args[0], "-test.run", "^TestMainOfOne$", "-test.v")
		cmd.Env = append(os.Environ(), startOne+"="+script)
		if !traced {
			cmd = exec.Command("/bin/sh", "-c", `ulimit -Sn 300; trap "" HUP; exec /bin/sh -c "$0"`, script)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		s := string(out)
		if _, after, ok := strings.Cut(s, "BEGIN\n"); ok {
			s, _, _ = strings.Cut(after, "END\n")
		}
		return s
	}
	if got, want := run(true), run(false); got != want {
		t.Errorf("started by sliver:\n%s\nwithout it:\n%s", got, want)
	}
}

const startOne = "SLIVER_TEST_START_ONE"

func TestMainOfOne(t *testing.T) {
	script := os.Getenv(startOne)
	if script == "" {
		t.Skip("it is a part of TestStartedAs")
	}
	cmd, err := Start([]string{"/bin/sh", "-c", "echo BEGIN; " + script + "; echo END"})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Release()
	if status, err := cmd.Wait(); status != 0 || err != nil {
		t.Error(status, err)
	}
}

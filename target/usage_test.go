package target

import (
	"os"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

func TestUsage(t *testing.T) {
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "60", "--wait-go")
	p.Ready()
	pr, err := Open(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	u, err := pr.Usage(ResourceCPU|ResourceMemory|ResourceFDs|ResourceThreads, new(Shared))
	if err != nil {
		t.Fatal(err)
	}
	// It has three standard streams, and at least a page of everything.
	if !u.Known.CPU || !u.Known.RSS || !u.Known.FDs || !u.Known.Threads || u.FDs < 3 || u.FDs > 64 || u.Threads < 1 ||
		u.RSS < 100<<10 || u.RAM < u.RSS || u.FDLimit < u.FDs || u.ThreadLimit < u.Threads {
		t.Errorf("%+v", u)
	}
	var own syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own); err != nil || u.FDLimit <= 0 {
		t.Errorf("limit of descriptors: %d, ours %+v, %v", u.FDLimit, own, err)
	}
}

func TestLimitsAndGroups(t *testing.T) {
	b := []byte("Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             unlimited            unlimited            processes \n" +
		"Max open files            1024                 524288               files     \n")
	if n := limit(b, "Max open files"); n != 1024 {
		t.Errorf("open files: %d", n)
	}
	if n := limit(b, "Max processes"); n != 0 {
		t.Errorf("processes: %d", n)
	}
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/memory.max": "1000000\n", "a/memory.current": "900000\n", "a/memory.stat": "anon 5\ninactive_file 300000\n",
		"a/b/memory.max": "max\n", "a/b/memory.current": "5\n", "a/b/pids.max": "100\n", "a/b/pids.current": "42\n",
	} {
		if err := os.MkdirAll(root+"/a/b", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := group{[]string{"/nowhere", root}, "/a/b"}
	var u Usage
	g.memory(&u, "memory.current", "memory.max", "inactive_file")
	g.tasks(&u)
	u.nearest(300, 1000, "machine") // less near than the group's
	if u.Group != 600000 || u.GroupLimit != 1000000 || u.Threads != 42 || u.ThreadLimit != 100 || u.ThreadOf != "control group" {
		t.Errorf("%+v", u)
	}
}

func TestEnding(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, c := range []struct {
		sig  syscall.Signal
		want string
		bad  bool
	}{{syscall.SIGSEGV, "killed by SIGSEGV", true}, {syscall.SIGTERM, "killed by SIGTERM", false}} {
		p := testprog.Start(t, testprog.Build(t, "c/spin", "O0"), "--seconds", "60", "--wait-go")
		p.Ready()
		pr, err := Open(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		l, err := pr.Life()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := l.Ending(); ok || l.Ended() {
			t.Error("it has not ended yet")
		}
		if err := syscall.Kill(p.PID, c.sig); err != nil {
			t.Fatal(err)
		}
		p.Wait() // its parent, this test, has taken its status by then
		e, ok := l.Ending()
		if !ok {
			t.Skip("not told: the kernel keeps the status of an ended process since Linux 6.15 only")
		}
		if e.String() != c.want || e.Crash() != c.bad || !l.Ended() {
			t.Errorf("%+v: %v", c, e)
		}
		l.Close()
		pr.Close()
	}
}

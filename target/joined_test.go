package target

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Renamed sees an exec, also of the same program with other arguments, and a new name of the first thread, and nothing else.
func TestRenamed(t *testing.T) {
	prog := start(t, "/bin/sh", "-c", `echo ready; read x; printf other >/proc/$$/comm; echo named; read x; exec sh -c 'echo again; read x; exec cat'`)
	prog.line()
	p := openProcess(t, prog.pid())
	if p.Renamed() {
		t.Error("it has its name of before")
	}
	prog.tell("go")
	if prog.line(); !p.Renamed() {
		t.Error("a new name is not seen")
	}
	q := openProcess(t, prog.pid())
	if q.Renamed() {
		t.Error("it was opened with that name")
	}
	prog.tell("go")
	prog.line()
	if !q.Renamed() {
		t.Error("an exec of the same program is not seen")
	}
	r := openProcess(t, prog.pid())
	if r.Renamed() {
		t.Error("it was opened with those arguments")
	}
	prog.tell("go")
	eventually(t, "the exec is seen", r.Renamed)
	prog.in.Close()
	if err := prog.wait(); err != nil {
		t.Fatal(err)
	}
	if r.Renamed() {
		t.Error("a process that has ended")
	}
}

// Files that the kernel returns whole are read whole, of whatever size, also with fewer calls; one that is too long is an error.
func TestReadShown(t *testing.T) {
	for _, n := range []int{30, 4000, 4095, 4096, 4097, 20_000} {
		arg := strings.Repeat("x", n-len("/bin/sh\x00-c\x00read x\x00\x00"))
		prog := start(t, "/bin/sh", "-c", "read x", arg)
		p := openProcess(t, prog.pid())
		args, err := p.Cmdline()
		if err != nil || len(args) != 4 || args[3] != arg {
			t.Errorf("%d bytes: %d arguments, %v", n, len(args), err)
		}
		if b, err := p.readShown("cmdline", 4096); n > 8192 && err == nil {
			t.Errorf("%d of %d bytes without an error", len(b), n)
		}
		for _, name := range []string{"status", "cgroup", "comm"} {
			shown, err := p.readShown(name, maxStatus)
			whole, e := os.ReadFile("/proc/" + strconv.Itoa(prog.pid()) + "/" + name)
			if err != nil || e != nil || len(shown) == 0 || name != "status" && string(shown) != string(whole) || !strings.HasSuffix(string(shown), "\n") {
				t.Errorf("%s: %q, %v; in all %q, %v", name, shown, err, whole, e)
			}
		}
	}
}

// A list of threads that does not fit into one reading is complete.
func TestManyThreads(t *testing.T) {
	prog := start(t, build(t, "../testdata/targets/c/sleepers.c", "-I../testdata/targets/include"), "--sleepers", "600", "--running", "0", "--seconds", "600")
	p := openProcess(t, prog.pid())
	var got int
	eventually(t, "all threads are listed", func() bool {
		tids, err := p.Threads(nil)
		seen := map[int]bool{}
		for _, tid := range tids {
			seen[int(tid)] = true
		}
		got = len(seen)
		return err == nil && len(tids) == got && got >= 600
	})
	if got < dirBytes/24*3 {
		t.Errorf("%d threads fit into one or two readings", got)
	}
}

package target

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// need skips a test, or fails it if SLIVER_REQUIRE contains word.
func need(t testing.TB, word, why string) {
	t.Helper()
	required := strings.Split(os.Getenv("SLIVER_REQUIRE"), ",")
	if slices.Contains(required, word) || slices.Contains(required, "all") {
		t.Fatalf("SLIVER_REQUIRE has %q: %s", word, why)
	}
	t.Skip(why)
}

var builds sync.Map // source → *sync.Mutex

// build compiles a C program of testdata (or any path), once for each version of its source and
// of the compiler.
func build(t testing.TB, source string, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		need(t, "gcc", "gcc is not installed")
	}
	src, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command(cc, "-dumpfullversion").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags = append([]string{"-O1", "-g", "-pthread", "-Wall", "-Werror"}, flags...)
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%s", cc, version, flags, src)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "sliver-testdata")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, strings.TrimSuffix(filepath.Base(source), ".c")+"-"+hex.EncodeToString(h.Sum(nil))[:16])
	mu, _ := builds.LoadOrStore(out, &sync.Mutex{})
	mu.(*sync.Mutex).Lock()
	defer mu.(*sync.Mutex).Unlock()
	if _, err := os.Stat(out); err == nil {
		return out
	}
	tmp, err := os.MkdirTemp(dir, "build-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	b := filepath.Join(tmp, "out")
	if msg, err := exec.Command(cc, append(flags, "-o", b, source)...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, msg)
	}
	if err := os.Rename(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// testTarget is a running test target. It reads commands and answers in lines.
type testTarget struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	err  strings.Builder
	once sync.Once
	end  error
}

// start runs a program, which is killed and reaped at the end of the test.
func start(t testing.TB, bin string, args ...string) *testTarget {
	t.Helper()
	p := &testTarget{t: t, cmd: exec.Command(bin, args...)}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	p.cmd.Stderr = &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.wait()
	})
	return p
}

func (p *testTarget) pid() int { return p.cmd.Process.Pid }

func (p *testTarget) wait() error {
	p.once.Do(func() { p.end = p.cmd.Wait() })
	return p.end
}

// line waits for the next line of output.
func (p *testTarget) line() string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		p.cmd.Process.Kill()
		p.t.Fatalf("%s: %v after %q (%v) %s", p.cmd.Path, err, s, p.wait(), p.err.String())
	}
	return strings.TrimSuffix(s, "\n")
}

// Sends a line to the program.
func (p *testTarget) tell(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, s+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func openProcess(t testing.TB, pid int) *Process {
	t.Helper()
	p, err := Open(pid)
	if err != nil {
		var r *Refusal
		if asRefusal(err, &r) && (r.Reason == Filtered || r.Reason == YamaScope || r.Reason == NoCapability) {
			need(t, "ptrace", r.What)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func openThread(t testing.TB, p *Process, tid int) *Thread {
	t.Helper()
	th, err := p.Thread(stack.TID(tid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { th.Close() })
	return th
}

// tracer returns a Tracer on the test's own goroutine.
func tracer(t testing.TB) *Tracer {
	t.Helper()
	runtime.LockOSThread()
	tr, err := NewTracer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		runtime.UnlockOSThread()
	})
	return tr
}

// capture takes a sample with a deadline long enough for a busy machine.
func capture(t testing.TB, tr *Tracer, th *Thread, w *Window) {
	t.Helper()
	w.Deadline = 10e9
	if err := tr.Capture(th, w); err != nil {
		t.Fatalf("capture thread %d: %v", th.TID(), err)
	}
}

// eventually repeats look until it returns true.
func eventually(t testing.TB, what string, look func() bool) {
	t.Helper()
	for end := monotonic() + 30e9; monotonic() < end; runtime.Gosched() {
		if look() {
			return
		}
	}
	t.Fatalf("waited in vain: %s", what)
}

// untraced checks that the kernel shows no tracer for any thread of a process.
func untraced(t testing.TB, pid int) {
	t.Helper()
	if tids := traced(t, pid); len(tids) > 0 {
		t.Errorf("traced: %v", tids)
	}
}

// state returns the kernel's letter for a thread's state.
func state(t testing.TB, pid, tid int) byte {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	if err != nil {
		return 'X'
	}
	c, ok := stateLetter(b)
	if !ok {
		t.Fatalf("stat %q", b)
	}
	return c
}

// fds counts this process's open files.
func fds(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

func tgkill(t testing.TB, pid, tid int, sig syscall.Signal) {
	t.Helper()
	if err := unix.Tgkill(pid, tid, sig); err != nil {
		t.Fatal(err)
	}
}

// seizer starts another tracer, which holds the thread until its input ends.
func seizer(t *testing.T, tid int) *testTarget {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(loopVar, "seize "+strconv.Itoa(tid))
	other := start(t, self)
	if s := other.line(); s != "attached" {
		t.Fatal(s)
	}
	return other
}

// knownRegs returns a thread whose registers, and stack from block on, have known values, and a
// window in which both were seen.
func knownRegs(t *testing.T) (prog *testTarget, block uint64, th *Thread, tr *Tracer, w *Window) {
	t.Helper()
	prog = start(t, build(t, "testdata/spin.c", "-no-pie"), "regs")
	block, err := strconv.ParseUint(strings.TrimPrefix(prog.line(), "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	th = openThread(t, openProcess(t, prog.pid()), prog.pid())
	tr = tracer(t)
	w = NewWindow(64 << 10)
	w.StackHigh = block + 4096
	eventually(t, "the program's loop", func() bool {
		capture(t, tr, th, w)
		return w.Regs.R[7] == block && w.Regs.R[3] == 0x1111111111111103
	})
	return prog, block, th, tr, w
}

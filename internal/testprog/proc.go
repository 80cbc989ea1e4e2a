package testprog

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience limits the wait for a program: far more than needed, also on a busy machine.
// The long forms of tests run some programs for minutes.
var patience = map[bool]time.Duration{false: 2 * time.Minute, true: 15 * time.Minute}[os.Getenv("SLIVER_LONG") != ""]

// Proc is a running program. It is killed when the test ends. Its methods fail the test
// if the program does not do what they wait for; they are for the test's goroutine.
type Proc struct {
	PID    int
	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    lines
	errs   lines
	exited chan struct{}
	report string
}

// Start starts a program in its own process group, with a pipe as its standard input.
func Start(t testing.TB, path string, args ...string) *Proc {
	t.Helper()
	return StartCmd(t, exec.Command(path, args...))
}

// StartChain starts a chain program that reports its calls, waits for Go before its
// script and for Finish after it. The caller uses Ready, Go, Done, Calls and Finish, in
// that order.
func StartChain(t testing.TB, path string, args ...string) *Proc {
	t.Helper()
	report := filepath.Join(t.TempDir(), "calls.json")
	p := Start(t, path, slices.Concat(args, []string{"--wait-go", "--wait-end", "--report", report})...)
	p.report = report
	return p
}

// StartCmd is Start for a command with its own environment, folder or system attributes.
// It sets the standard streams.
func StartCmd(t testing.TB, cmd *exec.Cmd) *Proc {
	t.Helper()
	p := &Proc{t: t, cmd: cmd, exited: make(chan struct{})}
	p.out.more, p.errs.more = make(chan struct{}, 1), make(chan struct{}, 1)
	cmd.Stdout, cmd.Stderr = &p.out, &p.errs
	cmd.WaitDelay = patience // other processes may have inherited the pipes
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	start := starting{cmd, make(chan error, 1)}
	starter() <- start
	if err := <-start.err; err != nil {
		t.Fatal(err)
	}
	p.PID = cmd.Process.Pid
	go func() {
		awaitEnd(cmd.Process)
		cmd.Wait() // the error is in the state
		close(p.exited)
	}()
	t.Cleanup(p.Kill)
	return p
}

// starting is a program to start.
type starting struct {
	cmd *exec.Cmd
	err chan error
}

// starter starts all programs from one OS thread that lasts as long as the tests: the kernel kills a program, whatever
// signals it ignores, when the thread that started it ends. So programs of tests that panic or are killed end with them.
// The thread masks no signal either, as one does that traces, which a program would inherit.
var starter = sync.OnceValue(func() chan<- starting {
	c := make(chan starting)
	go func() {
		runtime.LockOSThread()
		for s := range c {
			s.err <- s.cmd.Start()
		}
	}()
	return c
})

// awaitEnd returns when the process has ended. A plain wait would also consume the stops
// of a tracer in this process, as the kernel reports them to any thread that waits for
// its own child.
func awaitEnd(p *os.Process) {
	_ = p.WithHandle(func(fd uintptr) {
		for {
			var set syscall.FdSet
			set.Bits[fd/64] |= 1 << (fd % 64)
			n, err := syscall.Select(int(fd)+1, &set, nil, nil, nil)
			if n > 0 || err != nil && err != syscall.EINTR {
				return
			}
		}
	})
}

// Kill kills the program and its process group, if it still runs.
func (p *Proc) Kill() {
	select {
	case <-p.exited:
		return // its PID may be reused
	default:
	}
	syscall.Kill(-p.PID, syscall.SIGKILL)
	p.in.Close()
	<-p.exited
}

// Ready waits until a program that was started with --wait-go is set up.
func (p *Proc) Ready() {
	p.t.Helper()
	p.Line(fmt.Sprintf("ready %d", p.PID))
}

// Go lets a program continue that waits for a line of standard input.
func (p *Proc) Go() {
	p.t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		p.fail("let go: %v", err)
	}
}

// Say writes a line to the program's standard input.
func (p *Proc) Say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.fail("say %q: %v", line, err)
	}
}

// Done waits until a program that was started with --wait-end has written its report.
func (p *Proc) Done() {
	p.t.Helper()
	p.Line("done")
}

// Finish lets a program that is Done end, waits for its end and fails the test if its
// exit status is not 0.
func (p *Proc) Finish() {
	p.t.Helper()
	p.Go()
	if s := p.Wait(); !s.Success() {
		p.fail("ended with %v", s)
	}
}

// CloseInput closes the program's standard input.
func (p *Proc) CloseInput() { p.in.Close() }

// Wait waits for the program's end and returns how it ended.
func (p *Proc) Wait() *os.ProcessState {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.fail("does not end")
	}
	return p.cmd.ProcessState
}

// Exited is closed when the program has ended.
func (p *Proc) Exited() <-chan struct{} { return p.exited }

// Line waits for a complete line on standard output that starts with a prefix, and
// returns it.
func (p *Proc) Line(prefix string) string {
	p.t.Helper()
	return p.LineAfter(0, prefix)
}

// LineAfter is Line for a program that prints such lines repeatedly: it skips the first
// n of them.
func (p *Proc) LineAfter(n int, prefix string) string {
	p.t.Helper()
	deadline := time.After(patience)
	for from, ended := 0, false; ; {
		all := p.out.whole()
		for ; from < len(all); from++ {
			if !strings.HasPrefix(all[from], prefix) {
				continue
			}
			if n == 0 {
				return all[from]
			}
			n--
		}
		if ended {
			p.fail("ended with %v before it printed %q", p.cmd.ProcessState, prefix)
		}
		select {
		case <-p.out.more:
		case <-p.exited:
			ended = true // check once more
		case <-deadline:
			p.fail("did not print %q", prefix)
		}
	}
}

// Output returns the whole lines of standard output so far: after Wait, all.
func (p *Proc) Output() []string { return p.out.whole() }

// Errors returns the complete lines of standard error so far; after Wait, all.
func (p *Proc) Errors() []string { return p.errs.whole() }

// Calls reads the report of a program that StartChain started and that is Done or has
// ended.
func (p *Proc) Calls() ([]Call, Summary) {
	p.t.Helper()
	f, err := os.Open(p.report)
	if err != nil {
		p.fail("no report: %v", err)
	}
	defer f.Close()
	calls, sum, err := ReadReport(f)
	if err != nil {
		p.fail("%v", err)
	}
	return calls, sum
}

func (p *Proc) fail(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s (PID %d): %s\nstandard output: %q\nstandard error: %q",
		strings.Join(p.cmd.Args, " "), p.PID, fmt.Sprintf(format, args...), p.out.whole(), p.errs.whole())
}

// lines collects written data and splits it into lines. It may be written and read
// concurrently.
type lines struct {
	mu   sync.Mutex
	all  []string
	part []byte
	more chan struct{} // has a value after a write, capacity 1
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	l.part = append(l.part, b...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			break
		}
		l.all = append(l.all, string(line))
		l.part = rest
	}
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (l *lines) whole() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"github.com/sliverprof/sliver/internal/testprog"
)

// terminal is sliver in a pseudo-terminal, with an emulated screen.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	pty  *os.File
	vt   vt10x.Terminal
	done chan struct{} // sliver has ended, and all of its output is here

	mu  sync.Mutex
	raw bytes.Buffer // sliver's output so far
	new chan struct{}
}

// pictureEnd ends each picture that tcell writes: the end of a synchronized update.
var pictureEnd = []byte("\x1b[?2026l")

// inTerminal starts sliver in a terminal of the given size.
func inTerminal(t *testing.T, cols, rows int, env []string, args ...string) *terminal {
	t.Helper()
	cmd := slivercmd(t, t.TempDir(), args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR="), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true, Setctty: true}
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: uint16(rows), Cols: uint16(cols)})
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, cmd: cmd, pty: f, vt: vt10x.New(vt10x.WithSize(cols, rows)), done: make(chan struct{}), new: make(chan struct{}, 1)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		var part []byte
		for {
			n, err := f.Read(buf)
			part = append(part, buf[:n]...)
			// A picture can be read in several parts, and half of one shows what never was.
			whole := bytes.LastIndex(part, pictureEnd) + len(pictureEnd)
			switch {
			case err != nil:
				whole = len(part)
			case whole < len(pictureEnd):
				whole = 0
			}
			x.mu.Lock()
			x.raw.Write(buf[:n])
			x.vt.Write(part[:whole])
			x.mu.Unlock()
			part = part[whole:]
			select {
			case x.new <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = cmd.Wait() // the status is in the state
		<-read         // the kernel returns EIO after the last writer has closed
		close(x.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-x.done
		f.Close()
	})
	return x
}

// screen returns the visible text.
func (x *terminal) screen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.vt.String()
}

// sees waits until the screen satisfies ok.
func (x *terminal) sees(what string, ok func(screen string) bool) string {
	x.t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		if s := x.screen(); ok(s) {
			return s
		}
		select {
		case <-x.new:
		case <-x.done:
			if s := x.screen(); ok(s) {
				return s
			}
			x.t.Fatalf("sliver ended with %v and never showed %s:\n%s", x.cmd.ProcessState, what, x.screen())
		case <-limit:
			x.t.Fatalf("never on the screen: %s\n%s", what, x.screen())
		}
	}
}

func (x *terminal) shows(re string) string {
	x.t.Helper()
	r := regexp.MustCompile("(?m)" + re)
	return x.sees(re, r.MatchString)
}

func (x *terminal) hides(text string) string {
	x.t.Helper()
	return x.sees("anything but "+text, func(s string) bool { return !strings.Contains(s, text) })
}

func (x *terminal) types(keys string) {
	x.t.Helper()
	if _, err := io.WriteString(x.pty, keys); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminal) resize(cols, rows int) {
	x.t.Helper()
	x.mu.Lock()
	x.vt.Resize(cols, rows)
	x.mu.Unlock()
	if err := pty.Setsize(x.pty, &pty.Winsize{Rows: uint16(rows), Cols: uint16(cols)}); err != nil {
		x.t.Fatal(err)
	}
}

// leaves waits for sliver's end and verifies status 0 and the restored terminal.
func (x *terminal) leaves() {
	x.t.Helper()
	select {
	case <-x.done:
	case <-time.After(2 * time.Minute):
		x.t.Fatalf("sliver does not end:\n%s", x.screen())
	}
	if c := x.cmd.ProcessState.ExitCode(); c != 0 {
		x.t.Errorf("status %d", c)
	}
	if !strings.Contains(x.written(), "\x1b[?1049l") {
		x.t.Error("the screen is not as it was before")
	}
}

// written returns sliver's output so far.
func (x *terminal) written() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.raw.String()
}

// contend starts threads that contend for a lock.
func contend(t *testing.T, threads, seconds int) *testprog.Proc {
	t.Helper()
	testprog.Need(t, "ptrace")
	p := testprog.Start(t, testprog.Build(t, "locks/contend", "O2"), "normal", fmt.Sprint(threads), fmt.Sprint(seconds))
	p.Line("{")
	p.Go()
	return p
}

var funcLine = regexp.MustCompile(`(?m)^ *(\d+\.\d)% +(\d+\.\d)%  (.*?) *$`)

// funcsOn returns the functions on a screen: self and total in percent, and the name.
func funcsOn(t *testing.T, screen string) (self, total []float64, names []string) {
	t.Helper()
	for _, m := range funcLine.FindAllStringSubmatch(screen, -1) {
		a, _ := strconv.ParseFloat(m[1], 64)
		b, _ := strconv.ParseFloat(m[2], 64)
		self, total, names = append(self, a), append(total, b), append(names, m[3])
	}
	if len(names) == 0 {
		t.Fatalf("no functions on the screen:\n%s", screen)
	}
	return self, total, names
}

func falling(xs []float64) bool {
	return slices.IsSortedFunc(xs, func(a, b float64) int { return cmp.Compare(b, a) })
}

// settled waits until functions have names and threads are known.
func (x *terminal) settled() string {
	x.t.Helper()
	x.shows(`^ *\d+\.\d% +\d+\.\d%  work \[contend\] *$`)
	return x.shows(`^ *\d+ +\d+\.\d%  \w+ +contend +\S`)
}

// A user's session in a terminal of 80 by 24.
func TestTopKeys(t *testing.T) {
	p := contend(t, 4, 120)
	x := inTerminal(t, 80, 24, nil, "top", "-d", "1s", pidOf(p))
	s := x.settled()
	for _, want := range []string{"sliver top " + pidOf(p) + " contend  5 threads  CPU ", "window 1s  by wall  sort self", "losses",
		">  SELF   TOTAL  FUNCTION", "TID     CPU  STATE    NAME             WAITS FOR, OR IS IN", "q quit  Tab table  Enter stack"} {
		if !strings.Contains(s, want) {
			t.Errorf("no %q on\n%s", want, s)
		}
	}
	if self, _, _ := funcsOn(t, s); !falling(self) {
		t.Errorf("not by self: %v", self)
	}
	x.shows(`mutex mutex, held by \d+ contend`)

	x.types("s")
	if _, total, _ := funcsOn(t, x.shows("by wall  sort total")); !falling(total) {
		t.Errorf("not by total: %v", total)
	}
	x.types("s")
	if _, _, names := funcsOn(t, x.shows("sort name")); !slices.IsSorted(names) {
		t.Errorf("not by name: %q", names)
	}
	x.types("sw")
	x.shows("by cpu  sort self")
	x.shows("w by wall")
	x.types("w")

	x.types("/MUTEX")
	x.shows("^filter: MUTEX")
	x.types("\r")
	s = x.shows(`FUNCTION  \(filter MUTEX: \d of \d+\)`)
	if _, _, names := funcsOn(t, s); slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(n, "mutex") }) {
		t.Errorf("filtered: %q", names)
	}
	x.types("/\x15/^(work|main)$/\r")
	s = x.shows(`filter /\^\(work\|main\)\$/: 2 of`)
	if _, _, names := funcsOn(t, s); len(names) != 2 {
		t.Errorf("filtered by an expression: %q", names)
	}
	x.types("/\x15nonesuch\r")
	x.shows("nothing matches the filter")
	x.types("/\x15/(/")
	x.shows("not a regular expression yet")
	x.types("\x1b")
	x.shows("filter nonesuch")
	x.types("\x1b")
	x.hides("(filter")

	// The other table, and the stack of a waiting thread.
	x.types("\t")
	x.shows("^>   TID")
	x.types("ss")
	x.shows("sort tid")
	x.types("\x1b[B\x1b[B\r")
	s = x.shows(`work  contend\.c:\d+ \[contend\]`)
	if !regexp.MustCompile(`(?m)^TID \d+ contend  `).MatchString(s) || !strings.Contains(s, "  0  ") || strings.Contains(s, "SELF") {
		t.Errorf("the stack:\n%s", s)
	}
	x.types("\x1b")
	x.shows("SELF")
	x.types("?")
	x.shows("Space        hold the picture")
	x.types("?")
	x.shows("SELF")
	x.types("q")
	x.leaves()
	free(t, p.PID)
}

// A paused screen does not change over time; another key still works.
func TestTopPause(t *testing.T) {
	testprog.Whole(t, "TestTopKeys has the keys")
	p := contend(t, 2, 120)
	x := inTerminal(t, 80, 24, nil, "top", "-d", "500ms", pidOf(p))
	x.settled()
	x.types(" ")
	s := x.shows("PAUSED")
	clock := func(s string) string { return regexp.MustCompile(`\d\d:\d\d:\d\d`).FindString(s) }
	at, funcs := clock(s), funcLine.FindAllString(s, -1)
	for to := time.Now().Add(2100 * time.Millisecond); time.Now().Before(to); {
		x.types("w")
		x.shows("ms  by cpu")
		x.types("w")
		x.shows("ms  by wall")
	}
	x.sees(fmt.Sprintf("what there was at %s: %q", at, funcs), func(s string) bool {
		return clock(s) == at && slices.Equal(funcLine.FindAllString(s, -1), funcs)
	})
	x.types(" ")
	x.hides("PAUSED")
	x.sees("a later time", func(s string) bool { return clock(s) > at })
	x.types("\x03")
	x.leaves()
	free(t, p.PID)
}

func TestTopResize(t *testing.T) {
	p := contend(t, 4, 120)
	x := inTerminal(t, 80, 24, nil, "top", "-d", "500ms", pidOf(p))
	x.settled()
	for _, size := range [][2]int{{132, 43}, {40, 12}, {20, 5}, {3, 2}, {80, 24}} {
		x.resize(size[0], size[1])
		foot := "q quit  Tab table  Enter stack  s sort  w by cpu  i idle  / filter  ? help"
		if size[0] < len(foot) {
			foot = foot[:size[0]-1]
		}
		s := x.sees(fmt.Sprintf("a picture of %v", size), func(s string) bool {
			ls := strings.Split(s, "\n")
			return len(ls) >= size[1] && strings.HasPrefix(ls[size[1]-1], foot) && strings.HasPrefix(ls[0], "sliver"[:min(6, size[0]-1)])
		})
		if size[1] == 43 {
			// More than fit on the previous screen; how many appear in half a second is
			// random.
			if _, _, names := funcsOn(t, s); len(names) < 13 {
				t.Errorf("%d functions on a large screen:\n%s", len(names), s)
			}
		}
	}
	x.types("q")
	x.leaves()
}

// When the target ends, the screen says so and keeps the last table.
func TestTopTargetEnds(t *testing.T) {
	p := contend(t, 2, 120)
	x := inTerminal(t, 80, 24, nil, "top", "-d", "500ms", pidOf(p))
	x.settled()
	p.Kill()
	s := x.shows(`TARGET ENDED at \d\d:\d\d:\d\d; q leaves`)
	if _, _, names := funcsOn(t, s); !slices.ContainsFunc(names, func(n string) bool { return n == "work [contend]" }) {
		t.Errorf("the last table:\n%s", s)
	}
	x.shows("contend  0 threads")
	if s = x.shows("ended +contend"); strings.Contains(s, "blocked") {
		t.Errorf("a thread outlived the process:\n%s", s)
	}
	x.types("q")
	x.leaves()
}

// NO_COLOR: no colour sequences.
func TestTopNoColor(t *testing.T) {
	p := spin(t)
	testprog.Prompt(t, []int{p.PID}) // a row says "running" only while it has a CPU
	colour := regexp.MustCompile(`\x1b\[([0-9;]*;)?[34][0-7](;[0-9;]*)?m`)
	for _, c := range []struct {
		env  []string
		want bool
	}{{nil, true}, {[]string{"NO_COLOR=1"}, false}} {
		x := inTerminal(t, 80, 24, c.env, "top", "-d", "500ms", pidOf(p))
		x.shows(`^ *\d+ +\d+\.\d%  running +spin`)
		if c.want {
			x.sees("a running thread's colour", func(string) bool { return colour.MatchString(x.written()) })
		}
		x.types("q")
		x.leaves()
		if got := colour.FindString(x.written()); (got != "") != c.want {
			t.Errorf("%q: colour %q", c.env, got)
		}
	}
}

// SIGTERM restores the terminal and leaves the target running.
func TestTopSignal(t *testing.T) {
	p := contend(t, 2, 120)
	x := inTerminal(t, 80, 24, nil, "top", pidOf(p))
	x.shows("FUNCTION")
	if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.leaves()
	free(t, p.PID)
}

// If the terminal disappears, as with a broken connection, sliver ends.
func TestTopTerminalGone(t *testing.T) {
	p := contend(t, 2, 120)
	x := inTerminal(t, 80, 24, nil, "top", pidOf(p))
	x.shows("FUNCTION")
	x.pty.Close()
	select {
	case <-x.done:
	case <-time.After(2 * time.Minute):
		t.Fatal("sliver goes on without a terminal")
	}
	free(t, p.PID)
}

func TestTopOnce(t *testing.T) {
	p := spin(t)
	r := sliver(t, t.TempDir(), "top", "--once", "-d", "1s", "--by", "cpu", "-n", "5", pidOf(p))
	if r.status != 0 || r.errors != "" || strings.Contains(r.out, "\x1b") {
		t.Fatalf("%+v", r)
	}
	self, total, names := funcsOn(t, r.out)
	if len(names) != 5 || !strings.HasPrefix(names[0], "prog_spin") && !strings.HasPrefix(names[0], "prog_now") &&
		!strings.Contains(names[0], "vdso") || !falling(self) || total[0] <= 0 {
		t.Errorf("%q\n%s", names, r.out)
	}
	for _, want := range []string{"PID " + pidOf(p) + " (spin): 1 thread,", "FUNCTION (by cpu)", "and ", "  spin  "} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
	// It begins with the first sample, which comes late on a busy machine.
	if !regexp.MustCompile(`window (1s|0\.[5-9]\d*s)`).MatchString(r.out) {
		t.Errorf("not a window of a second:\n%s", r.out)
	}
	r = sliver(t, t.TempDir(), "top", "--json", "-d", "1s", "--filter", "/^spin_29$/", pidOf(p))
	var got struct {
		Version   int
		PID       int
		Name      string
		Ended     bool
		Window    int64 `json:"window_ns"`
		Functions []struct {
			Func, Module string
			Self         int64 `json:"self_cpu_ns"`
			Total        int64 `json:"total_cpu_ns"`
			Wall         int64 `json:"total_wall_ns"`
		}
		Threads []struct {
			TID         int
			Name, State string
			CPU         int64 `json:"cpu_ns"`
			Wall        int64 `json:"wall_ns"`
		}
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.status != 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	if got.Version != 1 || got.PID != p.PID || got.Name != "spin" || got.Ended || got.Window < int64(time.Second/2) || got.Window > int64(time.Second) ||
		len(got.Functions) != 1 || len(got.Threads) != 1 {
		t.Fatalf("%+v", got)
	}
	// It is on the stack whenever the thread runs.
	f, th := got.Functions[0], got.Threads[0]
	if f.Func != "spin_29" || !strings.HasSuffix(f.Module, "/spin") || f.Self != 0 || f.Total != th.CPU || f.Wall != th.Wall ||
		th.CPU <= 0 || th.CPU > got.Window*11/10 || th.Wall > got.Window || th.TID != p.PID || th.Name != "spin" {
		t.Errorf("%+v", got)
	}
	free(t, p.PID)
}

// COLUMNS sets the line width of a table, in a pipe and in a terminal; otherwise the
// terminal's width does. Without either, or with an invalid COLUMNS, lines are complete.
func TestTopColumns(t *testing.T) {
	p := spin(t)
	args := []string{"top", "--once", "-d", "200ms", pidOf(p)}
	longest := func(out string) (n int) {
		t.Helper()
		if !strings.HasPrefix(out, "PID ") || !strings.Contains(out, "FUNCTION") {
			t.Fatalf("no table: %q", out)
		}
		for _, line := range strings.Split(out, "\n") {
			n = max(n, len([]rune(strings.TrimSuffix(line, "\r"))))
		}
		return n
	}
	for _, c := range []struct {
		columns string
		want    int
	}{{"40", 40}, {"30", 30}, {"", 0}, {"-3", 0}, {"wide", 0}} {
		cmd := slivercmd(t, t.TempDir(), args...)
		cmd.Env = append(os.Environ(), "COLUMNS="+c.columns)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if n := longest(string(out)); c.want > 0 && n != c.want || c.want == 0 && n <= 40 {
			t.Errorf("COLUMNS=%q: %d columns\n%s", c.columns, n, out)
		}
		if c.columns == "30" || c.columns == "wide" {
			want := cmp.Or(c.want, 44)
			x := inTerminal(t, 44, 20, []string{"COLUMNS=" + c.columns}, args...)
			<-x.done
			if n := longest(x.written()); n != want {
				t.Errorf("COLUMNS=%q, in a terminal: %d columns, want %d\n%s", c.columns, n, want, x.written())
			}
		}
	}
	free(t, p.PID)
}

func TestTopBadInput(t *testing.T) {
	p := spin(t)
	pid := pidOf(p)
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"top", 2, "give a process number"},
		{"top x", 2, `invalid PID "x"`},
		{"top 0", 2, "invalid PID"},
		{"top 4194303", 1, "no process 4194303"}, // before other errors
		{"top " + pid, 2, "needs a terminal; --once prints one table"},
		{"top --once 4194303", 1, "no process 4194303"},
		{"top --once -d 0 " + pid, 2, "duration: 0s is out of range; use 200ms to 5m0s"},
		{"top --once -d x " + pid, 2, "invalid"},
		{"top --once -i 2s " + pid, 2, "interval: 2s is out of range; use 100µs to 1s"},
		{"top --once -n -1 " + pid, 2, "rows: -1 is negative"},
		{"top --once --by x " + pid, 2, `by: "x" is none of wall, cpu`},
		{"top --once --sort x " + pid, 2, `sort: "x" is none of self, total, name`},
		{"top --once --filter /(/ " + pid, 2, "filter: error parsing regexp"},
		{"top --once --stop-policy x " + pid, 2, "auto, always, running"},
		{"top --once --max-overhead 100% " + pid, 2, "out of range"},
		{"top --once -t nosuch " + pid, 1, `no thread of process ` + pid + ` matches "nosuch"; there are: 1=spin`},
		{"top --frob " + pid, 2, "unknown flag: --frob"},
	} {
		r := sliver(t, t.TempDir(), strings.Fields(c.args)...)
		if r.status != c.status || !strings.Contains(r.errors, c.says) || strings.Count(r.errors, "\n") != 1 || r.out != "" {
			t.Errorf("sliver %s: status %d, %q, %q; want %d and %q", c.args, r.status, r.errors, r.out, c.status, c.says)
		}
	}
	// In a terminal too, on its own screen.
	for _, c := range []struct {
		env    string
		args   []string
		status int
		says   string
	}{
		{"A=", []string{"4194303"}, 1, "sliver: no process 4194303"},
		{"A=", []string{"-n", "3", pid}, 2, "--rows goes with --once"},
		{"TERM=nonesuch", []string{pid}, 1, "cannot draw in this terminal"},
	} {
		x := inTerminal(t, 80, 24, []string{c.env}, append([]string{"top"}, c.args...)...)
		<-x.done
		if s := x.written(); !strings.Contains(s, c.says) || strings.Count(s, "\n") != 1 || strings.Contains(s, "\x1b") ||
			x.cmd.ProcessState.ExitCode() != c.status {
			t.Errorf("%v %v: %d, %q", c.env, c.args, x.cmd.ProcessState.ExitCode(), s)
		}
	}
	free(t, p.PID)
}

// Another user's process: a one-line error, before anything is drawn.
func TestTopRefused(t *testing.T) {
	testprog.Need(t, "ptrace", "root")
	p := spin(t)
	cmd := slivercmd(t, "/", "top", "--once", pidOf(p))
	cmd.Path = copyFor(t, cmd.Path)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	out, _ := cmd.CombinedOutput()
	if s := string(out); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(s, "user") || strings.Count(s, "\n") != 1 {
		t.Errorf("status %d, %q", cmd.ProcessState.ExitCode(), s)
	}
}

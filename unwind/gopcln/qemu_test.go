package gopcln

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// remote is an arm64 program under QEMU, controlled by its debugger stub (protocol: "GDB Remote
// Serial Protocol" in the GDB manual).
type remote struct {
	conn net.Conn
	r    *bufio.Reader
}

func (g *remote) send(t testing.TB, s string) {
	t.Helper()
	sum := byte(0)
	for i := 0; i < len(s); i++ {
		sum += s[i]
	}
	if _, err := fmt.Fprintf(g.conn, "$%s#%02x", s, sum); err != nil {
		t.Fatal(err)
	}
}

// receive acknowledges and returns the next packet.
func (g *remote) receive(t testing.TB) string {
	t.Helper()
	// The program runs all the time: after a minute the answer is lost.
	if err := g.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.r.ReadString('$'); err != nil {
		t.Fatal(err)
	}
	s, err := g.r.ReadString('#')
	if err == nil {
		_, err = g.r.Discard(2)
	}
	if err == nil {
		_, err = g.conn.Write([]byte("+"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(s, "#")
}

// crossed reports that another thread stopped while one was held. QEMU's stub cannot handle two
// stops, and its answers are mixed up from then on.
type crossed struct{}

// ask returns the answer to s. The answer must not be a stop.
func (g *remote) ask(t testing.TB, s string) string {
	t.Helper()
	g.send(t, s)
	a := g.receive(t)
	if strings.HasPrefix(a, "T") {
		panic(crossed{})
	}
	return a
}

// resume continues the program with the command s until it stops. It returns the signal and the
// thread of the stop.
func (g *remote) resume(t testing.TB, s string) (sig, thread string) {
	t.Helper()
	g.send(t, s)
	stop := g.receive(t)
	if len(stop) < 3 || stop[0] != 'T' {
		t.Fatalf("stopped by %q", stop)
	}
	_, thread, _ = strings.Cut(stop, "thread:")
	thread, _, _ = strings.Cut(thread, ";")
	return stop[1:3], thread
}

// words reads memory, once per page.
type words struct {
	t     testing.TB
	g     *remote
	pages map[uint64][]byte
}

func (w *words) Word(addr uint64) (uint64, bool) {
	const size = 256
	page := addr &^ (size - 1)
	b, ok := w.pages[page]
	if !ok {
		b, _ = hex.DecodeString(w.g.ask(w.t, fmt.Sprintf("m%x,%x", page, size)))
		w.pages[page] = b
	}
	if o := addr - page; o+8 <= uint64(len(b)) {
		return binary.LittleEndian.Uint64(b[o:]), true
	}
	return 0, false
}

func (g *remote) regs(t testing.TB) stack.Regs {
	t.Helper()
	b, err := hex.DecodeString(g.ask(t, "g"))
	if err != nil || len(b) < 33*8 {
		t.Fatalf("registers: %x, %v", b, err)
	}
	var r stack.Regs
	for i := 0; i <= 31; i++ {
		r.Set(i, binary.LittleEndian.Uint64(b[8*i:]))
	}
	r.PC = binary.LittleEndian.Uint64(b[32*8:])
	return r
}

// TestWalkARM64 stops arm64 programs under emulation at places where the walk has to switch stacks,
// or where the table alone does not suffice. The walk must reach the function that calls
// everything, and the goroutine's start.
func TestWalkARM64(t *testing.T) {
	testprog.Whole(t, "an emulator; TestWalkLive has this machine's own code")
	testprog.Unraced(t, "its walks are in one goroutine")
	if _, err := exec.LookPath("qemu-aarch64"); err != nil {
		need(t, "qemu-aarch64", "qemu-aarch64 is not installed")
	}
	for _, c := range []struct {
		mode, at string
		through  []string // frames that the stack must contain
	}{
		{"chan", "runtime.makechan", nil},
		{"alloc", "runtime.(*mheap).allocSpan", []string{"runtime.systemstack"}},
		{"stack", "runtime.traceback2", []string{"runtime.systemstack", "runtime.Stack"}},
		{"grow", "runtime.copystack", []string{"runtime.newstack", "runtime.morestack", "main.grow"}},
		{"switch", "runtime.gosched_m", []string{"runtime.mcall"}},
		{"switch", "runtime.save_g", nil}, // called by mcall and gogo, which have no frame
		{"time", "runtime.walltime", nil},
		{"panic", "runtime.sighandler", []string{"runtime.sigtramp"}},
		{"panic", "runtime.gopanic", []string{"runtime.sigpanic"}},
		{"preempt", "runtime.sighandler", []string{"runtime.sigtramp", "main.count"}},
		{"preempt", "runtime.asyncPreempt2", []string{"runtime.asyncPreempt"}},
	} {
		t.Run(c.mode+" "+c.at, func(t *testing.T) {
			for try := 1; !walkARM64(t, c.mode, c.at, c.through); try++ {
				if t.Logf("two threads stopped at once"); try == 10 {
					t.Fatalf("each of %d times", try)
				}
			}
		})
	}
}

// entryOf finds a function by its name.
func entryOf(t *testing.T, tab *Table, name string) uint64 {
	t.Helper()
	for i := uint64(0); i < tab.nfunc; i++ {
		var f fn
		if err := tab.load(i, &f); err != nil {
			t.Fatal(err)
		}
		if n, err := tab.nameOf(&f); err == nil && n == name {
			return f.entry
		}
	}
	t.Fatal("no function", name)
	return 0
}

// walkARM64 returns false if the stub is out of step.
func walkARM64(t *testing.T, mode, at string, through []string) (whole bool) {
	defer func() {
		if p := recover(); p != nil && p != any(crossed{}) {
			panic(p)
		}
	}()
	path := build(t, arm64Build)
	tab, _ := load(t, path)
	place := entryOf(t, tab, at)
	g := emulate(t, path, mode)
	breakpoint := fmt.Sprintf("0,%x,4", place)
	if a := g.ask(t, "Z"+breakpoint); a != "OK" {
		t.Fatalf("breakpoint: %q", a)
	}
	rt := NewRuntime(tab, 0)
	threads := map[string]*Thread{}
	lo, hi := tab.Bounds()
	walks, most := 20, 2000
	if at == "runtime.save_g" {
		walks, most = 0, 150 // never below main.knownCaller
	}
	goOn, with, more := "c", 0, 0
	stops := 0
	for (with < walks || walks == 0) && stops < most {
		sig, id := g.resume(t, goOn)
		const trap = "05"
		if sig != trap {
			goOn = "C" + sig // one of the program's own signals
			continue
		}
		goOn = "c"
		// QEMU stops only this thread; the others run on.
		th := threads[id]
		if th == nil {
			th = rt.Thread(0)
			threads[id] = th
		}
		stops++
		for steps := 0; ; steps++ {
			mem := &words{t: t, g: g, pages: map[uint64][]byte{}}
			w := walker{arch: rule.ARM64, thread: th, mem: mem, live: mem, modules: []module{{lo: lo, hi: hi, golang: tab}}}
			regs := g.regs(t)
			frames, err := w.walk(regs)
			s := sampledARM{frames, err}
			if err != nil {
				t.Fatalf("walk %d fails:%v", stops, s)
			}
			more++
			if (s.index("main.knownCaller") >= 0 || s.index("main.grow") >= 0) && s.frames[len(s.frames)-1].name == "runtime.goexit" {
				if steps == 0 && !s.starts() {
					with++
					for i, f := range through {
						if s.index(f) < 0 || i > 0 && s.index(f) < s.index(through[i-1]) {
							t.Fatalf("no %s in its place:%v", f, s)
						}
					}
				}
			}
			// Single-step through the prologue and beyond.
			const further = 12
			if steps == further {
				break
			}
			if steps == 0 {
				g.ask(t, "z"+breakpoint)
			}
			sig, other := g.resume(t, "s")
			if other != id {
				return false
			}
			if sig != trap {
				goOn = "C" + sig
				break
			}
		}
		g.ask(t, "Z"+breakpoint)
	}
	t.Logf("%d stops, %d walks, all complete; %d stops below main.knownCaller", stops, more, with)
	if with < walks {
		t.Errorf("%d of %d walks show main.knownCaller", with, stops)
	}
	return true
}

// emulate starts an arm64 program under QEMU, stopped at its first instruction.
func emulate(t *testing.T, path, mode string) *remote {
	t.Helper()
	sock := filepath.Join(t.TempDir(), "gdb")
	cmd := exec.Command("qemu-aarch64", "-g", sock, path, mode, "locked")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
	})
	g := &remote{}
	for g.conn == nil { // until it listens
		conn, err := net.Dial("unix", sock)
		select {
		case e := <-ended:
			ended <- e
			t.Fatal(e)
		default:
		}
		if err == nil {
			g.conn = conn
		} else {
			runtime.Gosched()
		}
	}
	t.Cleanup(func() { g.conn.Close() })
	g.r = bufio.NewReader(g.conn)
	g.ask(t, "qSupported")
	g.resume(t, "?") // it is stopped
	return g
}

// sampledARM is one walk.
type sampledARM struct {
	frames []walked
	err    error
}

func (s sampledARM) index(name string) int {
	for i, f := range s.frames {
		if f.name == name {
			return i
		}
	}
	return -1
}

// starts reports that main.knownCaller is still being entered, or is reporting that it is ready. It
// has not called anything of its mode yet.
func (s sampledARM) starts() bool {
	known := s.index("main.knownCaller")
	return s.index("fmt.Fprintln") >= 0 || known > 0 && s.frames[known-1].name == "runtime.morestack"
}

func (s sampledARM) String() string { return sampled{frames: s.frames, err: s.err}.String() }

package gopcln

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/rule"
)

// remote is an arm64 program under QEMU, held by its debugger stub (protocol:
// "GDB Remote Serial Protocol" in the GDB manual).
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

// receive gives the next packet, acknowledged.
func (g *remote) receive(t testing.TB) string {
	t.Helper()
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

// ask gives the answer to s. A second stop, where an interrupt met a signal,
// may come before it: it was asked for, and is over.
func (g *remote) ask(t testing.TB, s string) string {
	t.Helper()
	g.send(t, s)
	for {
		if a := g.receive(t); !isStop(a) || s == "?" {
			return a
		}
	}
}

func isStop(s string) bool { return strings.HasPrefix(s, "T") && strings.Contains(s, "thread:") }

// interrupt stops the program and gives the stop's packet. QEMU may drop an
// interrupt that meets a signal: it is repeated. "" if there is no answer.
func (g *remote) interrupt(t testing.TB) string {
	t.Helper()
	const tries = 20
	for range tries {
		if _, err := g.conn.Write([]byte{3}); err != nil {
			t.Fatal(err)
		}
		if err := g.conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		b, err := g.r.Peek(1)
		for err == nil && b[0] != '$' { // acknowledgements
			g.r.Discard(1)
			b, err = g.r.Peek(1)
		}
		g.conn.SetReadDeadline(time.Time{})
		if err == nil {
			if s := g.receive(t); isStop(s) {
				return s
			}
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	return ""
}

// words reads memory, once for each page that is asked for.
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

// TestWalkARM64 walks the threads of arm64 programs under emulation, where the
// stacks change and where they do not.
func TestWalkARM64(t *testing.T) {
	if _, err := exec.LookPath("qemu-aarch64"); err != nil {
		need(t, "qemu-aarch64", "qemu-aarch64 is not installed")
	}
	for _, mode := range []string{"compute", "alloc", "stack", "time", "switch", "signal", "panic", "map"} {
		t.Run(mode, func(t *testing.T) { walkARM64(t, mode) })
	}
}

func walkARM64(t *testing.T, mode string) {
	path := build(t, arm64Build)
	tab, _ := load(t, path)
	sock := filepath.Join(t.TempDir(), "gdb")
	cmd := exec.Command("qemu-aarch64", "-g", sock, path, mode, "locked")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	g := &remote{}
	for g.conn == nil { // until it listens
		if g.conn, err = net.Dial("unix", sock); err != nil && cmd.ProcessState != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { g.conn.Close() })
	g.r = bufio.NewReader(g.conn)
	g.ask(t, "qSupported")
	g.ask(t, "?")
	ready := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		ready <- line
	}()
	g.send(t, "c")
	rt := NewRuntime(tab, 0)
	threads := map[string]*Thread{}
	lo, hi := tab.Bounds()
	const rounds = 60
	running := false
	walks, bad, main, seen := 0, 0, 0, map[string]int{}
	for i := 0; i < rounds; {
		stop := g.interrupt(t)
		if stop == "" {
			t.Log("QEMU does not answer any more")
			break
		}
		const interrupt, trap = "02", "05"
		goOn := "c"
		if sig := stop[1:3]; sig != interrupt && sig != trap {
			goOn = "C" + sig // a signal of its own
		}
		if !running {
			select {
			case line := <-ready:
				if running = line == "ready\n"; !running {
					t.Fatalf("%q", line)
				}
			default:
				g.send(t, goOn)
				continue
			}
		}
		i++
		// QEMU stops this thread alone: the others run on.
		_, id, _ := strings.Cut(stop, "thread:")
		id, _, _ = strings.Cut(id, ";")
		{
			th := threads[id]
			if th == nil {
				th = rt.Thread(0)
				threads[id] = th
			}
			mem := &words{t: t, g: g, pages: map[uint64][]byte{}}
			w := walker{arch: rule.ARM64, thread: th, mem: mem, live: mem,
				modules: []module{{lo: lo, hi: hi, golang: tab}}}
			frames, err := w.walk(g.regs(t))
			s := sampled2{frames, err}
			if walks++; err != nil {
				if bad++; bad <= 5 {
					t.Logf("walk fails:%v", s)
				}
			}
			for _, f := range frames {
				seen[f.name]++
			}
			if seen["main.knownCaller"] > main {
				main = seen["main.knownCaller"]
				if last := frames[len(frames)-1].name; err == nil && last != "runtime.goexit" {
					t.Errorf("ends in %s:%v", last, s)
				}
			}
		}
		g.send(t, goOn)
	}
	t.Logf("%d walks of %d threads, %d fail, %d with the caller; systemstack %d, mcall %d, morestack %d, sigtramp %d, nanotime %d",
		walks, len(threads), bad, main, seen["runtime.systemstack"], seen["runtime.mcall"], seen["runtime.morestack"],
		seen["runtime.sigtramp"], seen["runtime.nanotime1"]+seen["runtime.walltime"])
	if walks < rounds/3 {
		need(t, "qemu-aarch64", "QEMU's debugger stub does not answer")
	}
	if bad > walks/200 || main == 0 {
		t.Errorf("%d of %d walks are not complete, %d with main.knownCaller", bad, walks, main)
	}
}

// sampled2 prints a walk.
type sampled2 struct {
	frames []walked
	err    error
}

func (s sampled2) String() string {
	var b strings.Builder
	for i, f := range s.frames {
		if i > 12 && i < len(s.frames)-3 {
			continue
		}
		fmt.Fprintf(&b, "\n\t%#x %s %v %v", f.pc, f.name, f.step, f.exact)
	}
	fmt.Fprintf(&b, "\n\t%v", s.err)
	return b.String()
}

package target

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

func asRefusal(err error, r **Refusal) bool { return errors.As(err, r) }

func atoi(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The registers and the stack of a thread that holds known values.
func TestCaptureRegisters(t *testing.T) {
	prog, block, th, tr, w := knownRegs(t)
	for i := range 300 {
		w.Spans = []stack.Span{{Addr: block + 100, Len: 50}, {Addr: 8, Len: 16}, {Addr: block, Len: 8}}
		w.StackHigh = block + 4096
		capture(t, tr, th, w)
		for r := range 16 {
			want := 0x1111111111111100 + uint64(r)
			if r == 7 {
				want = block
			}
			if !w.Regs.Has(r) || w.Regs.R[r] != want {
				t.Fatalf("sample %d: register %d is %#x, want %#x", i, r, w.Regs.R[r], want)
			}
		}
		if !w.Regs.Has(16) || w.Regs.R[16] != w.Regs.PC || w.Regs.TLS == 0 {
			t.Fatalf("return address column %#x, PC %#x, TLS %#x", w.Regs.R[16], w.Regs.PC, w.Regs.TLS)
		}
		if w.Call.Nr != -1 || w.Restarted || w.Interrupt || w.Sig != 0 || w.Group {
			t.Fatalf("call %v restarted %v interrupted %v signal %d group %v", w.Call, w.Restarted, w.Interrupt, w.Sig, w.Group)
		}
		if block-w.StackAddr > redZone || len(w.Stack()) != int(block-w.StackAddr)+4096 {
			t.Fatalf("%d bytes at %#x", len(w.Stack()), w.StackAddr)
		}
		for j, b := range w.Stack()[block-w.StackAddr:] {
			if b != byte(j*7+3) {
				t.Fatalf("byte %d of the stack is %#x", j, b)
			}
		}
		// An unreadable block costs only itself.
		if len(w.Block(0)) != 50 || w.Block(0)[0] != byte(100*7%256+3) || len(w.Block(1)) != 0 || len(w.Block(2)) != 8 || w.Block(2)[1] != 10 {
			t.Fatalf("blocks %v %v %v", w.Block(0), w.Block(1), w.Block(2))
		}
		var me *MemoryError
		if err := w.ReadErr(); !errors.As(err, &me) || me.Addr != 8 {
			t.Fatalf("read error %v", w.ReadErr())
		}
		if !(w.Asked < w.Stopped && w.Stopped < w.Resumed) || w.Counters.CPU <= 0 {
			t.Fatalf("asked %d stopped %d resumed %d, counters %+v", w.Asked, w.Stopped, w.Resumed, w.Counters)
		}
	}
	untraced(t, prog.pid())
	if c := state(t, prog.pid(), prog.pid()); c != 'R' {
		t.Errorf("state %c", c)
	}
}

func TestCaptureShortStack(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	tid := atoi(t, prog.line())
	p := openProcess(t, prog.pid())
	th := openThread(t, p, tid)
	tr := tracer(t)
	w := NewWindow(MaxStack)
	w.StackHigh = 1<<47 - 4096 // far beyond the end of the thread's stack
	capture(t, tr, th, w)
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	end := uint64(0)
	for _, m := range maps {
		// The readable part is mapped without a hole.
		if m.Start <= w.StackAddr && w.StackAddr < m.End || m.Start == end && end != 0 {
			end = m.End
		}
	}
	want := min(end-w.StackAddr, MaxStack)
	if got := uint64(len(w.Stack())); got > want || got == 0 {
		t.Errorf("%d bytes read, %d are mapped", got, want)
	}
	if w.StackAsked() != MaxStack {
		t.Errorf("asked for %d", w.StackAsked())
	}
	if len(w.Stack()) < MaxStack {
		var me *MemoryError
		if !errors.As(w.ReadErr(), &me) || me.Addr != w.StackAddr+uint64(len(w.Stack())) {
			t.Errorf("read error %v", w.ReadErr())
		}
	}
}

// Many threads, many samples, no allocation.
func TestCaptureSpinning(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "3")
	p := openProcess(t, prog.pid())
	var ths []*Thread
	for range 3 {
		ths = append(ths, openThread(t, p, atoi(t, prog.line())))
	}
	tr := tracer(t)
	w := NewWindow(0)
	before := fds(t)
	for range 100 {
		for _, th := range ths {
			capture(t, tr, th, w)
		}
	}
	if n := fds(t); n > before+maxSpares { // a stopper may have its own
		t.Errorf("%d files open, %d before", n, before)
	}
	if n := testing.AllocsPerRun(50, func() {
		if err := tr.Capture(ths[0], w); err != nil {
			t.Fatal(err)
		}
		tr.Reap()
	}); n != 0 {
		t.Errorf("%v allocations a sample", n)
	}
	var c Counters
	var call stack.Call
	if n := testing.AllocsPerRun(50, func() {
		if err := ths[0].Counters(&c); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := ths[0].Syscall(&call); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for counters and call", n)
	}
	untraced(t, prog.pid())
	if tr.Late() != 0 {
		t.Errorf("%d late", tr.Late())
	}
	prog.in.Close()
	if err := prog.wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
	if err := tr.Capture(ths[0], w); err != ErrGone {
		t.Errorf("capture of a dead thread: %v", err)
	}
	if p.Alive() {
		t.Error("alive after its end")
	}
	if _, err := p.ReadAt(make([]byte, 8), 4096); !errors.Is(err, ErrGone) {
		t.Errorf("memory of a dead process: %v", err)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(prog.pid())); err == nil {
		t.Error("not reaped")
	}
}

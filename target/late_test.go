package target

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// later requests a sample without waiting for it.
func later(t *testing.T, tr *Tracer, th *Thread, w *Window) {
	t.Helper()
	w.Later = true
	if err := tr.Capture(th, w); err != ErrLater || !th.Late() || tr.Late() != 1 {
		t.Fatalf("%v, late %v, %d late", err, th.Late(), tr.Late())
	}
}

// arrival waits for its result.
func arrival(t *testing.T, tr *Tracer) (a Arrival) {
	t.Helper()
	eventually(t, "the sample", func() bool {
		tr.Ask()
		tr.Reap()
		var ok bool
		a, ok = tr.Arrived()
		return ok
	})
	if tr.Late() != 0 || a.Thread.Late() {
		t.Fatalf("late %v, %d late", a.Thread.Late(), tr.Late())
	}
	return a
}

// A deferred sample is like any other: it copies the spans and the stack of that call, even if
// the caller changes its window afterwards.
func TestCaptureLater(t *testing.T) {
	prog, block, th, tr, w := knownRegs(t)
	last := stack.Time(0)
	for i := range 300 {
		w.Spans = []stack.Span{{Addr: block + 100, Len: 50}}
		w.StackHigh = block + 4096
		w.Deadline = 0
		later(t, tr, th, w)
		w.Spans[0] = stack.Span{Addr: block, Len: 8}
		clear(w.buf)
		a := arrival(t, tr)
		x := a.Window
		if a.Thread != th || a.Err != nil || x == w {
			t.Fatalf("arrived: %+v", a)
		}
		if !(last < x.Asked && x.Asked < x.Stopped && x.Stopped < x.Resumed && x.Counters.CPU > 0) {
			t.Fatalf("asked %d (before: %d) stopped %d resumed %d, counters %+v", x.Asked, last, x.Stopped, x.Resumed, x.Counters)
		}
		last = x.Resumed
		if x.Regs.R[7] != block || len(x.Block(0)) != 50 || x.Block(0)[0] != byte(100*7%256+3) || len(x.Stack()) != int(block-x.StackAddr)+4096 {
			t.Fatalf("sample %d: register 7 %#x, block %d bytes, stack %d", i, x.Regs.R[7], len(x.Block(0)), len(x.Stack()))
		}
		if i%2 == 0 { // and one without Later in between
			w.Later, w.Spans = false, []stack.Span{{Addr: block + 100, Len: 50}}
			capture(t, tr, th, w)
			if !bytes.Equal(w.Block(0), x.Block(0)) {
				t.Fatalf("block %v, and %v", w.Block(0), x.Block(0))
			}
		}
	}
	if len(tr.windows) > 2 || len(tr.spares) > 0 {
		t.Errorf("%d windows, %d spare stoppers for one thread", len(tr.windows), len(tr.spares))
	}
	untraced(t, prog.pid())
}

// The reason for a missing sample arrives as well.
func TestCaptureLaterNot(t *testing.T) {
	prog := start(t, build(t, "testdata/spin.c"), "1")
	tid := atoi(t, prog.line())
	p := openProcess(t, prog.pid())
	th := openThread(t, p, tid)
	tr := tracer(t)
	w := NewWindow(0)
	capture(t, tr, th, w)
	other := seizer(t, tid)
	later(t, tr, th, w)
	if a := arrival(t, tr); a.Thread != th || a.Err != ErrTraced || a.Window != nil {
		t.Errorf("of a thread that another one traces: %+v", a)
	}
	other.in.Close()
	if err := other.wait(); err != nil {
		t.Fatal(err)
	}
	later(t, tr, th, w)
	if a := arrival(t, tr); a.Err != nil {
		t.Error(a.Err)
	}
	if err := prog.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = prog.wait()
	later(t, tr, th, w)
	if a := arrival(t, tr); a.Thread != th || a.Err != ErrGone || a.Window != nil {
		t.Errorf("of a thread that is gone: %+v", a)
	}
}

// If a stopper is killed while it keeps a thread, the thread is free and can be sampled again.
func TestKeeperKilled(t *testing.T) {
	prog := start(t, build(t, "testdata/life.c"), "vfork")
	tid := atoi(t, prog.line())
	p := openProcess(t, prog.pid())
	th := openThread(t, p, tid)
	tr := tracer(t)
	w := NewWindow(0)
	eventually(t, "vfork", func() bool { s, err := th.State(); return err == nil && s == stack.StateDisk })
	later(t, tr, th, w)
	keeper := tr.keeping[0]
	eventually(t, "the request", keeper.keeps)
	if err := unix.Kill(keeper.proc, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "release", func() bool { tr.Reap(); return tr.Late() == 0 && !th.Late() })
	w.Later, w.Deadline = false, 2e6
	if err := tr.Capture(th, w); !errors.Is(err, ErrTimeout) || tr.keeping[0] == keeper {
		t.Errorf("%v", err)
	}
	prog.tell("go")
	eventually(t, "release", func() bool { tr.Reap(); return tr.Late() == 0 })
	if s := prog.line(); s != "back" {
		t.Errorf("%q", s)
	}
	untraced(t, prog.pid())
}

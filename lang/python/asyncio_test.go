package python

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestTaskOfPlaceTakenAgain: the task is unknown if its coroutine was on the stack, but another
// coroutine took its place between the stop and the read of the task.
func TestTaskOfPlaceTakenAgain(t *testing.T) {
	const minor, task, coro, code = 12, 0x1000, 0x2000, 0x3000
	r := &Runtime{img: &Image{Minor: minor}, l: layouts[minor]}
	th := &Thread{r: r, task: task}
	r.l.tsTask = 0 // the thread stores its task
	frame := coro + genFrame[minor]
	mem := make([]byte, 0x4000)
	put := func(at, v uint64) { binary.LittleEndian.PutUint64(mem[at:], v) }
	put(task+taskCoro[minor], coro)
	put(frame+r.l.fCode, code)
	s := &Stack{generators: true, Frames: []Frame{{Addr: frame, Code: code, gen: true}}}
	if got, ok := th.Task(bytes.NewReader(mem), 0, s); !ok || got.Addr != task || got.Coro != coro {
		t.Errorf("%+v, %v", got, ok)
	}
	put(frame+r.l.fCode, code+0x100)
	if got, ok := th.Task(bytes.NewReader(mem), 0, s); ok {
		t.Errorf("taken again: %+v", got)
	}
}

// TestSameStep: a thread that has entered or left a context since the copy is in another step, and
// so is another thread.
func TestSameStep(t *testing.T) {
	const minor, at = 12, 0x1000
	r := &Runtime{img: &Image{Minor: minor}, l: layouts[minor]}
	state := State{Addr: at, Interp: 0x5000, Ident: 7, Native: 9}
	mem := make([]byte, 0x2000)
	put := func(field, v uint64) { binary.LittleEndian.PutUint64(mem[at+field:], v) }
	put(r.l.tsInterp, state.Interp)
	put(r.l.tsThread, state.Ident)
	put(r.l.tsNative, uint64(state.Native))
	put(r.l.tsContext, 41)
	th, s := r.Thread(state), &Stack{}
	if !th.Capture(bytes.NewReader(mem), s) {
		t.Fatal("the thread is not there")
	}
	is := func(want bool, why string) {
		t.Helper()
		if got := th.SameStep(bytes.NewReader(mem)); got != want {
			t.Errorf("%s: %v", why, got)
		}
	}
	is(true, "nothing has changed")
	put(r.l.tsContext, 43)
	is(false, "another step")
	put(r.l.tsContext, 41)
	put(r.l.tsNative, 10)
	is(false, "another thread")
}

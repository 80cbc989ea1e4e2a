package top

import (
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// busy returns a model of 64 threads that change their stacks 40 deep at 1 kHz, with a
// window of two seconds, and the events of the first thread.
func busy() (m *Model, events []event.Event, end stack.Time) {
	m = New(2 * time.Second)
	for i := range 64 {
		r := thread(m, stack.TID(i+1), "t")
		at := ms
		for k := range 3000 {
			funcs := make([]uint64, 40)
			for j := range funcs {
				funcs[j] = uint64(j*16 + 1)
			}
			funcs[38], funcs[39] = uint64(1000+k%7), uint64(2000+k%101)
			x := &stack.Sample{Time: at, State: stack.StateRunning, CPU: int64(at), Call: stack.Call{Nr: -1}}
			for j := len(funcs) - 1; j >= 0; j-- {
				x.Stack = append(x.Stack, stack.Frame{Func: funcs[j], PC: funcs[j], CFA: uint64(1<<20 - j*64), Exact: true})
			}
			for _, e := range r.d.Step(x, nil) {
				r.t.Apply(e)
				if i == 0 {
					events = append(events, e)
				}
			}
			at += ms
		}
		end = at
	}
	return m, events, end
}

func BenchmarkTable(b *testing.B) {
	m, _, end := busy()
	for b.Loop() {
		if tb := m.Table(end, fake{}); len(tb.Funcs) < 100 {
			b.Fatal(len(tb.Funcs))
		}
	}
}

func BenchmarkApply(b *testing.B) {
	m, events, _ := busy()
	t := m.Thread(stack.ThreadInfo{TID: 1000})
	i := 0
	for b.Loop() {
		e := events[i%len(events)]
		e.Time += stack.Time(i/len(events)) * 3000 * ms
		t.Apply(e)
		i++
	}
}

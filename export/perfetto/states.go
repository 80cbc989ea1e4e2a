package perfetto

import (
	"github.com/sliverprof/sliver/export/view"
)

// states buffers the state intervals of a thread and moves the boundaries between them so that they add up
// to the scheduler's account (view.Agree), as in the other outputs.
type states struct {
	w    *writer
	list []view.Interval
	runs []view.StateRun
}

// add buffers an interval.
func (s *states) add(x *view.Interval) {
	if s.list = append(s.list, *x); len(s.list) >= view.AgreeRuns {
		s.flush()
	}
}

// flush writes the buffered intervals.
func (s *states) flush() {
	s.runs = s.runs[:0]
	cpu, delay := int64(0), int64(0)
	for i := range s.list {
		x := &s.list[i]
		state, _ := x.Waiting.State()
		s.runs = append(s.runs, view.StateRun{At: x.Begin, NS: int64(x.End - x.Begin), State: state})
		cpu += x.CPU
		delay += x.Delay
	}
	s.w.e.v.Agree(s.runs, cpu, delay)
	for i := range s.list {
		s.w.stateSlice(&s.list[i], s.runs[i])
	}
	s.list = s.list[:0]
}

package query

import "github.com/sliverprof/sliver/export/view"

// tasks writes the tasks table.
func (f *filler) tasks() {
	if !f.asked("tasks", "task_spans") {
		return
	}
	all := f.v.Tasks()
	if all == nil {
		return
	}
	for i := range all.List {
		t := &all.List[i]
		f.row("tasks", int64(t.ID), zeroNull(int64(t.Parent)), orNull(t.Func), t.Ran, f.process)
		for k := range t.Spans {
			f.span(t.ID, &t.Spans[k])
		}
	}
}

func (f *filler) span(id uint64, s *view.TaskSpan) {
	var thread any
	if s.Thread >= 0 {
		thread = f.thread(f.v.Threads[s.Thread].Seq)
	}
	f.row("task_spans", int64(id), f.ts(s.From), int64(s.To-s.From), thread, s.State.String(), orNull(s.Reason), f.process)
}

package page

import (
	"fmt"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/web/analysis"
)

const (
	maxTasks     = 20_000 // of a file, those that ran longest
	maxTaskSpans = 1 << 20
)

// tasks are the goroutines, asyncio tasks or virtual threads. Their spans are behind the columns of the
// threads, in the order of List, each with five varints: time since the end of the task's span before,
// length, value (state in the low 8 bits, class above), index of the thread plus 1, index of the reason plus 1.
type tasks struct {
	What    string                 `json:"what"`
	Idle    int                    `json:"idle"` // the runtime's own, left out
	Lost    int                    `json:"lost"` // as view.Tasks.Lost
	More    int                    `json:"more"` // tasks that are left out
	Reasons []string               `json:"reasons"`
	Stacks  [][]analysis.TaskFrame `json:"stacks"`
	Len     int                    `json:"len"` // bytes of all spans
	List    []task                 `json:"list"`
}

type task struct {
	ID     uint64     `json:"id"`
	Parent uint64     `json:"parent,omitempty"`
	Func   string     `json:"func,omitempty"`
	Ran    int64      `json:"ran"` // ns
	Ready  int64      `json:"ready"`
	Waited int64      `json:"waited"`
	Spans  int        `json:"spans"`
	Seen   [][3]int64 `json:"seen"` // where scans found it wait: time (ns), reason, stack
}

// leftTasks says that n tasks of other processes are not in the file.
func leftTasks(n int, what, process string) string {
	return fmt.Sprintf("this file has the %ss of %s only; other processes have %d more", what, process, n)
}

// putTasks adds tasks. first is the index of their process's first thread.
func (b *builder) putTasks(all *analysis.Tracks, first int) {
	out := &tasks{What: all.What, Idle: all.Idle, Lost: all.Lost, Stacks: all.Stacks, Reasons: []string{}, List: []task{}}
	reasons := map[string]int{}
	reason := func(s string) int {
		if s == "" {
			return -1
		}
		return intern(reasons, &out.Reasons, s)
	}
	var col column
	spans := 0
	for i := range all.List {
		t := &all.List[i]
		if spans += len(t.Spans); len(out.List) >= maxTasks || spans > maxTaskSpans {
			out.More = len(all.List) - i
			break
		}
		x := task{ID: t.ID, Parent: t.Parent, Func: t.Func, Ran: t.Times.Ran, Ready: t.Times.Ready, Waited: t.Times.Waited, Spans: len(t.Spans), Seen: [][3]int64{}}
		at := int64(0)
		for k := range t.Spans {
			s := &t.Spans[k]
			from, to := b.units(s.From), b.units(s.To)
			v := analysis.SpanValue(s)
			col.put(from - at)
			col.put(to - from)
			col.put(int64(v&0xff | v>>24<<8))
			col.put(int64(first + s.Thread + 1))
			col.put(int64(reason(s.Reason) + 1))
			at = to
		}
		for _, w := range t.Seen {
			if n := reason(w.Reason); n >= 0 {
				x.Seen = append(x.Seen, [3]int64{int64(max(w.At-b.base, stack.Time(0))), int64(n), int64(w.Stack)})
			}
		}
		out.List = append(out.List, x)
	}
	if out.Stacks == nil {
		out.Stacks = [][]analysis.TaskFrame{}
	}
	out.Len = col.Len()
	b.body.Write(col.Bytes())
	b.h.Tasks = out
}

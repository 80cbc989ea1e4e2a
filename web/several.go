package web

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/web/analysis"
	"github.com/sliverprof/sliver/web/store"
)

// several is the source of a recording of several processes. The timeline shows them together: the number of
// a thread is its Seq plus the base of its process.
type several struct {
	recording // of the first process
	all       []*trace.Recording
	base      []int              // of the numbers of threads, by process
	once      sync.Once          // related is filled
	related   analysis.Relations // see relate
}

// ofProcesses is a Source of several processes, which have numbers.
type ofProcesses interface {
	// described describes the processes, by number.
	described() []analysis.Process
	// split returns the processes of rec, a recording of the source, that have one of threads; nil: all.
	split(rec *trace.Recording, threads []int) []processPart
}

// processPart is one process of a recording.
type processPart struct {
	rec     *trace.Recording
	process int               // its number
	threads []int             // chosen ones, by Seq; nil: all
	number  func(seq int) int // of a thread in the source; -1: it has none
}

// name names the process.
func (p *processPart) name() string {
	return fmt.Sprintf("%s (%d)", p.rec.Process.Comm, p.rec.Process.PID)
}

// newSeveral returns a source of all processes of rec.
func newSeveral(rec *trace.Recording) *several {
	s := &several{recording: recording{rec}, all: rec.All()}
	s.base = analysis.Bases(s.all)
	return s
}

// Process describes the first process, with clocks at the begin of the earliest.
func (s *several) Process() trace.Process {
	p := s.rec.Process
	from, _ := s.rec.WholeSpan()
	return at(p, from)
}

func (s *several) described() (out []analysis.Process) {
	for _, one := range s.all {
		out = append(out, analysis.Recorded(one))
	}
	return out
}

// Notes implements Source, for all processes: see analysis.Notes.
func (s *several) Notes() []string {
	return analysis.Notes(view.All(s.rec, view.Options{}))
}

// Descriptions of waits have the numbers n*w + i: w in process i of n.

func (s *several) Wait(id int) (trace.Wait, bool) {
	if id <= 0 {
		return trace.Wait{}, false
	}
	w, ok := s.all[id%len(s.all)].Waits[id/len(s.all)]
	return w, ok
}

// waitID returns the number of a description in an event of kind Wait.
func waitID(e event.Event) int { return int(e.Payload() & math.MaxInt32) }

// wait returns the number of wait id of process i.
func (s *several) wait(i, id int) int {
	if id <= 0 || id > (math.MaxInt32-i)/len(s.all) {
		return 0
	}
	return id*len(s.all) + i
}

// Run loads one process after the other, each with all CPUs.
func (s *several) Run(ctx context.Context, st *store.Store) (string, error) {
	reasons := map[string]bool{}
	for i, one := range s.all {
		r := recording{one}
		reason, err := r.load(ctx, st, s.base[i], i, func(e event.Event) event.Event {
			if e.Kind() != event.Wait {
				return e
			}
			return event.Make(e.Time, event.Wait, uint64(s.wait(i, waitID(e))))
		})
		if err != nil {
			return "", err
		}
		if reason != "" {
			reasons[reason] = true
		}
	}
	list := make([]string, 0, len(reasons))
	for r := range reasons {
		list = append(list, r)
	}
	slices.Sort(list)
	return strings.Join(list, "; "), nil
}

// process returns the number of the process of a thread.
func (s *several) process(thread int) int {
	i, ok := slices.BinarySearch(s.base, thread)
	if !ok {
		i--
	}
	return max(i, 0)
}

func (s *several) split(rec *trace.Recording, threads []int) (out []processPart) {
	all := rec.All() // all of s
	own := make([][]int, len(all))
	for _, t := range threads {
		i := s.process(t)
		own[i] = append(own[i], t-s.base[i])
	}
	for i, one := range all {
		if threads == nil || own[i] != nil {
			out = append(out, processPart{rec: one, process: i, threads: own[i], number: func(seq int) int { return seq + s.base[i] }})
		}
	}
	return out
}

// ThreadsOf splits the threads of a Part by the processes of rec, in the order of rec.All. A process without
// threads has an empty list. If Threads is nil, all lists are nil, which selects all threads.
func (p *Part) ThreadsOf(rec *trace.Recording) [][]int {
	out := make([][]int, len(rec.Others)+1)
	if p.Threads == nil {
		return out
	}
	src := p.of
	if src == nil {
		src = newSeveral(rec)
	}
	at := map[*trace.Recording]int{}
	for i, one := range rec.All() {
		at[one], out[i] = i, []int{}
	}
	for _, x := range src.split(rec, p.Threads) {
		out[at[x.rec]] = x.threads
	}
	return out
}

// processMessages describes the processes of f, none if it has one.
func (f *feed) processMessages() []analysis.Process {
	if s, ok := f.src.(ofProcesses); ok {
		return s.described()
	}
	return nil
}

// processSums is how the threads of one process spent a range. Times are ns, as samples found them, but
// CPU, which is the kernel's account.
type processSums struct {
	Process  int   `json:"process"` // index among the hello's processes
	Threads  int   `json:"threads"` // that were seen in the range
	CPU      int64 `json:"cpu"`
	Runnable int64 `json:"runnable"`
	Lock     int64 `json:"lock"`
	IO       int64 `json:"io"`
	Sleep    int64 `json:"sleep"`
	Other    int64 `json:"other"`
	Idle     int64 `json:"idle"`
	Stopped  int64 `json:"stopped"`
}

// processes answers such a query: what each process used and waited for, that with the most CPU time
// first.
func (f *feed) processes(t0, t1 stack.Time) []processSums {
	all := f.processMessages()
	out := make([]processSums, len(all))
	from, to := f.st.Span()
	if t0, t1 = max(t0, from), min(t1, to); len(all) == 0 || t1 <= t0 {
		return out
	}
	of := map[int]*processSums{} // by thread
	for _, in := range f.st.Infos() {
		of[in.Seq] = &out[in.Process]
	}
	for i := range out {
		out[i].Process = i
	}
	for _, l := range f.st.Loads(t0, t1, 1) {
		if p := of[l.Seq]; p != nil && len(l.Bins) > 0 {
			p.CPU += int64(l.Bins[0])
		}
	}
	// The time that a thread waited for a lock is that of its lane of locks, as in the other queries.
	locks := map[int][]store.Slice{} // by thread
	f.st.EachLane(store.LaneLock, t0, t1, nil, func(seq int, x store.Slice) {
		if p := of[seq]; p != nil {
			p.Lock += int64(x.End - x.Start)
			locks[seq] = append(locks[seq], x)
		}
	})
	last := -1
	f.st.EachLane(store.LaneState, t0, t1, nil, func(seq int, x store.Slice) {
		p := of[seq]
		if p == nil {
			return
		}
		if seq != last { // slices come by thread
			p.Threads++
			last = seq
		}
		ns := int64(x.End - x.Start)
		switch state := f.st.State(x.Place).State; partOf(state, kind.Class(f.class(x.Place))) {
		case "runnable":
			p.Runnable += ns
		case "stopped":
			p.Stopped += ns
		case "lock":
			p.Lock += ns - overlap(locks, seq, x)
		case "io":
			p.IO += ns - overlap(locks, seq, x)
		case "sleep":
			p.Sleep += ns - overlap(locks, seq, x)
		case "idle":
			p.Idle += ns - overlap(locks, seq, x)
		case "other":
			p.Other += ns - overlap(locks, seq, x)
		}
	})
	slices.SortStableFunc(out, func(a, b processSums) int { return cmp.Compare(b.CPU, a.CPU) })
	return out
}

// overlap returns how long x is in the slices of its thread. It drops the slices that end before x. Calls for
// a thread come in the order of time.
func overlap(slices map[int][]store.Slice, thread int, x store.Slice) (ns int64) {
	left := slices[thread]
	for len(left) > 0 && left[0].End <= x.Start {
		left = left[1:]
	}
	slices[thread] = left
	for i := range left {
		if left[i].Start >= x.End {
			break
		}
		ns += int64(min(x.End, left[i].End) - max(x.Start, left[i].Start))
	}
	return ns
}

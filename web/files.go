package web

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// fileLane is a file, or another object of a descriptor, over time, in equal parts: how the threads were in
// its operations. Times are without waits for a CPU, as in the analysis.
type fileLane struct {
	Path    string    `json:"path"`
	Kind    string    `json:"kind"`
	Process int       `json:"process,omitempty"` // its number, in a recording of several
	Total   int64     `json:"total"`             // ns in operations
	Ops     int       `json:"ops"`
	Most    float64   `json:"most"`    // largest mean number of threads
	Read    []float64 `json:"read"`    // mean numbers of threads in reads
	Write   []float64 `json:"write"`   // in writes
	Other   []float64 `json:"other"`   // in opens, closes, syncs and slow calls
	Count   []int     `json:"count"`   // operations that ended
	Longest []int64   `json:"longest"` // ns, of those
}

const (
	maxFileLanes = 16
	maxFileOps   = 1 << 20          // operations that a feed keeps: 96 MB
	freshOps     = 2 * time.Second  // for which those of a live recording are used
	recentOps    = 60 * time.Second // of a live recording that are read
)

// fileOps keeps the operations of a feed, which are read when its lanes are first looked at.
type fileOps struct {
	mu    sync.Mutex
	read  bool
	whole bool // nothing will come
	at    time.Time
	of    []processOps
}

// processOps are the operations of one process.
type processOps struct {
	process int // its number
	ops     []trace.IOOp
	names   []trace.IOPath
}

// numbered returns the processes of rec, a recording of src, by number.
func numbered(src recorded, rec *trace.Recording) iter.Seq2[int, *trace.Recording] {
	return func(yield func(int, *trace.Recording) bool) {
		s, ok := src.(ofProcesses)
		if !ok {
			yield(0, rec)
			return
		}
		for _, p := range s.split(rec, nil) {
			if !yield(p.process, p.rec) {
				return
			}
		}
	}
}

// operations returns the I/O operations of all processes.
func (f *feed) operations() []processOps {
	src, ok := f.src.(recorded)
	if !ok {
		return nil
	}
	done, _, _ := f.state()
	live := f.src.Live() && !done
	x := &f.files
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.read && (x.whole || live && time.Since(x.at) < freshOps) || live && !f.analyst.io.Load() {
		return x.of
	}
	var from stack.Time
	if live {
		_, to := f.st.Span()
		from = to - stack.Time(recentOps)
	}
	rec, release, err := src.Recording(from)
	if err != nil {
		return nil
	}
	defer release()
	x.of, x.read, x.whole, x.at = nil, true, !live, time.Now() // readers have the list of before
	left := maxFileOps
	for number, one := range numbered(src, rec) {
		p := processOps{process: number, names: one.IONames.Files}
		if one.HasOps() {
			for o, err := range one.Ops() {
				if err != nil || left == 0 {
					break
				}
				if o.File >= 0 {
					p.ops = append(p.ops, o)
					left--
				}
			}
		}
		x.of = append(x.of, p)
	}
	return x.of
}

// fileLanes returns the files in whose operations threads spent the most time, and the number of the others.
func (f *feed) fileLanes(q *query, p binned, n int) ([]fileLane, int) {
	all := f.operations()
	if len(all) == 0 {
		return nil, 0
	}
	wanted := f.tids(q.Threads)
	type key struct{ process, file int }
	each := func(do func(k key, o *trace.IOOp)) {
		for i := range all {
			for j := range all[i].ops {
				o := &all[i].ops[j]
				if o.End() > p.from && o.Begin < p.to && (wanted == nil || wanted[threadOf{all[i].process, o.TID}]) {
					do(key{i, o.File}, o)
				}
			}
		}
	}
	total := map[key]int64{}
	each(func(k key, o *trace.IOOp) {
		total[k] += int64(float64(min(o.End(), p.to)-max(o.Begin, p.from)) * busy(o))
	})
	files := make([]key, 0, len(total))
	for k := range total {
		files = append(files, k)
	}
	slices.SortFunc(files, func(a, b key) int {
		return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(a.process, b.process), cmp.Compare(a.file, b.file))
	})
	more := max(len(files)-maxFileLanes, 0)
	files = files[:len(files)-more]
	out := make([]fileLane, len(files))
	at := map[key]*fileLane{}
	for i, k := range files {
		name := all[k.process].names[k.file]
		parts := make([]float64, 3*n)
		out[i] = fileLane{Path: name.Path, Kind: name.Kind, Process: all[k.process].process, Total: total[k], Read: parts[:n:n], Write: parts[n : 2*n : 2*n],
			Other: parts[2*n:], Count: make([]int, n), Longest: make([]int64, n)}
		at[k] = &out[i]
	}
	each(func(k key, o *trace.IOOp) {
		l := at[k]
		if l == nil {
			return
		}
		parts := l.Other
		switch o.Op {
		case iowatch.OpRead:
			parts = l.Read
		case iowatch.OpWrite:
			parts = l.Write
		}
		l.Ops++
		share := busy(o)
		p.each(n, o.Begin, o.End(), func(i int, ns float64) { parts[i] += ns * share / p.width })
		i := min(max(int(float64(o.End()-p.from)/p.width), 0), n-1)
		l.Count[i]++
		l.Longest[i] = max(l.Longest[i], o.Busy())
	})
	for i := range out {
		l := &out[i]
		for k := range n {
			l.Read[k], l.Write[k], l.Other[k] = thousandths(l.Read[k]), thousandths(l.Write[k]), thousandths(l.Other[k])
			l.Most = max(l.Most, thousandths(l.Read[k]+l.Write[k]+l.Other[k]))
		}
	}
	return out, more
}

// busy is the share of an operation's time in which its thread did not wait for a CPU. When in it that was is
// not known.
func busy(o *trace.IOOp) float64 {
	if o.Took <= 0 {
		return 1
	}
	return float64(o.Busy()) / float64(o.Took)
}

// threadOf identifies a thread in a recording of several processes.
type threadOf struct {
	process int
	tid     stack.TID
}

// tids returns the threads with these Seqs; nil: all.
func (f *feed) tids(seqs []int) map[threadOf]bool {
	if len(seqs) == 0 {
		return nil
	}
	out := map[threadOf]bool{}
	for _, in := range f.st.Infos() {
		if slices.Contains(seqs, in.Seq) {
			out[threadOf{in.Process, in.TID}] = true
		}
	}
	return out
}

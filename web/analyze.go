package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web/analysis"
	"github.com/sliverprof/sliver/web/store"
)

// recorded is a Source that can be read as a recording.
type recorded interface {
	// Recording returns at least what says something of the time from from on. Release is called when
	// the caller has read it.
	Recording(from stack.Time) (rec *trace.Recording, release func(), err error)
}

// Recording implements recorded.
func (r *recording) Recording(stack.Time) (*trace.Recording, func(), error) {
	return r.rec, func() {}, nil
}

// Recording implements recorded.
func (l *Live) Recording(from stack.Time) (*trace.Recording, func(), error) {
	if l.o.Window == nil {
		return nil, nil, errNoAnalysis
	}
	return l.o.Window(from)
}

var errNoAnalysis = errors.New("this source has no recording that can be analyzed")

// errNoThreads reports that no chosen thread has samples in the range.
var errNoThreads = fmt.Errorf("%w: none of these threads was recorded in this time", errUnknown)

const (
	keptAnalyses = 12 // answers that are kept for clients that ask again
	// A rolling analysis is shared by all clients for lastFor, or for shareOfTime times what it took: it
	// takes at most a tenth of a CPU.
	lastFor     = 900 * time.Millisecond
	shareOfTime = 10
)

// analyst keeps the analyses of a feed.
type analyst struct {
	mu   sync.Mutex
	kept []keptAnalysis
	idle atomic.Pointer[map[int]bool] // threads that only waited for work, by Seq, as of the newest
	io   atomic.Bool                  // it has I/O operations
}

type keptAnalysis struct {
	key   string
	made  time.Time
	good  time.Duration // how long it may be used; 0: always
	value json.RawMessage
}

// idle returns the threads that only waited for work.
func (f *feed) idle() map[int]bool {
	if p := f.analyst.idle.Load(); p != nil {
		return *p
	}
	return nil
}

// analyzed returns the kinds of frames of an analysis: as in the other views, the code of interpreters counts
// for the functions that they run, if the reader does not ask for it.
func analyzed(kinds store.Kinds, runtime bool) trace.Kinds {
	k := trace.AllKinds
	if kinds != 0 {
		k = trace.Kinds(kinds) | trace.Runtime
	}
	if !runtime {
		k &^= trace.Runtime
	}
	return k
}

// analysis answers such a query. One is made at a time.
func (f *feed) analysis(q *query, t0, t1 stack.Time, kinds store.Kinds) (json.RawMessage, error) {
	src, ok := f.src.(recorded)
	if !ok {
		return nil, errNoAnalysis
	}
	a := &f.analyst
	a.mu.Lock()
	defer a.mu.Unlock()
	done, _, _ := f.state()
	growing := f.src.Live() && !done
	if q.Last > 0 {
		from, to := f.st.Span()
		t0, t1 = max(from, to-stack.Time(q.Last)), 0
		if !growing {
			t1 = to
		}
	}
	only := analyzed(kinds, q.Runtime)
	key := fmt.Sprint(q.T0, q.T1, q.Last, q.Threads, q.ByThread, q.Idle, q.Max, only, growing)
	i := slices.IndexFunc(a.kept, func(k keptAnalysis) bool { return k.key == key })
	if i >= 0 && (a.kept[i].good == 0 || time.Since(a.kept[i].made) < a.kept[i].good) {
		return a.kept[i].value, nil
	}
	began := time.Now()
	rec, release, err := src.Recording(t0)
	if err != nil {
		return nil, err
	}
	defer release()
	o := analysis.Options{Threads: q.Threads, From: t0, To: t1, ByThread: q.ByThread, Idle: q.Idle, Nodes: q.Max}
	if q.T0 == 0 && q.T1 == 0 && q.Last == 0 {
		o.From, o.To = 0, 0
	}
	var r *analysis.Analysis
	if several, ok := f.src.(ofProcesses); ok {
		var parts []analysis.Part
		all := several.split(rec, q.Threads)
		for i := range all {
			p := &all[i]
			parts = append(parts, analysis.Part{Rec: p.rec.Only(only), Name: p.name(), Threads: p.threads, Number: p.number, Process: p.process})
		}
		if len(parts) == 0 {
			return nil, errNoThreads
		}
		r = analysis.OfSeveral(parts, len(several.described()), f.base, o)
	} else {
		r = analysis.Of(rec.Only(only), f.base, o)
	}
	if q.Threads == nil && only|trace.Runtime == trace.AllKinds && (q.T0 == 0 && q.T1 == 0) {
		idle := map[int]bool{}
		for i := range r.Threads {
			if r.Threads[i].IsIdle {
				idle[r.Threads[i].Seq] = true
			}
		}
		a.idle.Store(&idle)
	}
	a.io.Store(r.Report.IO != nil)
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the analysis: %w", err)
	}
	k := keptAnalysis{key: key, made: time.Now(), value: b}
	if growing {
		k.good = max(lastFor, shareOfTime*time.Since(began))
	}
	if i >= 0 {
		a.kept = slices.Delete(a.kept, i, i+1)
	}
	if len(a.kept) >= keptAnalyses {
		a.kept = slices.Delete(a.kept, 0, 1)
	}
	a.kept = append(a.kept, k)
	return b, nil
}

// analyzeWhole makes the analysis that a page opens with.
func (s *Server) analyzeWhole(f *feed) {
	if f.src.Live() || s.ctx.Err() != nil {
		return
	}
	if _, err := f.analysis(&query{Op: "analysis"}, 0, 0, 0); err != nil && !errors.Is(err, errNoAnalysis) {
		s.o.Logf("analyze the recording: %v", err)
	}
}

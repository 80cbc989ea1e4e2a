package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/analysis"
	"github.com/sliverprof/sliver/web/store"
	"github.com/sliverprof/sliver/web/wire"
)

// query is a query, over the websocket or to /api/query. Times are ns since the base.
type query struct {
	Op       string   `json:"op"`
	ID       uint32   `json:"id,omitempty"`
	Src      int      `json:"src,omitempty"` // 1: the recording to compare with
	T0       float64  `json:"t0,omitempty"`
	T1       float64  `json:"t1,omitempty"`
	Bin      float64  `json:"bin,omitempty"`
	Threads  []int    `json:"threads,omitempty"` // by seq; empty: all
	Follow   bool     `json:"follow,omitempty"`
	Thread   int      `json:"thread,omitempty"`
	Depth    int      `json:"depth,omitempty"`
	At       float64  `json:"at,omitempty"`
	Func     uint32   `json:"func,omitempty"`
	Funcs    []uint32 `json:"funcs,omitempty"`
	Task     uint64   `json:"task,omitempty"`
	Process  *int     `json:"process,omitempty"` // of tasks: whose they are; nil: the busiest one that has some
	Near     *where   `json:"near,omitempty"`
	Mode     string   `json:"mode,omitempty"` // of a tree: "" or "time"; of tasks: "" or "wait"
	ByThread bool     `json:"by_thread,omitempty"`
	Idle     bool     `json:"idle,omitempty"`    // of an analysis: idle waits are in its tables
	Runtime  bool     `json:"runtime,omitempty"` // of an analysis: with the code of interpreters above functions that they run
	Last     float64  `json:"last,omitempty"`    // of an analysis: only the last ns; t0 and t1 are ignored
	Max      int      `json:"max,omitempty"`
	N        int      `json:"n,omitempty"`
	From     int      `json:"from,omitempty"`
	Kinds    string   `json:"kinds,omitempty"` // of the calls to include, separated by commas; "": all
}

type where struct {
	Thread int     `json:"thread"`
	Depth  int     `json:"depth"`
	Start  float64 `json:"start"`
}

const (
	maxBins  = 8192
	maxIndex = math.MaxInt32
	maxTime  = 1e18 // ns
	maxFuncs = 1 << 16
)

func (q *query) check() error {
	for _, v := range []float64{q.T0, q.T1, q.Bin, q.At, q.Last} {
		if math.IsNaN(v) || math.Abs(v) > maxTime {
			return fmt.Errorf("invalid time %g", v)
		}
	}
	if q.N > maxBins || len(q.Funcs) > maxFuncs {
		return errors.New("too much is asked for at once")
	}
	return nil
}

// checkBody is check for an HTTP query, with the rules of docs/openapi.yaml.
func (q *query) checkBody() error {
	// A depth of -1 is the innermost call.
	numbers := []int{q.Thread, q.Depth + 1, q.From}
	if q.Near != nil {
		numbers = append(numbers, q.Near.Thread, q.Near.Depth+1)
		if math.IsNaN(q.Near.Start) || math.Abs(q.Near.Start) > maxTime {
			return fmt.Errorf("invalid time %g", q.Near.Start)
		}
	}
	if q.Process != nil {
		numbers = append(numbers, *q.Process)
	}
	for _, n := range append(numbers, q.Threads...) {
		if n < 0 || n > maxIndex {
			return fmt.Errorf("%d is out of range; use 0 to %d", n, maxIndex)
		}
	}
	if q.Mode != "" && q.Mode != "time" && q.Mode != "wait" || q.Src != 0 && q.Src != 1 {
		return fmt.Errorf("mode is empty, \"time\" or \"wait\", src 0 or 1, not %.20q and %d", q.Mode, q.Src)
	}
	if q.Max < 0 || q.Max > maxSlices || q.N < 0 || q.N > maxBins {
		return fmt.Errorf("max or n is out of range; use up to %d and %d", maxSlices, maxBins)
	}
	if q.Task > event.MaxTask {
		return fmt.Errorf("task %d is out of range; use 0 to %d", q.Task, uint64(event.MaxTask))
	}
	return nil
}

var (
	// errUnknown reports an unknown thread or recording.
	errUnknown   = errors.New("not found")
	errNoCompare = fmt.Errorf("%w: recording to compare with", errUnknown)
	// errTooMany reports that the limit is reached.
	errTooMany = errors.New("use one of them")
)

// kinds returns the kinds that a query names.
func (f *feed) kinds(q *query) (store.Kinds, error) {
	if q.Kinds == "" {
		return 0, nil
	}
	k, err := trace.ParseKinds(q.Kinds)
	if err != nil {
		return 0, err
	}
	if k == trace.AllKinds {
		return 0, nil
	}
	if !f.st.Sift(store.Kinds(k)) {
		return 0, fmt.Errorf("this has been looked at with %d sets of kinds already; %w", store.MaxSifted, errTooMany)
	}
	return store.Kinds(k), nil
}

func (f *feed) where(w *store.Where) *where {
	if w == nil {
		return nil
	}
	return &where{w.Seq, w.Depth, float64(w.Start - f.base)}
}

// answer runs one query. Queries over the whole timeline take turns.
func (s *Server) answer(ctx context.Context, q *query) (any, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	f := s.feed(q.Src)
	if f == nil {
		return nil, errNoCompare
	}
	if q.Src > 0 { // the recording to compare with is used as a whole, and requested once
		select {
		case <-f.read:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	kinds, err := f.kinds(q)
	if err != nil {
		return nil, err
	}
	switch q.Op {
	case "detail":
		return f.detail(q, kinds)
	case "loads":
		return f.loads(q), nil
	case "names":
		return namesMessage{Op: "names", From: q.From, Funcs: f.st.Names.Since(max(q.From, 0))}, nil
	case "status":
		return s.status(), nil
	}
	select {
	case s.heavy <- struct{}{}:
		defer func() { <-s.heavy }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t0, t1 := q.span(f)
	switch q.Op {
	case "analysis":
		return f.analysis(q, t0, t1, kinds)
	case "slices":
		return f.slices(q, t0, t1, kinds)
	case "tree":
		t := f.st.Tree(t0, t1, q.Threads, store.TreeOptions{InTime: q.Mode == "time", ByThread: q.ByThread, Max: q.Max, Kinds: kinds})
		return newTree(f, t, q.Src > 0 || q.From != 0), nil
	case "sums":
		return f.sums(q, kinds)
	case "calls":
		c := f.st.CallsOf(q.Func, t0, t1, q.Threads, near(q, f), kinds)
		return callsReply{c.Count, c.Total, c.Min, c.Median, c.Max, c.Hist[:], f.where(c.Prev), f.where(c.Next), f.where(c.Longest)}, nil
	case "hits":
		fns := map[uint32]bool{}
		for _, x := range q.Funcs {
			fns[x] = true
		}
		h := f.st.HitsOf(fns, t0, t1, q.Threads, near(q, f), kinds)
		return hitsReply{h.Count, h.Total, f.where(h.First), f.where(h.Last), f.where(h.Prev), f.where(h.Next), h.Funcs}, nil
	case "waits":
		return f.waits(q, t0, t1), nil
	case "lanes":
		return f.lanes(q), nil
	case "processes":
		return f.processes(t0, t1), nil
	case "arrows":
		return f.arrows(t0, t1, q.Threads), nil
	case "path":
		return f.path(), nil
	case "tasks":
		return f.tasks(q)
	case "task":
		return f.task(q)
	}
	return nil, fmt.Errorf("unknown op %q", q.Op)
}

// near returns the call whose neighbours are requested, if any.
func near(q *query, f *feed) *store.Where {
	if q.Near == nil {
		return nil
	}
	return &store.Where{Seq: q.Near.Thread, Depth: q.Near.Depth, Start: clampTime(q.Near.Start) + f.base}
}

// loadsReply spreads CPU time over bins of [T0, T1).
type loadsReply struct {
	T0    float64   `json:"t0"`
	T1    float64   `json:"t1"`
	Bins  []float64 `json:"bins"`  // CPUs in use
	Share []load    `json:"share"` // of each thread over the whole range
}

type load struct {
	Seq int     `json:"seq"`
	CPU float64 `json:"cpu"` // share of one CPU
}

func (f *feed) loads(q *query) loadsReply {
	from, to := f.st.Span()
	if q.T1 > q.T0 {
		from, to = clampTime(q.T0)+f.base, clampTime(q.T1)+f.base
	}
	n := min(max(q.N, 1), maxBins)
	r := loadsReply{T0: float64(from - f.base), T1: float64(to - f.base), Bins: make([]float64, n)}
	w := float64(to-from) / float64(n)
	if w <= 0 {
		return r
	}
	for _, l := range f.st.Loads(from, to, n) {
		sum := 0.0
		for i, v := range l.Bins {
			r.Bins[i] += v / w
			sum += v
		}
		r.Share = append(r.Share, load{l.Seq, math.Round(sum/float64(to-from)*1e4) / 1e4})
	}
	for i := range r.Bins {
		r.Bins[i] = math.Round(r.Bins[i]*1e3) / 1e3
	}
	return r
}

type namesMessage struct {
	Op        string        `json:"op"`
	From      int           `json:"from"`
	Funcs     []store.Func  `json:"funcs"`
	LocksFrom int           `json:"locks_from,omitempty"`
	Locks     []lockMessage `json:"locks,omitempty"`
}

type lockMessage struct {
	Addr   string    `json:"addr"`
	Holder stack.TID `json:"holder,omitempty"`
	By     string    `json:"by,omitempty"`
	Name   string    `json:"name,omitempty"` // of a holder in another process
	Wait   string    `json:"wait,omitempty"`
	Kind   string    `json:"kind,omitempty"`
	// Process is the PID of the process whose address it is, in a recording of several.
	Process int `json:"process,omitempty"`
}

func lockMessages(f *feed, ls []store.Lock) []lockMessage {
	out := make([]lockMessage, len(ls))
	processes := f.processMessages()
	for i, l := range ls {
		out[i] = lockMessage{Addr: fmt.Sprintf("%#x", l.Addr), Holder: l.Holder, By: l.By.String()}
		if l.Process < len(processes) {
			out[i].Process = processes[l.Process].PID
		}
		if w, ok := f.wait(l.Wait); ok {
			if out[i].Wait, out[i].Kind = w.Args, string(w.Kind); w.Args == "" {
				out[i].Wait = w.Symbol
			}
			if w.HolderTID == l.Holder {
				out[i].Name = w.HolderName
			}
		}
	}
	return out
}

func (f *feed) wait(id int) (trace.Wait, bool) {
	if id == 0 {
		return trace.Wait{}, false
	}
	return f.src.Wait(id)
}

// waitText describes a wait.
func waitText(w *trace.Wait) string {
	s := string(w.Kind)
	if w.Call != "" {
		s = w.Call + "(" + w.Args + ")" // it contains the kind
	}
	add := func(x string) {
		if x == "" || strings.Contains(s, x) {
			return
		}
		if s != "" {
			s += " "
		}
		s += x
	}
	add(w.Symbol)
	add(w.File)
	if t := time.Duration(w.Timeout).String(); w.Timeout > 0 && !strings.Contains(s, t) {
		add("timeout " + t)
	}
	return s
}

type callReply struct {
	Depth   int      `json:"depth"`
	Func    uint32   `json:"func"`
	Name    string   `json:"name"`
	Module  string   `json:"module,omitempty"`
	File    string   `json:"file,omitempty"`
	Line    int      `json:"line,omitempty"`
	Addr    string   `json:"addr,omitempty"`
	Inlined bool     `json:"inlined,omitempty"`
	Kind    string   `json:"kind,omitempty"`  // "": native
	Inner   []string `json:"inner,omitempty"` // inlined at its last place, outermost first
	Start   float64  `json:"start"`
	End     float64  `json:"end"`
	Running bool     `json:"running,omitempty"`
	Samples uint32   `json:"samples"`
	CPU     int64    `json:"cpu"`
	Wait    int64    `json:"wait"`
	Self    int64    `json:"self"`
}

type laneReply struct {
	Start float64      `json:"start"`
	End   float64      `json:"end"` // open: -1
	State string       `json:"state,omitempty"`
	Call  *int32       `json:"call,omitempty"`
	Wait  string       `json:"wait,omitempty"`
	Lock  *lockMessage `json:"lock,omitempty"`
	Why   string       `json:"why,omitempty"`
}

type detailReply struct {
	Thread   int         `json:"thread"`
	At       float64     `json:"at"`
	Interval int64       `json:"interval"` // ns between samples there: the uncertainty of the edges
	Calls    []callReply `json:"calls"`    // outermost first
	State    *laneReply  `json:"state,omitempty"`
	Lock     *laneReply  `json:"lock,omitempty"`
	Gap      *laneReply  `json:"gap,omitempty"`
}

func (f *feed) detail(q *query, kinds store.Kinds) (*detailReply, error) {
	t := f.st.Lookup(q.Thread)
	if t == nil {
		return nil, fmt.Errorf("%w: thread %d", errUnknown, q.Thread)
	}
	at := clampTime(q.At) + f.base
	calls, lanes := t.Stack(at, q.Depth, kinds)
	r := &detailReply{Thread: q.Thread, At: q.At, Interval: t.Interval(at), Calls: []callReply{}}
	if r.Interval == 0 {
		r.Interval = f.src.Process().Interval
	}
	for _, c := range calls {
		p := f.st.Names.Place(c.Place)
		fn := f.st.Names.FuncAt(p.Func)
		x := callReply{Depth: c.Depth, Func: p.Func, Name: fn.Name, Module: fn.Module, File: p.File, Line: p.Line, Inlined: p.Inlined, Kind: fn.Kind,
			Start: float64(c.Start - f.base), End: float64(c.End - f.base), Running: c.Running, Samples: c.Samples, CPU: c.CPU,
			Wait: c.Wait, Self: c.Self}
		if x.File == "" {
			x.File, x.Line = fn.File, fn.Line
		}
		if p.Addr != 0 && p.Kind.Machine() { // for other kinds it is not an address in the target
			x.Addr = fmt.Sprintf("%#x", p.Addr)
		}
		for _, i := range p.Inner {
			x.Inner = append(x.Inner, f.st.Names.FuncAt(i).Name)
		}
		r.Calls = append(r.Calls, x)
	}
	lane := func(s *store.Slice) *laneReply {
		if s == nil {
			return nil
		}
		l := &laneReply{Start: float64(s.Start - f.base), End: -1}
		if s.End != store.Open {
			l.End = float64(s.End - f.base)
		}
		return l
	}
	if s := lanes[store.LaneState]; s != nil {
		x := f.st.State(s.Place)
		r.State = lane(s)
		r.State.State = x.State.String()
		if x.Call >= 0 {
			r.State.Call = &x.Call
		}
		if w, ok := f.wait(x.Wait); ok {
			r.State.Wait = waitText(&w)
		}
	}
	if s := lanes[store.LaneLock]; s != nil {
		r.Lock = lane(s)
		r.Lock.Lock = &lockMessages(f, []store.Lock{f.st.Lock(s.Place)})[0]
	}
	if s := lanes[store.LaneGap]; s != nil {
		r.Gap = lane(s)
		r.Gap.Why = stack.Why(s.Place >> 1).String()
	}
	return r, nil
}

type sliceReply struct {
	Threads []sliceThread `json:"threads"`
}

type sliceThread struct {
	Seq  int        `json:"seq"`
	Rows []sliceRow `json:"rows"`
}

type sliceRow struct {
	Depth int         `json:"depth"`
	Items [][]float64 `json:"items"` // start, end (-1: open), function or value, count
}

// maxSlices limits a JSON reply; the websocket has no such limit.
const maxSlices = 200_000

// slices returns a view in JSON, for programs without a websocket.
func (f *feed) slices(q *query, t0, t1 stack.Time, kinds store.Kinds) (*sliceReply, error) {
	r := &sliceReply{Threads: []sliceThread{}}
	funcOf := f.st.Names.FuncOf()
	n := 0
	for _, in := range f.st.Infos() {
		if q.Threads != nil && !contains(q.Threads, in.Seq) {
			continue
		}
		p := store.Position{Kinds: kinds}
		v := f.st.Lookup(in.Seq).View(t0, t1, int64(q.Bin), nil, &p)
		w := wireThread(f, &v, funcOf)
		t := sliceThread{Seq: in.Seq, Rows: []sliceRow{}}
		for _, row := range w.Rows {
			o := sliceRow{Depth: int(row.Depth)}
			for _, x := range row.Items {
				if math.IsInf(x.End, 1) {
					x.End = -1
				}
				o.Items = append(o.Items, []float64{x.Start, x.End, float64(x.Value), float64(x.Count)})
			}
			if n += len(o.Items); n > maxSlices {
				return nil, fmt.Errorf("more than %d slices: ask for a shorter time, fewer threads or a larger bin", maxSlices)
			}
			t.Rows = append(t.Rows, o)
		}
		r.Threads = append(r.Threads, t)
	}
	return r, nil
}

func contains(s []int, x int) bool {
	for _, y := range s {
		if x == y {
			return true
		}
	}
	return false
}

// helloMessage is the first message of a websocket, and the reply of /api/info.
type helloMessage struct {
	Op         string        `json:"op"`
	Version    int           `json:"version"`
	Program    string        `json:"program,omitempty"`
	Live       bool          `json:"live"`
	Base       string        `json:"base"` // time 0, in ns of CLOCK_MONOTONIC
	Wall       int64         `json:"wall"` // ms since 1970 at the base
	Process    trace.Process `json:"process"`
	Control    []string      `json:"control"`
	Formats    []Format      `json:"formats"`
	Compare    string        `json:"compare,omitempty"` // description of the other recording
	Notes      []string      `json:"notes"`
	Lanes      int           `json:"first_lane"`
	Speedscope bool          `json:"speedscope"`
	Recorders  bool          `json:"recorders,omitempty"` // GET /api/recorders is available
	// Processes are those of a recording of several.
	Processes []analysis.Process `json:"processes,omitempty"`
}

func (s *Server) hello() helloMessage {
	f := s.feed(0)
	p := f.src.Process()
	h := helloMessage{Op: "hello", Version: wire.Version, Program: s.o.Version, Live: f.src.Live(), Base: fmt.Sprint(int64(f.base)),
		Wall: p.Clocks.Realtime / 1e6, Process: p, Control: s.o.Control.actions(), Formats: s.o.Formats, Notes: f.src.Notes(),
		Lanes: wire.FirstLane, Speedscope: s.page.files["/speedscope/index.html"] != nil, Recorders: s.o.Recorders != nil, Processes: f.processMessages()}
	if h.Formats == nil || s.o.Export == nil {
		h.Formats = []Format{}
	}
	if h.Notes == nil {
		h.Notes = []string{}
	}
	if s.compare != nil {
		c := s.compare.src.Process()
		h.Compare = fmt.Sprintf("%s (%d)", c.Comm, c.PID)
	}
	return h
}

type statusMessage struct {
	Op      string          `json:"op"`
	From    float64         `json:"from"`
	To      float64         `json:"to"`
	Done    bool            `json:"done"`
	Reason  string          `json:"reason,omitempty"`
	Error   string          `json:"error,omitempty"`
	Held    int             `json:"held"`
	InFile  int             `json:"in_file,omitempty"`
	NoFile  string          `json:"no_file,omitempty"` // why no more slices go into the file
	Dropped uint64          `json:"dropped"`
	Threads []threadMessage `json:"threads"`
	Status  *Status         `json:"status,omitempty"`
	Kept    string          `json:"kept,omitempty"` // by control: the file that it wrote
}

type threadMessage struct {
	Seq     int       `json:"seq"`
	TID     stack.TID `json:"tid"`
	NSTID   int       `json:"ns_tid,omitempty"`
	Name    string    `json:"name"`
	Main    bool      `json:"main,omitempty"`
	CPU     int64     `json:"cpu"` // ns
	Samples uint64    `json:"samples"`
	Depth   int       `json:"depth"`
	Ended   bool      `json:"ended,omitempty"`
	Idle    bool      `json:"idle,omitempty"` // it only waited for work: see package wait/idle
	State   string    `json:"state"`
	Call    int32     `json:"call"`
	Last    float64   `json:"last"`
	Process int       `json:"process,omitempty"` // index in the hello's processes
	Dropped *float64  `json:"dropped,omitempty"` // calls that ended before this time were dropped
}

func (s *Server) status() statusMessage {
	f := s.feed(0)
	from, to := f.st.Span()
	m := statusMessage{Op: "status", Held: f.st.Held(), Dropped: f.st.Dropped(), Threads: []threadMessage{}}
	if from != 0 {
		m.From, m.To = float64(from-f.base), float64(to-f.base)
	}
	inFile, ferr := f.st.InFile()
	m.InFile = inFile
	if ferr != nil {
		m.NoFile = ferr.Error()
	}
	done, reason, err := f.state()
	m.Done, m.Reason = done, reason
	if err != nil && !errors.Is(err, context.Canceled) {
		m.Error = err.Error()
	}
	loads := map[int]store.Load{}
	for _, l := range f.st.Loads(0, 0, 0) {
		loads[l.Seq] = l
	}
	idle := f.idle()
	for _, in := range f.st.Infos() {
		l := loads[in.Seq]
		t := threadMessage{Seq: in.Seq, TID: in.TID, NSTID: in.NSTID, Name: in.Name, Main: in.Main, CPU: l.CPU, Samples: l.Samples,
			Depth: l.Depth, Ended: l.Ended, State: l.State.State.String(), Call: l.State.Call, Last: float64(l.Last - f.base)}
		t.Idle, t.Process = idle[in.Seq], in.Process
		if l.Dropped != 0 {
			d := float64(l.Dropped - f.base)
			t.Dropped = &d
		}
		m.Threads = append(m.Threads, t)
	}
	if s.o.Status != nil {
		st := s.o.Status()
		m.Status = &st
	}
	return m
}

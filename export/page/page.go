// Package page writes a recording as one HTML file: the page of `sliver view` with its data. The file
// opens from a disk, without sliver and without a network.
//
// The data are gzip-compressed and in base64. They begin with the length of a JSON header (4 bytes,
// little-endian) and the header; behind it are the columns of each thread and the spans of tasks, all varints (LEB128), as
// web/page/src/shared.ts reads them. Times are in units of 100 ns.
//
// Of several processes, threads have numbers of their own: those of a process follow the one's before. Each process has a
// group of tasks.
//
// Write may run for several recordings at once.
package page

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/web/analysis"
	"github.com/sliverprof/sliver/web/dist"
)

// unit of the times in columns, ns.
const unit = 100

// Version of the data.
const Version = 1

// Names of columns, in their order.
var columns = []string{
	"time", "ends", "begins", "place", // changes of the stack: time since the one before, calls that end, calls that begin, their places
	"seentime", "seen", // samples
	"rantime", "ran", // CPU time, ns, that the stack at that time gets: docs/notes/estimator.md
	"statetime", "statelen", "state", "wait", // states: since the end of the one before, length, value as on the wire, index of the wait plus 1
	"locktime", "locklen", "lock",
	"pausetime", "pauselen",
	"gaptime", "gaplen", "gap",
	"heldtime", "heldlen", "held", // waits for locks as package report counts them: begin since the one before, length, index of the words times 8 (1: idle, 2: fitted, 4: it is of the same wait as the one before)
	"misstime", "misslen", "miss", // CPU time, ns, that no sample has: since the end of the one before, length
}

type header struct {
	Version  int                `json:"version"`
	Unit     int64              `json:"unit"`
	Base     int64              `json:"base,string"` // time 0, in ns of CLOCK_MONOTONIC
	Process  trace.Process      `json:"process"`
	Wall     int64              `json:"wall"` // ms since 1970 at time 0
	To       int64              `json:"to"`   // ns
	Program  string             `json:"program"`
	Notes    []string           `json:"notes"`
	Reason   string             `json:"reason"`
	Funcs    []fn               `json:"funcs"`
	Places   [][2]int           `json:"places"` // function, line
	Waits    []string           `json:"waits"`
	Locks    []lock             `json:"locks"`
	Held     []report.LockWords `json:"held"`
	Threads  []thread           `json:"threads"`
	Samples  uint64             `json:"samples"`
	Lost     uint64             `json:"lost"`      // ticks and events that left no sample
	P50      int64              `json:"pause_p50"` // ns that a sample stopped a thread, median
	P99      int64              `json:"pause_p99"`
	Overhead float64            `json:"overhead"` // share of the threads' time in stops
	Interval int64              `json:"interval"`
	Analysis *analysis.Analysis `json:"analysis"`
	WithIdle *analysis.Analysis `json:"with_idle"` // the same with idle waits in the tables
	Columns  []string           `json:"columns"`
	Tasks    []*tasks           `json:"tasks,omitempty"`
	Among    *among             `json:"among,omitempty"` // of several processes
}

type fn struct {
	Name   string `json:"name"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Module string `json:"module,omitempty"`
	Kind   string `json:"kind,omitempty"`
}

type lock struct {
	Addr   string `json:"addr"`
	Holder int    `json:"holder,omitempty"`
	By     string `json:"by,omitempty"`
	Name   string `json:"name,omitempty"`
	Wait   string `json:"wait,omitempty"`
	Kind   string `json:"kind,omitempty"`

	Process int `json:"process,omitempty"` // PID, in a recording of several
}

type thread struct {
	Seq     int    `json:"seq"`
	Process int    `json:"process,omitempty"` // index in Among.Processes
	TID     int    `json:"tid"`
	Name    string `json:"name"`
	Main    bool   `json:"main,omitempty"`
	Samples int64  `json:"samples"`
	Idle    bool   `json:"idle,omitempty"`
	Lens    []int  `json:"lens"` // bytes of each column
}

// Write writes rec to w.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	views := view.All(rec, o)
	base, end := view.Span(views)
	b := &builder{base: base, defined: map[fn]int{}, places: map[[2]int]int{}, waits: map[string]int{}, locks: map[lock]int{}, held: map[report.LockWords]int{}}
	first := views[0].Rec
	b.h = header{Version: Version, Unit: unit, Base: int64(base), Process: first.Process, To: int64(end - base), Program: first.Process.Sliver, Notes: analysis.Notes(views), Columns: columns,
		Interval: first.Process.Interval}
	var t trace.ThreadStats
	var pauses stack.Pauses
	for _, v := range views {
		x := v.Rec.Stats.Total()
		t.Add(&x)
		pauses.Add(&v.Rec.Stats.Pause)
	}
	b.h.P50, b.h.P99 = pauses.P50, pauses.P99
	if b.h.Samples = t.Samples; t.SpanNS > 0 {
		b.h.Lost = t.Lost()
		b.h.Overhead = float64(t.PauseNS) / float64(t.SpanNS)
	}
	if c := first.Process.Clocks; c.Realtime > 0 {
		b.h.Wall = c.Wall(base).UnixMilli()
	}
	if first.End != nil {
		b.h.Reason = view.Text(first.End.Reason, 256)
	}
	ao := analysis.Options{Threads: o.Threads, From: o.From, To: o.To}
	if len(views) == 1 {
		b.h.Analysis = analysis.Of(first, base, ao)
		ao.Idle = true
		b.h.WithIdle = analysis.Of(first, base, ao)
	} else {
		parts := b.among(rec, views)
		b.h.Analysis = analysis.OfSeveral(parts, len(views), base, ao)
		ao.Idle = true
		b.h.WithIdle = analysis.OfSeveral(parts, len(views), base, ao)
	}
	b.h.WithIdle.Tree, b.h.WithIdle.Funcs = nil, nil // as in Analysis
	idle := map[int]bool{}
	for _, t := range b.h.Analysis.Threads {
		idle[t.Seq] = t.IsIdle
	}
	for n := range views {
		b.of(views, n)
		for i := range b.v.Threads {
			b.thread(&b.v.Threads[i], idle[b.number(b.v.Threads[i].Seq)])
		}
	}
	b.tasks(views)
	return b.write(w)
}

// column is a list of varints.
type column struct{ bytes.Buffer }

func (c *column) put(n int64) {
	var b [binary.MaxVarintLen64]byte
	c.Write(b[:binary.PutUvarint(b[:], uint64(max(n, 0)))])
}

type builder struct {
	h       header
	base    stack.Time
	numbers []int // of the first thread of each process
	defined map[fn]int
	places  map[[2]int]int
	waits   map[string]int
	locks   map[lock]int
	held    map[report.LockWords]int
	body    bytes.Buffer

	// Of the process at hand.
	nth    int
	v      *view.View
	pid    int // 0: it is the only one
	funcs  map[int]int
	waited []report.LockWait // that are not written yet, by thread

	// Of the thread at hand.
	cols   []column
	replay *view.Replay
	at     int64 // of the last change of the stack, units
	ends   int64
	begins []int
	open   bool // a change is under way
	seen   int64
	ran    int64
	miss   int64 // end of the last stretch without a sample
	n      int64 // samples
	state  span
	last   [3]int64 // ends of the last state, lock, pause
	gap    int64
}

// span is a state under way.
type span struct {
	open  bool
	from  int64
	state stack.State
	call  int32
	class kind.Class
	known bool // the class is
	wait  int  // index of the wait plus 1
	lock  int  // index of the lock plus 1
}

const (
	colTime = iota
	colEnds
	colBegins
	colPlace
	colSeenTime
	colSeen
	colRanTime
	colRan
	colStateTime
	colStateLen
	colState
	colWait
	colLockTime
	colLockLen
	colLock
	colPauseTime
	colPauseLen
	colGapTime
	colGapLen
	colGap
	colHeldTime
	colHeldLen
	colHeld
	colMissTime
	colMissLen
	colMiss
)

func (b *builder) units(t stack.Time) int64 { return max(int64(t-b.base), 0) / unit }

func (b *builder) thread(th *view.Thread, idle bool) {
	b.cols = make([]column, len(columns))
	b.at, b.ends, b.begins, b.open, b.seen, b.ran, b.miss, b.n, b.gap = 0, 0, b.begins[:0], false, 0, 0, 0, 0, 0
	b.state, b.last = span{}, [3]int64{}
	b.replay = b.v.Timeline(th, b)
	end := b.units(b.replay.Run())
	b.change(end + 1)
	b.close(end)
	b.v.Steps(th, steps{b, end})
	b.lockWaits(th.Index)
	t := thread{Seq: b.number(th.Seq), Process: b.nth, TID: th.ID, Name: th.Label, Main: th.Main, Samples: b.n, Idle: idle}
	for i := range b.cols {
		t.Lens = append(t.Lens, b.cols[i].Len())
		b.body.Write(b.cols[i].Bytes())
	}
	b.h.Threads = append(b.h.Threads, t)
}

// lockWaits writes the waits of a thread for locks, from which the page counts those of a range.
func (b *builder) lockWaits(thread int) {
	last := int64(0)
	for ; len(b.waited) > 0 && b.waited[0].Thread == thread; b.waited = b.waited[1:] {
		w := &b.waited[0]
		value := int64(intern(b.held, &b.h.Held, w.Words)) << 3
		if w.Idle {
			value |= 1
		}
		if w.Fitted {
			value |= 2
		}
		if w.GoesOn {
			value |= 4
		}
		from := b.units(w.Begin)
		b.cols[colHeldTime].put(from - last)
		b.cols[colHeldLen].put(b.units(w.End) - from)
		b.cols[colHeld].put(value)
		last = from
	}
}

// change ends the change of the stack that is under way, if t is another time.
func (b *builder) change(t int64) {
	if !b.open || t == b.at {
		return
	}
	b.cols[colEnds].put(b.ends)
	b.cols[colBegins].put(int64(len(b.begins)))
	for _, p := range b.begins {
		b.cols[colPlace].put(int64(p))
	}
	b.ends, b.begins, b.open = 0, b.begins[:0], false
}

// begin begins a change of the stack at t.
func (b *builder) begin(t int64) {
	t = max(t, b.at)
	b.change(t)
	if !b.open {
		b.cols[colTime].put(t - b.at)
		b.at, b.open = t, true
	}
}

// Begin implements trace.SliceHandler.
func (b *builder) Begin(t stack.Time, _ int, s *trace.Slice) {
	b.begin(b.units(t))
	b.begins = append(b.begins, b.place(s))
}

// End implements trace.SliceHandler.
func (b *builder) End(t stack.Time, _ int, _ *trace.Slice) {
	b.begin(b.units(t))
	if n := len(b.begins); n > 0 { // shorter than a unit
		b.begins = b.begins[:n-1]
		return
	}
	b.ends++
}

// Other implements trace.SliceHandler.
func (b *builder) Other(e event.Event) {
	t := b.units(e.Time)
	switch e.Kind() {
	case event.Seen:
		_, n, _ := event.SeenFields(e.Payload())
		b.n += int64(n)
		b.cols[colSeenTime].put(t - b.seen)
		b.cols[colSeen].put(int64(n))
		b.seen = max(t, b.seen)
		if s := &b.state; s.open && !s.known && s.state == stack.StateBlocked {
			w := b.replay.Waiting()
			s.class, s.known = b.v.For(&w, b.v.Idle(&w, b.replay.Stack())).Group.Class(), true
		}
	case event.State:
		b.close(t)
		s, call := event.StateFields(e.Payload())
		if s == stack.StateUnknown || s == stack.StateDead {
			return
		}
		b.state = span{open: true, from: t, state: s, call: call, class: analysis.ClassOf(s, nil, "", nil)}
	case event.Wait, event.Lock, event.Holder:
		w := b.replay.Waiting()
		s := &b.state
		if !s.open {
			return
		}
		if what := b.v.What(&w); what != "" {
			s.wait = intern(b.waits, &b.h.Waits, what) + 1
		}
		if w.Lock() != 0 {
			s.lock = b.lock(w.Lock(), e) + 1
		}
		if s.state == stack.StateBlocked && !s.known {
			s.class = b.v.For(&w, false).Group.Class()
		}
	case event.Pause:
		ns := int64(min(e.Payload(), 1<<40))
		t = max(t, b.last[2])
		b.cols[colPauseTime].put(t - b.last[2])
		b.cols[colPauseLen].put(ns / unit)
		b.last[2] = t + ns/unit
	case event.Gap:
		why, ns := event.GapFields(e.Payload())
		b.putGap(t-ns/unit, ns/unit, int64(why)<<1)
	case event.Mark:
		b.putGap(t, 0, int64(e.Payload()&0xff)<<1|1)
	}
}

func (b *builder) putGap(from, n, value int64) {
	from = max(from, b.gap)
	b.cols[colGapTime].put(from - b.gap)
	b.cols[colGapLen].put(n)
	b.cols[colGap].put(value)
	b.gap = from
}

// close ends the state that is under way.
func (b *builder) close(t int64) {
	s := &b.state
	if !s.open {
		return
	}
	s.open = false
	from := max(s.from, b.last[0])
	t = max(t, from)
	b.cols[colStateTime].put(from - b.last[0])
	b.cols[colStateLen].put(t - from)
	b.cols[colState].put(int64(uint32(s.state) | uint32(uint16(s.call+1))<<8 | uint32(s.class)<<24))
	b.cols[colWait].put(int64(s.wait))
	b.last[0] = t
	if s.lock > 0 {
		b.cols[colLockTime].put(from - b.last[1])
		b.cols[colLockLen].put(t - from)
		b.cols[colLock].put(int64(s.lock - 1))
		b.last[1] = t
	}
}

func (b *builder) lock(addr uint64, e event.Event) int {
	w := b.replay.Waiting()
	if e.Kind() == event.Holder {
		w.Apply(e)
	}
	l := lock{Addr: fmt.Sprintf("%#x", addr), Process: b.pid}
	if d := b.v.Wait(&w); d != nil {
		l.Wait, l.Kind = view.Text(d.LockName(addr), 512), string(d.Kind)
	}
	if tid, by := w.Holder(); tid != 0 {
		l.Holder, l.By = int(tid), by.String()
		if _, ok := b.v.ByTID(tid); !ok {
			l.Name = b.v.ThreadName(tid)
		}
	}
	return intern(b.locks, &b.h.Locks, l)
}

func intern[T comparable](by map[T]int, list *[]T, x T) int {
	n, ok := by[x]
	if !ok {
		n = len(*list)
		by[x] = n
		*list = append(*list, x)
	}
	return n
}

func (b *builder) place(s *trace.Slice) int {
	f := b.fn(s)
	return intern(b.places, &b.h.Places, [2]int{f, s.Frame.Line})
}

func (b *builder) fn(s *trace.Slice) int {
	if n, ok := b.funcs[s.Frame.Func]; ok {
		return n
	}
	x := &b.v.Names.Funcs[s.Frame.Func]
	out := fn{Name: b.v.FuncName(s.Frame.Func), File: view.Text(x.File, 512), Line: x.StartLine}
	if m := b.v.ModuleOf(s); m >= 0 {
		out.Module = view.Text(b.v.Rec.Modules[m].Path, 512)
	}
	if s.Loc != nil {
		if k := s.Loc.Word.Kind(); k != stack.KindNative {
			out.Kind = k.String()
		}
	}
	n := intern(b.defined, &b.h.Funcs, out)
	b.funcs[s.Frame.Func] = n
	return n
}

// write writes the file.
func (b *builder) write(w io.Writer) error {
	index, err := dist.Files.ReadFile("index.html")
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	script, err := dist.Files.ReadFile("app.js")
	if err != nil {
		return fmt.Errorf("read the page's script: %w", err)
	}
	html := string(index)
	head, tail, ok := strings.Cut(html, "<script defer src=")
	if !ok {
		return fmt.Errorf("the page has no script")
	}
	_, tail, _ = strings.Cut(tail, "</script>")
	if bytes.Contains(script, []byte("</script")) {
		return fmt.Errorf("the page's script would end its element")
	}
	body, end, ok := strings.Cut(tail, "</body>")
	if !ok {
		return fmt.Errorf("the page has no body")
	}
	const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'">`
	head = strings.Replace(head, `<meta charset="utf-8">`, `<meta charset="utf-8">`+"\n"+policy, 1)
	for _, part := range []string{head, body, `<script type="text/plain" id="data">`} {
		if _, err := io.WriteString(w, part); err != nil {
			return err
		}
	}
	if err := b.data(w); err != nil {
		return fmt.Errorf("write the page's data: %w", err)
	}
	for _, part := range []string{"</script>\n<script>", string(script), "</script>\n</body>", end} {
		if _, err := io.WriteString(w, part); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) data(w io.Writer) error {
	h, err := json.Marshal(&b.h)
	if err != nil {
		return err
	}
	e := base64.NewEncoder(base64.StdEncoding, w)
	z := gzip.NewWriter(e)
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], uint32(len(h)))
	for _, part := range [][]byte{n[:], h, b.body.Bytes()} {
		if _, err := z.Write(part); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return e.Close()
}

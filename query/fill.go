package query

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"sync"

	"modernc.org/libc"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/limits"
	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Limits of sqlite3.h (SQLITE_LIMIT_…).
const (
	limitLength   = 0
	limitAttached = 7
)

// Resource limits for one question.
const (
	maxValue = 16 << 20  // bytes of one text or blob
	maxHeap  = 256 << 20 // bytes that SQLite may allocate; the database caches 32 MB of it, the rest is on disk
	minHeap  = 64 << 20
)

// countMemory makes SQLite count its allocations; its memory limit has no effect
// otherwise. Call it before opening the first database; a later call returns an error.
var countMemory = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	list := libc.NewVaList(int32(1))
	defer libc.Xfree(tls, list)
	if rc := lib.Xsqlite3_config(tls, lib.SQLITE_CONFIG_MEMSTATUS, list); rc != lib.SQLITE_OK {
		return fmt.Errorf("bound the memory of SQLite: error %d", rc)
	}
	return nil
})

// closeDoors forbids ATTACH, which would let a question write files, and limits the memory
// that it may use.
func (d *DB) closeDoors(ctx context.Context) error {
	for id, n := range map[int]int{limitAttached: 0, limitLength: maxValue} {
		if _, err := sqlite.Limit(d.conn, id, n); err != nil {
			return err
		}
	}
	heap := min(maxHeap, max(minHeap, limits.Process().Most()/2))
	_, err := d.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA hard_heap_limit=%d", heap))
	return err
}

// filler writes rows and keeps the first error.
type filler struct {
	ctx   context.Context
	rec   *trace.Recording
	views []*view.View // of all processes
	v     *view.View   // of the process that is being written
	// between is only filled if the question uses the tables states or waits.
	between *between.Between
	start   stack.Time           // of the recording
	put     map[string]*sql.Stmt // by table; nil: the question does not use the table
	// Numbers of the process, and of its first thread and function.
	process, threads, functions0 int
	err                          error
	slice                        int64 // last slice ID assigned
}

func (f *filler) close() {
	for _, s := range f.put {
		s.Close()
	}
}

func (f *filler) row(table string, values ...any) {
	s := f.put[table]
	if s == nil || f.err != nil {
		return
	}
	_, f.err = s.ExecContext(f.ctx, values...)
}

func (f *filler) asked(tables ...string) bool {
	for _, t := range tables {
		if f.put[t] != nil {
			return true
		}
	}
	return false
}

// ts returns t relative to the start of the recording.
func (f *filler) ts(t stack.Time) int64 { return int64(t - f.start) }

// thread returns the number of a thread of the process.
func (f *filler) thread(seq int) int { return f.threads + seq }

func (f *filler) all() error {
	f.start = f.views[0].Start()
	for _, v := range f.views {
		f.start = min(f.start, v.Start())
	}
	if f.asked("recording") {
		for _, x := range f.views[0].Facts() {
			f.row("recording", x[0], x[1])
		}
		for _, v := range f.views {
			for _, l := range v.Losses() {
				if len(f.views) > 1 {
					l = v.Process() + ": " + l
				}
				f.row("recording", "loss", l)
			}
		}
	}
	if f.asked("states", "waits") {
		f.between = between.Of(f.rec, f.views)
	} else {
		f.between = between.None()
	}
	for n, v := range f.views {
		f.process, f.v = n, v
		if err := f.one(); err != nil {
			return err
		}
		next := f.threads
		for i := range v.Rec.Threads {
			next = max(next, f.thread(v.Rec.Threads[i].Seq+1))
		}
		f.threads = next
		f.functions0 += len(v.Names.Funcs)
	}
	return f.err
}

// one writes one process.
func (f *filler) one() error {
	f.processRow()
	for i := range f.v.Threads {
		th := &f.v.Threads[i]
		st := f.v.Stats(th)
		f.row("threads", f.thread(th.Seq), th.ID, th.Label, th.Main, f.ts(th.Born), f.ts(th.Since), int64(st.Samples), int64(st.Stopped()),
			int64(st.Late), int64(st.Truncated), int64(st.Overwritten), st.CPUNS, st.PauseNS, f.process)
		f.threadNames(th)
		f.threadStates(th)
		if f.asked("slices", "samples", "states", "waits", "locks", "gaps", "functions") {
			r := &reader{f: f, start: f.start, seq: f.thread(th.Seq), thread: th.Index, arch: f.v.Rec.Process.Arch}
			r.close(f.v.ExactSlices(th, r))
		}
		if f.err != nil {
			return f.err
		}
	}
	f.tasks()
	f.calls()
	f.io()
	f.profile()
	f.functions()
	return f.err
}

func (f *filler) threadNames(th *view.Thread) {
	if !f.asked("thread_names") {
		return
	}
	names := th.Names()
	for i, n := range names {
		from, to := max(n.From, th.Since, f.v.Begin()), f.v.End()
		if i+1 < len(names) {
			to = min(to, names[i+1].From)
		}
		if to > from || len(names) == 1 {
			f.row("thread_names", f.thread(th.Seq), n.Label, f.ts(from), int64(max(to-from, 0)))
		}
	}
}

func (f *filler) processRow() {
	if !f.asked("processes") {
		return
	}
	r := f.v.Rec
	var ended, status, signal any
	if r.End != nil {
		ended = f.ts(r.End.At)
		if x := r.End.Exit; x != nil && x.Signal != "" {
			signal = view.Text(x.Signal, view.MaxName)
		} else if x != nil {
			status = x.Status
		}
	}
	t := r.Stats.Total()
	f.row("processes", f.process, f.v.PID(), zeroNull(int64(r.Process.Parent)), view.Text(r.Process.Comm, view.MaxName), view.Text(view.Command(r.Process.Cmdline), view.MaxName),
		f.ts(r.Process.StartTime), ended, len(r.Threads), int64(t.Samples), r.CPU(), status, signal)
}

func (f *filler) functions() {
	if !f.asked("functions") {
		return
	}
	for i := range f.v.Names.Funcs {
		if f.v.Names.Same(i) != i {
			continue // another row has its calls
		}
		fn := &f.v.Names.Funcs[i]
		var module, build any
		if fn.Module >= 0 && fn.Module < len(f.v.Rec.Modules) {
			m := &f.v.Rec.Modules[fn.Module]
			module, build = view.Text(m.Path, view.MaxName), orNull(m.BuildID)
		}
		f.row("functions", f.functions0+i, f.v.FuncName(i), orNull(view.Text(fn.Linkage, view.MaxName)), orNull(view.Text(fn.File, view.MaxName)),
			zeroNull(int64(fn.StartLine)), module, build, zeroNull(int64(fn.Start)), f.process)
	}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return view.Text(s, view.MaxName)
}

func zeroNull(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// reader receives the replay of one thread.
type reader struct {
	f     *filler
	start stack.Time
	seq   int
	// thread is its index in the view.
	thread int
	arch   string
	open   []open
	stack  []trace.Slice // of the open slices

	state   lasting
	wait    lasting
	lock    lasting
	waiting diff.Waiting // as of the last event
	kind    stack.State
	sampled stack.State // the one that the last sample found
	exact   bool        // kind is by the context switches
	woken   uint64      // payload of the Waker event that ended the wait
	kernel  uint64      // number of the kernel stack of the wait
	call    int32
	waitID  int
	lockID  int // ID of the wait description that addr belongs to
	addr    uint64
	holder  uint64
	lost    stack.Time // when events were lost; 0: none are missing
}

// open is a slice that is still open.
type open struct {
	id     int64
	began  stack.Time
	called int64 // ns spent in callees
}

// lasting is a state, wait or lock that is in progress.
type lasting struct {
	on    bool
	since stack.Time
	slice any
	set   bool // slice is resolved; events of one moment arrive one by one
	idle  bool // of a wait
	seen  int  // samples of a state
}

// settle assigns the current leaf slice to everything that began before t. It runs on the
// first event after such a beginning, when the stack of that moment is complete.
func (r *reader) settle(t stack.Time) {
	for _, l := range []*lasting{&r.state, &r.wait, &r.lock} {
		if l.on && !l.set && t > l.since {
			r.resolve(l)
		}
	}
}

// resolve assigns the present stack to l.
func (r *reader) resolve(l *lasting) {
	l.slice, l.set = r.leaf(), true
	l.idle = l == &r.wait && r.f.v.Idle(&r.waiting, r.stack)
}

func (r *reader) leaf() any {
	if len(r.open) == 0 {
		return nil
	}
	return r.open[len(r.open)-1].id
}

// Begin implements trace.SliceHandler.
func (r *reader) Begin(t stack.Time, depth int, s *trace.Slice) {
	r.settle(t)
	r.endLost(t)
	r.f.slice++
	r.stack = append(r.stack[:min(depth, len(r.stack))], *s)
	r.open = append(r.open[:min(depth, len(r.open))], open{id: r.f.slice, began: t})
}

// End implements trace.SliceHandler.
func (r *reader) End(t stack.Time, depth int, s *trace.Slice) {
	r.settle(t)
	if depth >= len(r.open) {
		return
	}
	o := r.open[depth]
	var parent any
	if depth > 0 {
		parent = r.open[depth-1].id
		r.open[depth-1].called += int64(t - o.began)
	}
	r.open, r.stack = r.open[:depth], r.stack[:depth]
	r.f.row("slices", o.id, parent, r.seq, depth, r.f.functions0+s.Frame.Func, int64(o.began-r.start), int64(t-o.began), max(int64(t-o.began)-o.called, 0), zeroNull(int64(s.Frame.Line)), s.Frame.Inlined, s.Loc.Word.Kind().String(), exact(s.Exact))
}

// Other implements trace.SliceHandler.
func (r *reader) Other(e event.Event) {
	r.settle(e.Time)
	switch e.Kind() {
	case event.Seen:
		w, n, cpu := event.SeenFields(e.Payload())
		r.state.seen += n
		r.f.row("samples", r.seq, int64(e.Time-r.start), n, w.String(), cpu, r.leaf(), r.sampled.String())
	case event.State:
		r.endState(e.Time)
		r.endLock(e.Time)
		r.waitID, r.lockID, r.addr, r.holder = 0, 0, 0, 0
		r.kind, r.call = event.StateFields(e.Payload())
		r.sampled, r.exact = event.StateSampled(e.Payload()), e.Payload()&event.StateExact != 0
		if r.kind != stack.StateUnknown {
			r.state = lasting{on: true, since: e.Time}
		}
	case event.Waker:
		r.woken = e.Payload()
	case event.Kernel:
		r.kernel = e.Payload()
	case event.Wait:
		if r.wait.on && e.Payload() != 0 { // a better description of the same wait
			r.waitID = int(min(e.Payload(), 1<<31))
			r.lockID, r.wait.set = r.waitID, false
			break
		}
		r.endWait(e.Time)
		if r.waitID = int(min(e.Payload(), 1<<31)); r.waitID != 0 {
			r.wait = lasting{on: true, since: e.Time}
			r.lockID = r.waitID
		}
	case event.Lock:
		if r.lock.on && e.Payload() == r.addr {
			r.lockID = r.waitID
			break
		}
		r.endLock(e.Time)
		r.addr, r.holder, r.lockID = e.Payload(), 0, r.waitID
		if r.addr != 0 {
			r.lock = lasting{on: true, since: e.Time}
		}
	case event.Holder:
		// The wait is for the last holder. A lock that changes hands during the wait gets
		// one row for each holder.
		if r.holder != 0 && r.holder != e.Payload() {
			on := r.lock.on
			r.endLock(e.Time)
			r.lock = lasting{on: on, since: e.Time}
		}
		r.holder = e.Payload()
	case event.Gap:
		why, ns := event.GapFields(e.Payload())
		if why == stack.WhyLost {
			r.close(e.Time)
			r.lost = max(e.Time, 1)
			return
		}
		r.gap(max(e.Time-stack.Time(ns), r.f.v.Begin()), e.Time, why)
	}
	r.waiting.Apply(e)
}

// gap writes a time range with missing samples.
func (r *reader) gap(from, to stack.Time, why stack.Why) {
	r.f.row("gaps", r.seq, int64(from-r.start), int64(max(to-from, 0)), why.String())
}

// endLost ends at t the gap that began when events were lost.
func (r *reader) endLost(t stack.Time) {
	if r.lost != 0 {
		r.gap(r.lost, t, stack.WhyLost)
		r.lost = 0
	}
}

// close ends everything in progress at t.
func (r *reader) close(t stack.Time) {
	r.settle(t)
	r.endState(t)
	r.endWait(t)
	r.endLock(t)
	r.endLost(t)
	r.kind, r.sampled, r.exact = stack.StateUnknown, stack.StateUnknown, false
}

// ended ends l at t and returns the values of ts and dur.
func (r *reader) ended(l *lasting, t stack.Time) (ts, dur int64, ok bool) {
	if !l.on {
		return 0, 0, false
	}
	if r.settle(t); !l.set { // it began at t
		r.resolve(l)
	}
	l.on = false
	return int64(l.since - r.start), int64(max(t, l.since) - l.since), true
}

func (r *reader) endState(t stack.Time) {
	if ts, dur, ok := r.ended(&r.state, t); ok {
		var call any
		if r.call >= 0 {
			call = syscalls.Name(r.arch, r.call)
		}
		var waker any
		if tid, ok := r.f.v.Waker(r.woken); ok {
			waker = int64(tid)
		}
		r.f.row("states", r.seq, ts, dur, r.kind.String(), call, r.state.slice, r.exact, waker, orNull(r.f.v.Woken(r.woken)), r.wakerProcess(t), orNull(r.f.v.KernelStack(r.kernel)))
	}
	// A wait ends with the state that it explains. If the same wait continues, the
	// recording repeats it.
	r.endsWait(t, r.f.between.At(r.f.process, r.thread, r.state.since))
	r.woken, r.kernel = 0, 0
}

// wakerProcess returns the number of the process of the thread that ended the state, by the kernel.
func (r *reader) wakerProcess(t stack.Time) any {
	w, soft := r.f.v.WakerOf(r.woken)
	switch {
	case w == nil || soft:
		return nil
	case w.PID == r.f.v.Rec.Process.PID:
		return r.f.process
	}
	if n := r.f.between.View(w.PID, t); n >= 0 {
		return n
	}
	return nil
}

// samples returns how many samples found the current state; nil: the kernel's context switches show it.
func (r *reader) samples() any {
	if r.exact {
		return nil
	}
	return r.state.seen
}

func (r *reader) endWait(t stack.Time) { r.endsWait(t, nil) }

// endsWait is endWait for a wait that was for other processes, if of is not nil.
func (r *reader) endsWait(t stack.Time, of *between.Wait) {
	ts, dur, ok := r.ended(&r.wait, t)
	if !ok {
		return
	}
	w := r.f.v.Rec.Waits[r.waitID]
	woken := r.f.v.Woken(r.woken)
	var waitsFor, process, waker, by any
	if of != nil {
		b := r.f.between
		waitsFor, by = orNull(b.Text(of)), orNull(of.By.String())
		woken = cmp.Or(woken, b.Woken(of))
		if of.Waker >= 0 {
			if n := b.Processes[of.Waker].View; n >= 0 {
				if process = n; of.WakerThread >= 0 {
					waker = int64(r.f.views[n].Threads[of.WakerThread].TID)
				}
			}
		}
	}
	r.f.row("waits", r.seq, ts, dur, orNull(w.Call), orNull(string(w.Kind)), orNull(w.Args), orNull(w.File), orNull(cmp.Or(r.f.v.FileGroup(&w), w.File)),
		zeroNull(int64(r.addr)), orNull(w.Symbol), zeroNull(w.Timeout), r.wait.slice, r.wait.idle, orNull(woken), waitsFor, process, waker, by, r.samples())
}

func (r *reader) endLock(t stack.Time) {
	ts, dur, ok := r.ended(&r.lock, t)
	if !ok {
		return
	}
	var holder, by any
	if tid, known := event.HolderFields(r.holder); tid != 0 {
		holder, by = int64(tid), knownBy(known)
	}
	r.f.row("locks", r.seq, ts, dur, int64(r.addr), orNull(r.f.v.Rec.Waits[r.lockID].Symbol), holder, by, r.lock.slice, r.samples())
}

func knownBy(k event.KnownBy) any {
	switch k {
	case event.KnownByWord:
		return "word"
	case event.KnownByKernel:
		return "kernel"
	case event.KnownByRuntime:
		return "runtime"
	case event.KnownByInferred:
		return "inferred"
	case event.KnownByWaker:
		return "waker"
	}
	return nil
}

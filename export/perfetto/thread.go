package perfetto

import (
	"math"
	"strconv"

	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// thread writes the events of one thread.
func (e *exporter) thread(th *view.Thread) {
	w := &writer{
		e: e, th: th, in: newInterned(e.v), pid: uint64(e.v.PID()), tid: uint64(th.ID),
		slices: e.sequence(kindSlices, th), state: e.sequence(kindState, th),
		pauses: e.sequence(kindPauses, th), counters: e.sequence(kindShare, th),
		interval: max(e.v.Rec.Process.Interval, 1),
		stateIn:  &interned{}, held: -1,
	}
	if e.taskRuns != nil {
		w.tasks.runs = e.taskRuns[th.Index]
	}
	e.samples.rewind()
	w.unseen = newUnseen(e, th)
	w.cuts.Yield = w.stateSlice
	w.weights = e.v.Weights(th)
	w.knowsCPU = w.weights.Total() > 0
	w.waits = e.waitsOf(th)
	w.replay = e.v.Timeline(th, w)
	w.close(w.replay.Run())
}

// writer writes one thread.
type writer struct {
	e      *exporter
	th     *view.Thread
	in     *interned
	replay *view.Replay

	slices, state, pauses, counters *sequence
	stateIn                         *interned
	woken, waitsFor, kernel         bool // stateIn has annotateWoken, annotateFor and annotateKernel

	pid, tid uint64
	interval int64 // ns between samples
	frames   []frame
	valid    int // frames[:valid] match the current stack

	unseen   *unseen
	tasks    taskSlices
	cuts     view.Intervals
	waits    []contend.Wait // of the thread, still to come
	facts    []view.Detail
	now      stack.State
	held     int64      // ns of a pause not yet written; -1: none
	heldAt   stack.Time // its begin
	knowsCPU bool
	weights  *view.Weights
	due      float64 // CPU time not yet represented by a sample, ns

	seen     stack.Time // time of the last Seen event
	winAt    stack.Time // start of the window for shares and switches
	winCPU   int64
	winSched uint64
	shares   bool
	paused   bool
	levels   int     // tracks for deep calls described so far
	rate     float64 // switches per second, last value written
}

// frame is a slice of the stack as a node in the tree of callstacks.
type frame struct {
	loc  *trace.Loc
	at   trace.LocFrame
	node int32
}

// Begin implements trace.SliceHandler.
func (w *writer) Begin(t stack.Time, depth int, s *trace.Slice) {
	w.valid = min(w.valid, depth)
	w.unseen.Seen(t)
	track := uint64(0)
	if depth >= maxDepth {
		track = w.deeper(depth / maxDepth)
	}
	w.slice(t, s, track, true)
	w.taskBegin(t, depth, s)
}

// slice begins a slice on a track; 0 is the thread's track. If own is set, it may carry
// the thread's pause.
func (w *writer) slice(t stack.Time, s *trace.Slice, track uint64, own bool) {
	in, o := w.in, w.e.out
	name, source, module, category := in.name(s.Frame.Func), in.source(&s.Frame), in.module(w.e.v.ModuleOf(s)), in.category(s)
	ended := uint32(0)
	if s.Exact != nil {
		in.exactAnnotation()
		category, ended = categoryCalls, in.value(s.Exact.How.String())
	}
	at := w.slices.begin(t, true)
	in.take(o)
	ev := o.open(packetTrackEvent)
	o.uint(eventType, typeBegin)
	o.uint(eventName, uint64(name))
	if category > 0 {
		o.uint(eventCategory, category)
	}
	if source > 0 {
		o.uint(eventSource, uint64(source))
	}
	if track != 0 {
		o.uint(eventTrack, track)
	}
	if module > 0 {
		a := o.open(eventAnnotation)
		o.uint(annotationName, annotateModule)
		o.uint(annotationStrIID, uint64(module))
		o.end(a)
	}
	o.exact(s.Exact, ended)
	if own {
		w.withPause()
	}
	o.end(ev)
	o.done(at)
}

// End implements trace.SliceHandler.
func (w *writer) End(t stack.Time, depth int, _ *trace.Slice) {
	w.valid = min(w.valid, depth)
	o := w.e.out
	at := w.slices.begin(t, false)
	ev := o.open(packetTrackEvent)
	o.uint(eventType, typeEnd)
	if depth >= maxDepth {
		o.uint(eventTrack, w.deeper(depth/maxDepth))
	}
	w.withPause()
	o.end(ev)
	o.done(at)
	w.taskLeave(t, depth)
}

// maxDepth limits how many slices are nested on one track. trace_processor accepts 512
// (kMaxDepth in slice_tracker.cc) and mangles deeper ones; one is reserved for marks.
// Deeper calls continue on tracks below.
const maxDepth = 511

// deeper returns the track of the calls from depth level*maxDepth on.
func (w *writer) deeper(level int) uint64 {
	index := w.th.Index<<16 + level
	if level > w.levels {
		w.levels = level
		w.e.child(kindDeeper, index, w.e.uuid(kindSlices, w.th.Index), "calls from depth "+strconv.Itoa(level*maxDepth), "",
			"A track takes no more; these go on where the calls of the thread's track, or the one above, end.", 4+level, false)
	}
	return w.e.uuid(kindDeeper, index)
}

// Other implements trace.SliceHandler.
func (w *writer) Other(e event.Event) {
	w.cuts.Other(e)
	w.unseen.Other(e)
	switch e.Kind() {
	case event.Seen:
		w.flushPause()
		w.sawStack(e)
	case event.Sched:
		n, _ := event.SchedFields(e.Payload())
		w.winSched += n
	case event.State:
		w.now = event.StateSampled(e.Payload())
	case event.Pause:
		w.pause(e.Time, int64(e.Payload()))
	case event.Rate:
		w.interval = max(int64(e.Payload()), 1)
		w.mark(e.Time, "interval", annotateInterval, e.Payload())
	case event.Mark:
		w.mark(e.Time, stack.Why(e.Payload()).String(), 0, 0)
	}
}

// close ends everything open at t.
func (w *writer) close(t stack.Time) {
	w.flushPause()
	w.cuts.Close(t)
	w.unseen.Close(t)
	w.window(t, true)
	if k := w.weights.Unseen() / w.interval; k > 0 && w.knowsCPU {
		w.sample(t, min(k, maxSamples), w.e.stacks.stacks.Child(0, int32(w.e.stacks.special(-2, "(not sampled)"))))
	}
}

// mark writes an instant on the thread's track.
func (w *writer) mark(t stack.Time, name string, annotation int, value uint64) {
	in, o := w.in, w.e.out
	in.annotation()
	id := in.words(name)
	at := w.slices.begin(t, true)
	in.take(o)
	ev := o.open(packetTrackEvent)
	o.uint(eventCategory, categorySliver)
	o.uint(eventType, typeInstant)
	o.uint(eventName, uint64(id))
	if annotation != 0 {
		a := o.open(eventAnnotation)
		o.uint(annotationName, uint64(annotation))
		o.uint(annotationUint, value)
		o.end(a)
	}
	o.end(ev)
	o.done(at)
}

// pause records that sliver stopped the thread for ns from t on. The pause counter is
// attached to the next event on the track, nearly always of the same sample; otherwise it
// gets its own packet.
func (w *writer) pause(t stack.Time, ns int64) {
	w.flushPause()
	if !w.paused {
		w.paused = true
		w.e.child(kindPauses, w.th.Index, w.e.uuid(kindSlices, w.th.Index), "sliver: pause", "ns",
			"How long sliver held the thread when it last looked at it.", 1<<20, false)
	}
	w.held, w.heldAt = min(max(ns, 0), maxPause), t
}

// maxPause limits the value that a hostile recording can give: a day.
const maxPause = 24 * 3600 * 1e9

// withPause adds this sample's pause, if any, to the track event that is being written.
func (w *writer) withPause() {
	if w.held >= 0 {
		w.e.out.uint(eventExtraCounter, uint64(w.held))
		w.held = -1
	}
}

func (w *writer) flushPause() {
	if w.held < 0 {
		return
	}
	o := w.e.out
	at := w.pauses.begin(w.heldAt, false)
	ev := o.open(packetTrackEvent)
	o.uint(eventType, typeCounter)
	o.uint(eventCounter, uint64(w.held))
	o.end(ev)
	o.done(at)
	w.held = -1
}

// sawStack handles a Seen event. It writes one callstack for each interval of CPU time of its samples.
func (w *writer) sawStack(e event.Event) {
	t := e.Time
	way, n, cpu := event.SeenFields(e.Payload())
	if w.winAt == 0 {
		w.winAt = t
	}
	w.winCPU += cpu
	w.window(t, false)
	k := int64(0)
	if w.knowsCPU {
		w.due += w.weights.Of(e, w.now)
		k = int64(w.due/float64(w.interval) + 1e-6) // a sum of shares may be less than whole by rounding
	} else if event.Ran(w.now, way) && w.seen > 0 { // the recording has no scheduler account
		k = int64(n)
	}
	if k > 0 && len(w.replay.Stack()) > 0 {
		w.due -= float64(k * w.interval)
		w.sample(t, min(k, maxSamples), w.node())
	}
	w.seen = t
}

// maxSamples is the largest count of one Seen event.
const maxSamples = event.MaxSeen

// minWindow is the shortest time over which a CPU share is computed, in ns.
const minWindow = 100_000_000

// window ends the span over which shares are computed, if it is long enough or the last
// one.
func (w *writer) window(t stack.Time, last bool) {
	d := t - w.winAt
	if w.winAt == 0 || d < minWindow && !last || d <= 0 {
		return
	}
	if !w.shares {
		w.shares = true
		parent := w.e.uuid(kindSlices, w.th.Index)
		w.e.child(kindShare, w.th.Index, parent, "CPU share", "%", "CPU time by the kernel's account, of the time that elapsed.", 2, false)
		w.e.child(kindSwitches, w.th.Index, parent, "switches", "1/s", "How often the thread was put on a CPU.", 3, false)
	}
	o := w.e.out
	put := func(t stack.Time, k kind, val float64) {
		at := w.counters.begin(t, false)
		ev := o.open(packetTrackEvent)
		o.uint(eventType, typeCounter)
		if k != kindShare {
			o.uint(eventTrack, w.e.uuid(k, w.th.Index))
		}
		o.double(eventDouble, math.Float64bits(val))
		o.end(ev)
		o.done(at)
	}
	put(w.winAt, kindShare, 100*float64(w.winCPU)/float64(d))
	if rate := float64(w.winSched) * 1e9 / float64(d); rate != w.rate {
		w.rate = rate
		put(w.winAt, kindSwitches, rate)
	}
	if last {
		put(t, kindShare, 0)
		if w.rate != 0 {
			put(t, kindSwitches, 0)
		}
	}
	w.winAt, w.winCPU, w.winSched = t, 0, 0
}

// sample writes k callstack samples, spread over the time since the last observation.
func (w *writer) sample(t stack.Time, k int64, node int32) {
	in, o := w.e.stacks, w.e.out
	id := in.callstack(node)
	from := w.seen
	if from == 0 {
		from = t
	}
	for i := range k {
		at := w.e.samples.begin(from+stack.Time(int64(float64(t-from)*float64(i+1)/float64(k))), true)
		in.take(o)
		p := o.open(packetPerfSample)
		o.uint(samplePID, w.pid)
		o.uint(sampleTID, w.tid)
		o.uint(sampleCallstack, id)
		o.end(p)
		o.done(at)
	}
}

// maxCallstack limits the frames of a callstack, as each distinct one is written whole.
// Deeper ones lose the frames in the middle.
const maxCallstack = 512

// maxStacks limits the nodes of the callstack tree. Beyond it the reader's tables are
// reset, so that memory stays bounded.
const maxStacks = 1 << 18

// node returns the callstack of the current stack.
func (w *writer) node() int32 {
	if w.e.stacks.stacks.Len() > w.e.maxStacks {
		w.e.stacks = newInterned(w.e.v)
		w.e.samples.start()
		w.valid = 0
	}
	st := w.replay.Stack()
	if len(st) > maxCallstack {
		return w.cutNode(st)
	}
	for i := range w.valid { // a frame that moved is another place in the same slice
		if f := &w.frames[i]; f.loc != st[i].Loc || f.at.Func != st[i].Frame.Func || f.at.Line != st[i].Frame.Line {
			w.valid = i
			break
		}
	}
	in, n := w.e.stacks, int32(0)
	if w.valid > 0 {
		n = w.frames[w.valid-1].node
	}
	w.frames = w.frames[:w.valid]
	for i := w.valid; i < len(st); i++ {
		n = in.stacks.Child(n, int32(in.frame(&st[i].Frame, st[i].Loc)))
		w.frames = append(w.frames, frame{st[i].Loc, st[i].Frame, n})
	}
	w.valid = len(st)
	return n
}

// cutNode is node for stacks that are too deep.
func (w *writer) cutNode(st []trace.Slice) int32 {
	in, n := w.e.stacks, int32(0)
	add := func(s *trace.Slice) { n = in.stacks.Child(n, int32(in.frame(&s.Frame, s.Loc))) }
	for i := range maxCallstack / 2 {
		add(&st[i])
	}
	n = in.stacks.Child(n, int32(in.special(-1, "[frames left out]")))
	for i := len(st) - maxCallstack/2 + 1; i < len(st); i++ {
		add(&st[i])
	}
	return n
}

// Package perfetto writes a recording as a Perfetto trace: a track for each
// thread with its calls as slices, its state, its share of a CPU and its
// switches beside it, the time that sliver held it on a track of sliver's own,
// marks where samples are missing, and callstack samples for the flame graph.
//
// Slices carry their source line (source_location) and module with build ID
// (annotation "module"). A callstack sample stands for one interval of CPU time
// by the kernel's account, so the flame graph shows where CPU time went; wall
// time is what the slices show. What the recording is missing as a whole stands
// on the slice "recording" of the process.
//
// Every thread is a run of packets of its own (see sequence), written thread
// after thread from the replay, so memory does not grow with the recording.
// Write may run for several recordings at once.
package perfetto

import (
	"hash/fnv"
	"io"
	"math"
	"strconv"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Write writes rec to w, its packets compressed.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	_, err := write(w, rec, o, false)
	return err
}

// WritePlain writes rec to w without compression.
func WritePlain(w io.Writer, rec *trace.Recording, o view.Options) error {
	_, err := write(w, rec, o, true)
	return err
}

// write returns the number of bytes before compression.
func write(w io.Writer, rec *trace.Recording, o view.Options, plain bool) (int64, error) {
	return writeBounded(w, rec, o, plain, maxStacks)
}

func writeBounded(w io.Writer, rec *trace.Recording, o view.Options, plain bool, maxStacks int) (int64, error) {
	v := view.New(rec, o)
	out := newBatches(w, plain)
	e := &exporter{v: v, out: out, base: v.Begin(), stacks: newInterned(v), maxStacks: maxStacks}
	e.samples = &sequence{out: out, id: samplesSequence, track: e.uuid(kindProcess, 0), base: e.base, samples: max(rec.Process.Interval, 1)}
	e.process()
	for i := range v.Threads {
		e.thread(&v.Threads[i])
		if out.err != nil {
			break
		}
	}
	err := out.close()
	return out.raw, err
}

type exporter struct {
	v    *view.View
	out  *batches
	base stack.Time
	// Callstack samples of all threads are one sequence, or the reader takes
	// them for as many recordings.
	samples   *sequence
	stacks    *interned
	maxStacks int
}

// Tracks of a thread.
type kind int

const (
	kindProcess kind = iota
	kindRecording
	kindSlices
	kindState
	kindPauses
	kindShare
	kindSwitches
	kindDeeper
)

// uuid of a track: the same for the same recording, and not likely to be that
// of a track of another trace.
func (e *exporter) uuid(k kind, index int) uint64 {
	p := &e.v.Rec.Process
	h := fnv.New64a()
	for _, x := range []int64{int64(p.PID), int64(p.StartTime), p.Clocks.Realtime, int64(k), int64(index)} {
		var b [8]byte
		for i := range b {
			b[i] = byte(x >> (8 * i))
		}
		h.Write(b[:])
	}
	return h.Sum64() >> 1
}

// sequence is that of a thread's track of kind k. Those of slices are numbered
// first, so that theirs, the most frequent, are short.
func (e *exporter) sequence(k kind, th *view.Thread) *sequence {
	s := &sequence{out: e.out, track: e.uuid(k, th.Index), base: e.base, extra: e.uuid(kindPauses, th.Index), id: uint64(firstSequence + th.Index)}
	if k > kindSlices {
		s.id = uint64(firstSequence + len(e.v.Threads) + 3*th.Index + int(k-kindState))
	}
	return s
}

const (
	processSequence = 1
	samplesSequence = 2
	firstSequence   = 3
)

// process writes the clocks, the machine, and the tracks of the process.
func (e *exporter) process() {
	o, p := e.out, &e.v.Rec.Process
	at := o.packet()
	snap := o.open(packetClockSnapshot)
	clock := func(id, t uint64) {
		c := o.open(clocksClock)
		o.uint(clockID, id)
		o.uint(clockTime, t)
		o.end(c)
	}
	clock(clockMonotonic, uint64(e.base))
	if c := p.Clocks; c.Monotonic > 0 {
		since := int64(e.base - c.Monotonic) // what was one moment for all three, moved to base
		if c.Boottime+since > 0 {
			clock(clockBoottime, uint64(c.Boottime+since))
		}
		if c.Realtime+since > 0 {
			clock(clockRealtime, uint64(c.Realtime+since))
		}
	}
	o.uint(clocksPrimary, clockMonotonic)
	o.end(snap)
	o.uint(packetSequenceID, processSequence)
	o.uint(packetSequenceFlags, flagStateCleared)
	o.uint(packetFirstOnSequence, 1)
	d := o.open(packetDefaults)
	o.uint(defaultsClockID, clockMonotonic)
	o.end(d)
	o.done(at)

	at = o.packet()
	info := o.open(packetSystemInfo)
	u := o.open(infoUtsname)
	o.str(utsSysname, "Linux")
	o.text(utsRelease, view.Text(p.Kernel, 256))
	machine := view.Text(p.Arch, 64) // in uname's words, not Go's
	switch machine {
	case "amd64":
		machine = "x86_64"
	case "arm64":
		machine = "aarch64"
	}
	o.text(utsMachine, machine)
	o.end(u)
	o.uint(infoPageSize, uint64(uint32(p.Page)))
	o.uint(infoCPUs, uint64(uint32(p.CPUs)))
	o.end(info)
	o.uint(packetSequenceID, processSequence)
	o.done(at)

	at = o.packet()
	t := o.open(packetTrackDescriptor)
	o.uint(trackUUID, e.uuid(kindProcess, 0))
	x := o.open(trackProcess)
	o.uint(processPID, uint64(e.v.PID()))
	for i, a := range p.Cmdline {
		if i == maxArgs {
			break
		}
		o.str(processCmdline, view.Text(a, 1024))
	}
	name := view.Text(p.Comm, 256)
	if name == "" {
		name = "process"
	}
	o.str(processName, name)
	if p.StartTime > 0 && p.Clocks.Monotonic > 0 {
		o.uint(processStart, uint64(p.StartTime))
	}
	o.end(x)
	o.uint(trackOrdering, orderingExplicit)
	o.end(t)
	o.uint(packetSequenceID, processSequence)
	o.done(at)

	for i := range e.v.Threads {
		e.threadTrack(&e.v.Threads[i])
	}
	e.recording()
}

// maxArgs bounds how much of a command line is repeated.
const maxArgs = 256

// threadTrack describes the track of a thread's slices.
func (e *exporter) threadTrack(th *view.Thread) {
	o := e.out
	at := o.packet()
	t := o.open(packetTrackDescriptor)
	o.uint(trackUUID, e.uuid(kindSlices, th.Index))
	o.uint(trackParent, e.uuid(kindProcess, 0))
	x := o.open(trackThread)
	o.uint(threadPID, uint64(e.v.PID()))
	o.uint(threadTID, uint64(th.ID))
	o.str(threadName, th.Label)
	o.end(x)
	o.uint(trackRank, uint64(th.Index+1))
	o.uint(trackOrdering, orderingExplicit)
	o.end(t)
	o.uint(packetSequenceID, processSequence)
	o.done(at)
}

// child describes a track below another. Where merge is set, tracks of that
// name below one parent are shown as one.
func (e *exporter) child(k kind, index int, parent uint64, name, unit, about string, rank int, merge bool) {
	o := e.out
	at := o.packet()
	t := o.open(packetTrackDescriptor)
	o.uint(trackUUID, e.uuid(k, index))
	o.uint(trackParent, parent)
	o.str(trackName, name)
	o.text(trackDescription, about)
	if unit != "" {
		c := o.open(trackCounter)
		o.str(counterUnit, unit)
		o.end(c)
	}
	o.uint(trackRank, uint64(int64(rank)))
	if merge {
		o.uint(trackMerge, mergeByName)
	} else {
		o.uint(trackMerge, mergeNone)
	}
	o.end(t)
	o.uint(packetSequenceID, processSequence)
	o.done(at)
}

// recording writes a slice over the whole time that says how the recording was
// made and what it is missing.
func (e *exporter) recording() {
	o := e.out
	e.child(kindRecording, 0, e.uuid(kindProcess, 0), "sliver: recording", "",
		"How this was recorded, and what is missing from it.", len(e.v.Threads)+2, false)
	event := func(t stack.Time, typ uint64) (packet, ev int) {
		packet = o.packet()
		o.uint(packetTimestamp, uint64(t))
		o.uint(packetSequenceID, processSequence)
		o.uint(packetSequenceFlags, flagNeedsState) // for its clock
		ev = o.open(packetTrackEvent)
		o.uint(eventType, typ)
		o.uint(eventTrack, e.uuid(kindRecording, 0))
		return packet, ev
	}
	at, ev := event(e.base, typeBegin)
	losses := e.v.Losses()
	name := "recording"
	if len(losses) > 0 {
		name = "recording with losses"
	}
	o.str(23, name)
	o.str(22, "sliver")
	note := func(k, val string) {
		a := o.open(eventAnnotation)
		o.str(annotationRawName, k)
		o.str(annotationString, val)
		o.end(a)
	}
	for _, f := range e.v.Facts() {
		note(f[0], f[1])
	}
	for i, l := range losses {
		note("loss "+strconv.Itoa(i+1), l)
	}
	o.end(ev)
	o.done(at)
	at, ev = event(max(e.v.End(), e.base), typeEnd)
	o.end(ev)
	o.done(at)
}

// thread writes what happened on one thread.
func (e *exporter) thread(th *view.Thread) {
	w := &writer{
		e: e, th: th, in: newInterned(e.v), pid: uint64(e.v.PID()), tid: uint64(th.ID),
		slices: e.sequence(kindSlices, th), state: e.sequence(kindState, th),
		pauses: e.sequence(kindPauses, th), counters: e.sequence(kindShare, th),
		interval: max(e.v.Rec.Process.Interval, 1),
		stateIn:  &interned{}, held: -1,
	}
	e.samples.rewind()
	w.replay = e.v.Replay(th, w)
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

	pid, tid uint64
	interval int64 // ns between samples
	frames   []frame
	valid    int // frames[:valid] are as the stack is

	inState  bool
	running  bool
	held     int64      // ns of a pause not yet written, -1: none
	heldAt   stack.Time // its beginning
	knowsCPU bool
	due      int64 // CPU time that no sample stands for yet, ns

	seen     stack.Time // time of the last Seen
	winAt    stack.Time // the window over which shares and switches are counted
	winCPU   int64
	winSched uint64
	shares   bool
	paused   bool
	levels   int     // tracks for deep calls that were described
	rate     float64 // switches a second, as last written
}

// frame is a slice of the stack as a node in the tree of callstacks.
type frame struct {
	loc  *trace.Loc
	at   trace.LocFrame
	node int32
}

// Begin, End and Other are for the replay.
func (w *writer) Begin(t stack.Time, depth int, s *trace.Slice) {
	w.valid = min(w.valid, depth)
	in, o := w.in, w.e.out
	deeper := uint64(0)
	if depth >= maxDepth {
		deeper = w.deeper(depth / maxDepth)
	}
	name, source, module := in.name(s.Frame.Func), in.source(&s.Frame), in.module(w.e.v.ModuleOf(s))
	at := w.slices.begin(t, true)
	in.take(o)
	ev := o.open(packetTrackEvent)
	o.uint(eventType, typeBegin)
	o.uint(eventName, uint64(name))
	if source > 0 {
		o.uint(eventSource, uint64(source))
	}
	if depth >= maxDepth {
		o.uint(eventTrack, deeper)
	}
	if module > 0 {
		a := o.open(eventAnnotation)
		o.uint(annotationName, annotateModule)
		o.uint(annotationStrIID, uint64(module))
		o.end(a)
	}
	w.withPause()
	o.end(ev)
	o.done(at)
}

// End: see Begin.
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
}

// maxDepth is how many slices are stacked on one track. trace_processor takes
// 512 (kMaxDepth in slice_tracker.cc) and mangles what comes on top; one is
// left for marks. Deeper calls go on in tracks below.
const maxDepth = 511

// deeper is the track of the calls from depth level*maxDepth on.
func (w *writer) deeper(level int) uint64 {
	index := w.th.Index<<16 + level
	if level > w.levels {
		w.levels = level
		w.e.child(kindDeeper, index, w.e.uuid(kindSlices, w.th.Index), "calls from depth "+strconv.Itoa(level*maxDepth), "",
			"A track takes no more; these go on where the calls of the thread's track, or the one above, end.", 4+level, false)
	}
	return w.e.uuid(kindDeeper, index)
}

func (w *writer) plainEnd(s *sequence, t stack.Time) {
	o := w.e.out
	at := s.begin(t, false)
	ev := o.open(packetTrackEvent)
	o.uint(eventType, typeEnd)
	o.end(ev)
	o.done(at)
}

// Other: see Begin.
func (w *writer) Other(e event.Event) {
	switch e.Kind() {
	case event.Seen:
		w.flushPause()
		_, n, cpu := event.SeenFields(e.Payload())
		w.sawStack(e.Time, n, cpu)
	case event.Sched:
		n, _ := event.SchedFields(e.Payload())
		w.winSched += n
	case event.State:
		w.changeState(e)
	case event.Pause:
		w.pause(e.Time, int64(e.Payload()))
	case event.Rate:
		w.interval = max(int64(e.Payload()), 1)
		w.mark(e.Time, "interval", 0, annotateInterval, e.Payload())
	case event.Gap:
		why, ns := event.GapFields(e.Payload())
		w.mark(e.Time, "gap: "+why.String(), why, annotateMissing, uint64(ns))
		if why == stack.WhyLost && w.inState {
			w.inState = false
			w.plainEnd(w.state, e.Time)
		}
	case event.Mark:
		w.mark(e.Time, stack.Why(e.Payload()).String(), 0, 0, 0)
	}
}

// close ends what is open at t.
func (w *writer) close(t stack.Time) {
	w.flushPause()
	if w.inState {
		w.plainEnd(w.state, t)
	}
	w.window(t, true)
}

// mark puts an instant on the thread's track.
func (w *writer) mark(t stack.Time, name string, why stack.Why, annotation int, value uint64) {
	in, o := w.in, w.e.out
	in.annotation()
	id := in.words(name)
	at := w.slices.begin(t, true)
	in.take(o)
	ev := o.open(packetTrackEvent)
	o.uint(eventCategory, categorySliver)
	o.uint(eventType, typeInstant)
	o.uint(eventName, uint64(id))
	if why != 0 {
		a := o.open(eventAnnotation)
		o.uint(annotationName, annotateWhy)
		o.str(annotationString, why.String())
		o.end(a)
	}
	if annotation != 0 {
		a := o.open(eventAnnotation)
		o.uint(annotationName, uint64(annotation))
		o.uint(annotationUint, value)
		o.end(a)
	}
	o.end(ev)
	o.done(at)
}

// named begins a slice or ends one on a sequence with few names.
func (w *writer) named(s *sequence, in *interned, t stack.Time, name string) {
	o := w.e.out
	id := in.words(name)
	at := s.begin(t, true)
	in.take(o)
	ev := o.open(packetTrackEvent)
	o.uint(eventType, typeBegin)
	o.uint(eventName, uint64(id))
	o.end(ev)
	o.done(at)
}

func (w *writer) changeState(e event.Event) {
	s, nr := event.StateFields(e.Payload())
	if !w.state.begun {
		w.e.child(kindState, w.th.Index, w.e.uuid(kindSlices, w.th.Index), "state", "", "", 1, false)
	}
	if w.inState {
		w.plainEnd(w.state, e.Time)
	}
	w.running = s == stack.StateRunning
	w.inState = s != stack.StateUnknown
	if w.inState {
		w.named(w.state, w.stateIn, e.Time, view.StateName(s, nr))
	}
}

// pause notes that sliver held the thread from t on for ns. The counter that
// shows it goes along with the next thing on the track, which nearly always
// comes of the same sample, or else has a packet of its own.
func (w *writer) pause(t stack.Time, ns int64) {
	w.flushPause()
	if !w.paused {
		w.paused = true
		w.e.child(kindPauses, w.th.Index, w.e.uuid(kindSlices, w.th.Index), "sliver: pause", "ns",
			"How long sliver held the thread when it last looked at it.", 1<<20, false)
	}
	w.held, w.heldAt = min(max(ns, 0), maxPause), t
}

// maxPause bounds what a hostile recording can say: a day.
const maxPause = 24 * 3600 * 1e9

// withPause adds the pause of this sample, if there was one, to the track
// event that is being written.
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

// sawStack takes in a Seen: n samples, and the CPU time since the last one.
func (w *writer) sawStack(t stack.Time, n int, cpu int64) {
	if w.winAt == 0 {
		w.winAt = t
	}
	w.winCPU += cpu
	w.window(t, false)
	// One sample for each interval of CPU time; where the kernel did not say
	// how much there was, for each time that it was seen running (but for the
	// first, from which CPU time counts).
	k := int64(0)
	if cpu > 0 {
		w.knowsCPU = true
		w.due += cpu
		k = w.due / w.interval
	} else if !w.knowsCPU && w.running && w.seen > 0 {
		k = int64(n)
	}
	w.due %= w.interval
	if k > 0 && len(w.replay.Stack()) > 0 {
		w.sample(t, min(k, maxSamples))
	}
	w.seen = t
}

// maxSamples is the most that one Seen can stand for, as many as it can count.
const maxSamples = event.MaxSeen

// minWindow is the time over which a CPU share is counted at least, in ns.
const minWindow = 100_000_000

// window ends the span over which shares are counted, if it is long enough, or
// the last one.
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

// sample writes k callstack samples of the stack as it is, spread over the
// time since it was last seen.
func (w *writer) sample(t stack.Time, k int64) {
	node := w.node()
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

// maxCallstack bounds the frames of a callstack: each distinct one is written
// whole. Of a deeper one the frames in the middle are left out.
const maxCallstack = 512

// maxStacks is how many nodes the tree of callstacks gets before the reader is
// told to forget all of them, so that memory stays bounded.
const maxStacks = 1 << 18

// node is the callstack that the stack is now.
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
	n = in.stacks.Child(n, int32(in.cut()))
	for i := len(st) - maxCallstack/2 + 1; i < len(st); i++ {
		add(&st[i])
	}
	return n
}

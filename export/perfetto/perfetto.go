// Package perfetto writes a recording as a Perfetto trace. Each thread has a track with
// its calls as slices, a track with its states and waits, and counters for its CPU share
// and switches. Pauses by sliver have their own track, marks show where samples are
// missing, and callstack samples feed the flame graph. Each contended lock has a lane
// with its holder and the number of waiters. An arrow leads from a wait to the thread
// that released the lock, and between processes from what ended a wait to its end. Traced calls are on tracks of their own below their threads'.
//
// Slices carry their source line (source_location) and module with build ID (annotation
// "module"). A callstack sample represents one interval of CPU time by the kernel's
// account, so the flame graph shows CPU time; the slices show wall time. The slice
// "recording" of the process lists the recording's losses.
//
// Every thread is a separate sequence of packets (see sequence), written thread after
// thread from the replay, so memory does not grow with the recording. Write may run for
// several recordings at once.
package perfetto

import (
	"hash/fnv"
	"io"
	"strconv"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/contend"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Write writes rec to w with compressed packets.
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
	views := view.All(rec, o)
	out := newBatches(w, plain)
	base := views[0].Begin()
	for _, v := range views {
		base = min(base, v.Begin())
	}
	kin := between.Of(rec, views)
	begins := wakes(kin)
	samples := &sequence{out: out, id: samplesSequence, base: base, samples: max(rec.Process.Interval, 1)}
	free := uint64(firstSequence)
	for i, v := range views {
		e := &exporter{v: v, out: out, base: base, samples: samples, stacks: newInterned(v), maxStacks: maxStacks, ids: free, views: views, n: i, between: kin, wakes: begins}
		if i == 0 {
			e.head()
		}
		free = e.all()
		if out.err != nil {
			break
		}
	}
	err := out.close()
	return out.raw, err
}

// all writes one process, and returns the first sequence ID after it.
func (e *exporter) all() uint64 {
	e.samples.track, e.samples.begun = e.uuid(kindProcess, 0), false // the tables of the process before do not apply
	if len(e.v.Rec.Waits) > 0 {
		e.contention = contend.Of(e.v)
	}
	e.hasState = make([]bool, len(e.v.Threads))
	e.process()
	e.taskTracks()
	for i := range e.v.Threads {
		e.thread(&e.v.Threads[i])
		if e.out.err != nil {
			break
		}
	}
	id := e.arrows(e.locks())
	id = e.names(e.calls(e.io(e.taskWaits(id))) + 1)
	return max(id+1, e.ids+uint64(5*len(e.v.Threads)))
}

type exporter struct {
	v    *view.View
	out  *batches
	base stack.Time
	ids  uint64 // first sequence ID of the process
	// Callstack samples of all threads share one sequence; the reader would treat several
	// sequences as several recordings.
	samples   *sequence
	stacks    *interned
	maxStacks int

	views   []*view.View // of all processes
	n       int          // index of v
	between *between.Between
	wakes   map[int][]*between.Wait

	contention *contend.Contention // nil: no thread waited for a lock
	hasState   []bool              // by thread: it has a state track

	tasks     *view.Tasks // nil: the recording has none
	taskShown []*view.Task
	taskRuns  [][]taskRun // by thread
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
	kindGaps
	kindSwitches
	kindDeeper
	kindLocks
	kindLock
	kindWaiters
	kindFlow
	kindTasks
	kindTask
	kindIO
	kindFile
	kindFindings
	kindExact
	kindNames
	kindBetween
)

// uuid returns a track's ID. It is stable for a recording and unlikely to collide with a
// track of another trace.
func (e *exporter) uuid(k kind, index int) uint64 { return uuidOf(&e.v.Rec.Process, k, index) }

func uuidOf(p *trace.Process, k kind, index int) uint64 {
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

// sequence returns the sequence of a thread's track of kind k. Slice tracks get the
// lowest numbers, so that the most frequent IDs are short.
func (e *exporter) sequence(k kind, th *view.Thread) *sequence {
	s := &sequence{out: e.out, track: e.uuid(k, th.Index), base: e.base, extra: e.uuid(kindPauses, th.Index), id: e.ids + uint64(th.Index)}
	if k > kindSlices {
		s.id = e.ids + uint64(len(e.v.Threads)+4*th.Index+int(k-kindState))
	}
	return s
}

const (
	processSequence = 1
	samplesSequence = 2
	firstSequence   = 3
)

// head writes the clocks and the machine.
func (e *exporter) head() {
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
		since := int64(e.base - c.Monotonic) // the three clocks were read at one moment, moved to base
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
	machine := view.Text(p.Arch, 64) // uname's name, not Go's
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
}

// process writes the tracks of the process.
func (e *exporter) process() {
	o, p := e.out, &e.v.Rec.Process
	at := o.packet()
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

// maxArgs limits how many arguments of a command line are written.
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

// child describes a track below another. If merge is set, tracks with the same name and
// parent are shown as one.
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

// recording writes a slice over the whole recording that describes its settings and
// losses.
func (e *exporter) recording() {
	o := e.out
	e.child(kindRecording, 0, e.uuid(kindProcess, 0), "sliver: recording", "",
		"How this was recorded, and its losses.", len(e.v.Threads)+2, false)
	event := func(t stack.Time, typ uint64) (packet, ev int) {
		packet = o.packet()
		o.uint(packetTimestamp, uint64(t))
		o.uint(packetSequenceID, processSequence)
		o.uint(packetSequenceFlags, flagNeedsState) // for the sequence's clock
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

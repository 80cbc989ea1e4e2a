package perfetto

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/stack"
)

// Field numbers of protos/perfetto/trace/** as compiled into trace_processor v55.3. Only
// fields that are written are listed.
const (
	tracePacket = 1 // Trace.packet

	packetClockSnapshot   = 6
	packetTimestamp       = 8
	packetSequenceID      = 10
	packetTrackEvent      = 11
	packetInterned        = 12
	packetSequenceFlags   = 13
	packetSystemInfo      = 45
	packetCompressed      = 50
	packetDefaults        = 59
	packetTrackDescriptor = 60
	packetPerfSample      = 66
	packetFirstOnSequence = 87

	flagStateCleared = 1
	flagNeedsState   = 2

	clocksClock   = 1
	clocksPrimary = 2
	clockID       = 1
	clockTime     = 2
	clockRelative = 3

	clockRealtime  = 1
	clockMonotonic = 3
	clockBoottime  = 6
	clockSequence  = 64 // first ID of sequence-scoped clocks

	defaultsTrackEvent = 11
	defaultsPerfSample = 12
	defaultsClockID    = 58

	perfTimebase   = 1
	timebasePeriod = 1
	timebaseCount  = 4 // PerfEvents.Counter
	swCPUClock     = 1

	infoUtsname  = 1
	infoPageSize = 6
	infoCPUs     = 8
	utsSysname   = 1
	utsVersion   = 2
	utsRelease   = 3
	utsMachine   = 4

	trackUUID        = 1
	trackName        = 2
	trackProcess     = 3
	trackThread      = 4
	trackParent      = 5
	trackCounter     = 8
	trackOrdering    = 11
	trackRank        = 12
	trackDescription = 14
	trackMerge       = 15
	orderingExplicit = 3
	mergeByName      = 1
	mergeNone        = 2

	processPID     = 1
	processCmdline = 2
	processName    = 6
	processStart   = 7
	threadPID      = 1
	threadTID      = 2
	threadName     = 5
	counterUnit    = 6 // unit_name

	eventCategory     = 3
	eventAnnotation   = 4
	eventType         = 9
	eventName         = 10
	eventTrack        = 11
	eventExtraCounter = 12
	eventSource       = 34
	eventCounter      = 30
	eventExtraTrack   = 31
	eventDouble       = 44
	eventFlows        = 47 // flow_ids, fixed64
	eventFlowsEnd     = 48 // terminating_flow_ids, fixed64

	typeBegin   = 1
	typeEnd     = 2
	typeInstant = 3
	typeCounter = 4

	annotationName    = 1 // name_iid
	annotationUint    = 3
	annotationInt     = 4
	annotationString  = 6
	annotationStrIID  = 17
	annotationRawName = 10

	internedCategory   = 1
	internedName       = 2
	internedAnnotation = 3
	internedSource     = 4
	internedFunction   = 5
	internedFrame      = 6
	internedCallstack  = 7
	internedBuildID    = 16
	internedMapPath    = 17
	internedSourcePath = 18
	internedMapping    = 19
	internedString     = 29 // debug_annotation_string_values

	entryIID  = 1 // of every interned message
	entryText = 2

	sourceFile     = 2
	sourceFunction = 3
	sourceLine     = 4

	mappingBuildID = 2
	mappingStart   = 4
	mappingEnd     = 5
	mappingPath    = 7
	mappingOffset  = 8 // exact_offset

	frameFunction = 2
	frameMapping  = 3
	frameRelPC    = 4
	frameSource   = 5
	frameLine     = 6

	callstackFrames = 2

	samplePID       = 2
	sampleTID       = 3
	sampleCallstack = 4
)

// message appends protobuf messages; open and end nest.
type message struct{ b []byte }

func (m *message) uint(field protowire.Number, v uint64) {
	m.b = protowire.AppendVarint(protowire.AppendTag(m.b, field, protowire.VarintType), v)
}

func (m *message) str(field protowire.Number, s string) {
	m.b = protowire.AppendString(protowire.AppendTag(m.b, field, protowire.BytesType), s)
}

func (m *message) text(field protowire.Number, s string) {
	if s != "" {
		m.str(field, s)
	}
}

func (m *message) bytes(field protowire.Number, b []byte) {
	m.b = protowire.AppendBytes(protowire.AppendTag(m.b, field, protowire.BytesType), b)
}

func (m *message) double(field protowire.Number, bits uint64) {
	m.b = protowire.AppendFixed64(protowire.AppendTag(m.b, field, protowire.Fixed64Type), bits)
}

// open begins a message in field; pass its result to end. It reserves one byte for the
// length, which is nearly always enough.
func (m *message) open(field protowire.Number) int {
	m.b = append(protowire.AppendTag(m.b, field, protowire.BytesType), 0)
	return len(m.b)
}

func (m *message) end(at int) {
	n := len(m.b) - at
	if n < 0x80 {
		m.b[at-1] = byte(n)
		return
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	for range more {
		m.b = append(m.b, 0)
	}
	copy(m.b[at+more:], m.b[at:at+n])
	protowire.AppendVarint(m.b[:at-1], uint64(n))
}

// batchSize is how much is compressed at a time. Perfetto's service uses similar pieces;
// larger ones do not compress better.
const batchSize = 256 << 10

// batches collects packets and writes them compressed.
type batches struct {
	message
	w     io.Writer
	z     *zlib.Writer
	plain bool
	out   sink
	raw   int64 // bytes before compression
	err   error
}

// sink is the buffer that a zlib.Writer writes to.
type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

func newBatches(w io.Writer, plain bool) *batches {
	b := &batches{w: w, plain: plain}
	b.b = make([]byte, 0, batchSize+batchSize/4)
	if !plain {
		b.z, b.err = zlib.NewWriterLevel(&b.out, zlib.BestSpeed)
	}
	return b
}

// packet begins a packet; done ends it.
func (b *batches) packet() int { return b.open(tracePacket) }

func (b *batches) done(at int) {
	b.end(at)
	if len(b.b) >= batchSize {
		b.flush()
	}
}

func (b *batches) flush() {
	if b.err != nil || len(b.b) == 0 {
		b.b = b.b[:0]
		return
	}
	b.raw += int64(len(b.b))
	if b.plain {
		_, b.err = b.w.Write(b.b)
		b.b = b.b[:0]
		return
	}
	b.out.b = b.out.b[:0]
	b.z.Reset(&b.out)
	if _, err := b.z.Write(b.b); err != nil {
		b.err = err
	} else if err := b.z.Close(); err != nil {
		b.err = err
	}
	b.b = b.b[:0]
	if b.err != nil {
		return
	}
	at := b.open(tracePacket)
	b.bytes(packetCompressed, b.out.b)
	b.end(at)
	_, b.err = b.w.Write(b.b)
	b.b = b.b[:0]
}

func (b *batches) close() error {
	b.flush()
	if b.err != nil {
		return fmt.Errorf("write Perfetto trace: %w", b.err)
	}
	return nil
}

// sequence is a series of packets that share a default track, an incremental clock and
// interned strings.
type sequence struct {
	out      *batches
	id       uint64
	track    uint64
	base     stack.Time
	at       stack.Time
	begun    bool
	extra    uint64 // track of the counter whose value its slices may carry; 0: none
	samples  int64  // period in ns of the PerfSamples on it; 0: none
	absolute bool   // packets are not in the order of their times, which are CLOCK_MONOTONIC
}

// start writes the packet that the other packets depend on: see begin.
func (s *sequence) start() {
	s.begun = true
	at := s.out.packet()
	o := s.out
	clock := uint64(clockSequence)
	if s.absolute {
		clock = clockMonotonic
		o.uint(packetSequenceID, s.id)
	} else {
		s.snapshot()
	}
	o.uint(packetSequenceFlags, flagStateCleared)
	o.uint(packetFirstOnSequence, 1)
	d := o.open(packetDefaults)
	o.uint(defaultsClockID, clock)
	e := o.open(defaultsTrackEvent)
	o.uint(eventTrack, s.track)
	if s.extra != 0 {
		o.uint(eventExtraTrack, s.extra)
	}
	o.end(e)
	if s.samples > 0 {
		e = o.open(defaultsPerfSample)
		t := o.open(perfTimebase)
		o.uint(timebasePeriod, uint64(s.samples))
		o.uint(timebaseCount, swCPUClock)
		o.end(t)
		o.end(e)
	}
	o.end(d)
	o.done(at)
}

// snapshot sets the sequence's clock to base.
func (s *sequence) snapshot() {
	o := s.out
	snap := o.open(packetClockSnapshot)
	c := o.open(clocksClock)
	o.uint(clockID, clockMonotonic)
	o.uint(clockTime, uint64(s.base))
	o.end(c)
	c = o.open(clocksClock)
	o.uint(clockID, clockSequence)
	o.uint(clockTime, uint64(s.base))
	o.uint(clockRelative, 1)
	o.end(c)
	o.end(snap)
	o.uint(packetSequenceID, s.id)
	s.at = s.base
}

// end ends the slice that is open on the sequence's track.
func (s *sequence) end(t stack.Time) {
	at := s.begin(t, false)
	ev := s.out.open(packetTrackEvent)
	s.out.uint(eventType, typeEnd)
	s.out.end(ev)
	s.out.done(at)
}

// rewind resets the clock to base.
func (s *sequence) rewind() {
	if s.begun && s.at > s.base {
		at := s.out.packet()
		s.snapshot()
		s.out.done(at)
	}
}

// begin starts a packet of the sequence at time t. needs says that it references or adds
// interned data.
func (s *sequence) begin(t stack.Time, needs bool) int {
	if !s.begun {
		s.start()
	}
	at := s.out.packet()
	if s.absolute {
		s.out.uint(packetTimestamp, uint64(t))
	} else {
		t = max(t, s.at)
		s.out.uint(packetTimestamp, uint64(t-s.at))
		s.at = t
	}
	s.out.uint(packetSequenceID, s.id)
	if needs {
		s.out.uint(packetSequenceFlags, flagNeedsState)
	}
	return at
}

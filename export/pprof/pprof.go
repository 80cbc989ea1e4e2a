// Package pprof writes a recording as a pprof profile (profile.proto of
// github.com/google/pprof): for each stack of each thread, and for each state it
// was seen in, how often it was sampled and where the time went.
//
// Sample types: samples/count; cpu, by the kernel's account of the thread;
// wall, the time that elapsed (over a thread, it adds up to the time it was
// observed); lock_wait and off_cpu, the parts of wall in which it was seen to
// wait for a lock, or to be off the CPUs. The default type is cpu: of wall, threads that
// sleep have the most. Labels: thread and state; of a wait
// its kind (wait), the system call (call), what it is for (file, peer, lock,
// lock_address) and who held the lock (holder, holder_known_by) as strings; tid
// and pid as numbers. What the recording is missing stands in the
// comments, and as frames in brackets where it is missing.
//
// Samples are written as they come and tables behind them, which the order of a
// message's fields leaves open: no profile is in memory. google/pprof's own
// package, which would hold one, reads it back in the tests.
//
// It reads a view and knows nothing of files; Write may run for several
// recordings at once.
package pprof

import (
	"bufio"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/export/internal/pb"
	"github.com/sliverprof/sliver/export/profile"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// Fields of profile.proto.
const (
	profileType     = 1
	profileSample   = 2
	profileMapping  = 3
	profileLocation = 4
	profileFunction = 5
	profileString   = 6
	profileTime     = 9
	profileDuration = 10
	profilePeriodOf = 11
	profilePeriod   = 12
	profileComment  = 13
	profileDefault  = 14

	typeType = 1
	typeUnit = 2

	sampleLocations = 1
	sampleValues    = 2
	sampleLabel     = 3

	labelKey  = 1
	labelText = 2
	labelNum  = 3

	mappingID        = 1
	mappingStart     = 2
	mappingLimit     = 3
	mappingOffset    = 4
	mappingFile      = 5
	mappingBuildID   = 6
	mappingFunctions = 7
	mappingFiles     = 8
	mappingLines     = 9
	mappingInline    = 10

	locationID      = 1
	locationMapping = 2
	locationAddress = 3
	locationLine    = 4

	lineFunction = 1
	lineLine     = 2

	functionID     = 1
	functionName   = 2
	functionSystem = 3
	functionFile   = 4
	functionLine   = 5
)

// Write writes rec to w, gzip-compressed.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	_, err := Encode(w, rec, o)
	return err
}

// Encode is Write, and tells how many samples there were.
func Encode(w io.Writer, rec *trace.Recording, o view.Options) (samples int, err error) {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err == nil {
		e := &encoder{w: bufio.NewWriterSize(z, 1<<16), p: profile.New(view.New(rec, o)), strings: map[string]int{}}
		e.str("")
		if err = e.profile(); err == nil {
			err = e.w.Flush()
		}
		samples = e.samples
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return samples, fmt.Errorf("write profile: %w", err)
	}
	return samples, nil
}

type encoder struct {
	w       *bufio.Writer
	p       *profile.Profile
	strings map[string]int
	table   []string
	samples int

	head, b, sub []byte // made use of again
	stack        []int
	labels       map[int][]byte // fields of samples, by set of one thread
	thread       *view.Thread
}

// maxLabels bounds the sets of labels that are remembered.
const maxLabels = 1 << 12

func (e *encoder) str(s string) uint64 {
	i, ok := e.strings[s]
	if !ok {
		i = len(e.table)
		e.strings[s] = i
		e.table = append(e.table, s)
	}
	return uint64(i)
}

// field writes a message that is a field of the profile.
func (e *encoder) field(n protowire.Number, m []byte) error {
	e.head = protowire.AppendVarint(protowire.AppendTag(e.head[:0], n, protowire.BytesType), uint64(len(m)))
	e.w.Write(e.head)
	_, err := e.w.Write(m) // errors of a bufio.Writer stay
	return err
}

func (e *encoder) typed(t profile.Type) []byte {
	return pb.Number(pb.Number(nil, typeType, e.str(t.Name)), typeUnit, e.str(t.Unit))
}

func (e *encoder) profile() error {
	for _, t := range profile.Types { // first: what a file is, Perfetto tells by its first bytes
		if err := e.field(profileType, e.typed(t)); err != nil {
			return err
		}
	}
	for _, tell := range []func() error{
		func() error { return e.p.Samples(e.sample) },
		func() error { return e.p.Locations(e.location) },
		func() error { return e.p.Functions(e.function) },
		func() error { return e.p.Mappings(e.mapping) },
	} {
		if err := tell(); err != nil {
			return err
		}
	}
	wall := profile.Types[profile.Wall]
	b := pb.Number(nil, profileTime, uint64(e.p.Time))
	b = pb.Number(b, profileDuration, uint64(e.p.Duration))
	b = pb.Message(b, profilePeriodOf, e.typed(wall))
	b = pb.Number(b, profilePeriod, uint64(e.p.Period))
	for _, c := range e.p.Comments() {
		b = pb.Number(b, profileComment, e.str(c))
	}
	b = pb.Number(b, profileDefault, e.str(profile.Types[profile.CPU].Name))
	e.w.Write(b)
	for _, s := range e.table {
		e.head = protowire.AppendVarint(protowire.AppendTag(e.head[:0], profileString, protowire.BytesType), uint64(len(s)))
		e.w.Write(e.head)
		if _, err := e.w.WriteString(s); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) sample(s *profile.Sample) error {
	e.samples++
	e.stack = e.p.Stack(s, e.stack[:0])
	b := pb.Packed(e.b[:0], sampleLocations, e.stack)
	b = pb.Packed(b, sampleValues, s.Values[:])
	if s.Thread != e.thread || len(e.labels) >= maxLabels {
		e.thread, e.labels = s.Thread, map[int][]byte{}
	}
	l, ok := e.labels[s.Labels]
	if !ok {
		l = e.labelled(s)
		e.labels[s.Labels] = l
	}
	b = append(b, l...)
	e.b = b
	return e.field(profileSample, b)
}

func (e *encoder) labelled(s *profile.Sample) (out []byte) {
	for _, l := range e.p.Labels(s) {
		m := pb.Number(nil, labelKey, e.str(l.Key))
		if l.Text != "" {
			m = pb.Number(m, labelText, e.str(l.Text))
		} else {
			m = pb.Number(m, labelNum, uint64(l.Num))
		}
		out = pb.Message(out, sampleLabel, m)
	}
	return out
}

func (e *encoder) location(n int, l *profile.Location) error {
	b := pb.Number(e.b[:0], locationID, uint64(n))
	b = pb.Number(b, locationMapping, uint64(l.Mapping))
	b = pb.Number(b, locationAddress, l.Address)
	for _, x := range l.Lines {
		e.sub = pb.Number(pb.Number(e.sub[:0], lineFunction, uint64(x.Function)), lineLine, uint64(x.Line))
		b = pb.Message(b, locationLine, e.sub)
	}
	e.b = b
	return e.field(profileLocation, b)
}

func (e *encoder) function(n int, f *profile.Function) error {
	b := pb.Number(e.b[:0], functionID, uint64(n))
	b = pb.Number(b, functionName, e.str(f.Name))
	b = pb.Number(b, functionSystem, e.str(f.System))
	b = pb.Number(b, functionFile, e.str(f.File))
	e.b = pb.Number(b, functionLine, uint64(f.StartLine))
	return e.field(profileFunction, e.b)
}

func (e *encoder) mapping(n int, m *profile.Mapping) error {
	b := pb.Number(e.b[:0], mappingID, uint64(n))
	b = pb.Number(b, mappingStart, m.Start)
	b = pb.Number(b, mappingLimit, m.Limit)
	b = pb.Number(b, mappingOffset, m.Offset)
	b = pb.Number(b, mappingFile, e.str(m.File))
	b = pb.Number(b, mappingBuildID, e.str(m.BuildID))
	if m.Named {
		for _, f := range []protowire.Number{mappingFunctions, mappingFiles, mappingLines, mappingInline} {
			b = pb.Number(b, f, 1)
		}
	}
	e.b = b
	return e.field(profileMapping, b)
}

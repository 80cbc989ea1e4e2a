// Package pprof writes a recording as a pprof profile (profile.proto of
// github.com/google/pprof). Each stack of each thread, in each state, has its number of
// samples and its times.
//
// Sample types: samples/count; cpu, the kernel's CPU time of the thread; wall, elapsed
// time (a thread's sum is the time it was observed); lock_wait and off_cpu, the parts of
// wall in which it waited for a lock or was off the CPUs. The default type is cpu, as
// sleeping threads dominate wall. String labels: thread and state; for a wait its kind
// (wait), system call (call), object (file, peer, lock, lock_address) and lock holder
// (holder, holder_known_by); of a recording of several processes, the process. Number
// labels: tid and pid. Comments list the recording's
// losses, and frames in brackets show where they are.
//
// Samples are streamed and tables follow them, which protobuf allows, so the profile is
// never held in memory. google/pprof's own package, which would hold it, reads it back in
// the tests.
//
// The package reads a view and does not open files; Write may run for several recordings
// at once.
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

// Encode is Write without compression, and returns the number of samples.
func Encode(w io.Writer, rec *trace.Recording, o view.Options) (samples int, err error) {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err == nil {
		e := &encoder{w: bufio.NewWriterSize(z, 1<<16), views: view.All(rec, o), strings: map[string]int{}}
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
	views   []*view.View     // of all processes
	p       *profile.Profile // of the process that is being written
	strings map[string]int
	table   []string
	samples int

	head, b, sub []byte // reused
	stack        []int
	labels       map[int][]byte // encoded label fields of one thread, by set
	thread       *view.Thread
}

// maxLabels limits how many label sets are cached.
const maxLabels = 1 << 12

// maxComments limits the comments: of several processes, the first ones' are written.
const maxComments = 100

func (e *encoder) str(s string) uint64 {
	i, ok := e.strings[s]
	if !ok {
		i = len(e.table)
		e.strings[s] = i
		e.table = append(e.table, s)
	}
	return uint64(i)
}

// field writes a message as a field of the profile.
func (e *encoder) field(n protowire.Number, m []byte) error {
	e.head = protowire.AppendVarint(protowire.AppendTag(e.head[:0], n, protowire.BytesType), uint64(len(m)))
	e.w.Write(e.head)
	_, err := e.w.Write(m) // a bufio.Writer keeps its first error
	return err
}

func (e *encoder) typed(t profile.Type) []byte {
	return pb.Number(pb.Number(nil, typeType, e.str(t.Name)), typeUnit, e.str(t.Unit))
}

func (e *encoder) profile() error {
	for _, t := range profile.Types { // first: Perfetto detects the file type by its first bytes
		if err := e.field(profileType, e.typed(t)); err != nil {
			return err
		}
	}
	var comments []string
	time, begin, end := int64(0), e.views[0].Begin(), e.views[0].End()
	period := int64(0)
	for i, v := range e.views {
		e.p = profile.New(v, e.p)
		if len(e.views) > 1 {
			e.p.Process = v.Process()
		}
		if err := e.p.Each(e.sample, e.location, e.function, e.mapping); err != nil {
			return err
		}
		if v.Begin() <= begin || i == 0 {
			begin, time = v.Begin(), e.p.Time
		}
		end, period = max(end, v.End()), max(period, e.p.Period)
		for _, c := range e.p.Comments() {
			if e.p.Process != "" && len(comments) < maxComments {
				c = e.p.Process + ": " + c
			}
			if len(comments) < maxComments {
				comments = append(comments, c)
			}
		}
	}
	wall := profile.Types[profile.Wall]
	b := pb.Number(nil, profileTime, uint64(time))
	b = pb.Number(b, profileDuration, uint64(end-begin))
	b = pb.Message(b, profilePeriodOf, e.typed(wall))
	b = pb.Number(b, profilePeriod, uint64(period))
	for _, c := range comments {
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

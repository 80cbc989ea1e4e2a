package otlp

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/export/internal/pb"
	"github.com/sliverprof/sliver/export/internal/spill"
	"github.com/sliverprof/sliver/export/profile"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// Fields of the messages.
const (
	requestResources  = 1
	requestDictionary = 2

	dictMapping   = 1
	dictLocation  = 2
	dictFunction  = 3
	dictLink      = 4
	dictString    = 5
	dictAttribute = 6
	dictStack     = 7

	resourceResource = 1 // ResourceProfiles
	resourceScopes   = 2
	resourceSchema   = 3
	scopeScope       = 1 // ScopeProfiles
	scopeProfiles    = 2
	scopeSchema      = 3

	profileType       = 1
	profileSamples    = 2
	profileTime       = 3
	profileDuration   = 4
	profilePeriodOf   = 5
	profilePeriod     = 6
	profileID         = 7
	profileAttributes = 11

	sampleStack      = 1
	sampleAttributes = 2
	sampleValues     = 4
)

// Encode writes the part of rec that o selects as an ExportProfilesServiceRequest, each process with its own
// resource, and returns the number of processes with samples. Of several processes, the others are left out. version is
// that of the program that recorded.
func Encode(w io.Writer, rec *trace.Recording, o view.Options, resource func(*trace.Recording) []Attribute, version string) (n int, err error) {
	e := &encoder{strings: map[string]int{}, attrs: map[string]int{}}
	defer e.close()
	e.str("")
	out := bufio.NewWriterSize(w, 1<<16)
	err = e.none()
	views := view.All(rec, o)
	for _, v := range views {
		if err == nil {
			err = e.process(out, v, len(views) > 1, resource(v.Rec), version)
		}
		if e.samples > 0 {
			n++
		}
	}
	if err == nil {
		err = e.dictionary(out)
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return n, fmt.Errorf("write OTLP profiles: %w", err)
	}
	return n, nil
}

// encoder builds a request. Entry 0 of each dictionary table is the zero value, which
// means "none". All processes share the dictionary.
type encoder struct {
	p       *profile.Profile // of the process at hand
	strings map[string]int
	texts   []string
	attrs   map[string]int
	samples int // of that process

	of     [len(profile.Types)]spill.Buffer // samples of each Profile
	tables [dictStack + 1]spill.Buffer      // dictionary entries, by field
	stacks []int32                          // dictStack entries by the profile's stack number; 0: none yet
	count  int

	labels map[int][]int // labels of the current thread, by set
	thread *view.Thread

	b, sub, head []byte // reused
	stack        []int
}

// maxLabels limits how many label sets are cached.
const maxLabels = 1 << 12

func (e *encoder) close() {
	for i := range e.of {
		e.of[i].Close()
	}
	for i := range e.tables {
		e.tables[i].Close()
	}
}

func (e *encoder) str(s string) uint64 {
	i, ok := e.strings[s]
	if !ok {
		i = len(e.texts)
		e.strings[s] = i
		e.texts = append(e.texts, s)
	}
	return uint64(i)
}

// entry appends to a dictionary table.
func (e *encoder) entry(table protowire.Number, m []byte) error {
	return e.put(&e.tables[table], table, m)
}

func (e *encoder) put(to *spill.Buffer, field protowire.Number, m []byte) error {
	e.head = pb.Message(e.head[:0], field, m)
	_, err := to.Write(e.head)
	return err
}

// none makes entry 0 of each table.
func (e *encoder) none() error {
	for _, t := range []protowire.Number{dictMapping, dictLocation, dictFunction, dictLink, dictAttribute, dictStack} {
		if err := e.entry(t, nil); err != nil {
			return err
		}
	}
	return nil
}

// process iterates over the samples of a process, and then over the tables that they reference, and writes its profiles.
// needed says that a process without samples is left out.
func (e *encoder) process(w *bufio.Writer, v *view.View, needed bool, resource []Attribute, version string) error {
	e.p, e.stacks, e.thread, e.samples = profile.New(v, e.p), nil, nil, 0
	if err := e.p.Each(e.sample, e.location, e.function, e.mapping); err != nil {
		return err
	}
	if needed && e.samples == 0 {
		return nil
	}
	if err := e.write(w, resource, version); err != nil {
		return err
	}
	for i := range e.of {
		e.of[i].Close()
		e.of[i] = spill.Buffer{}
	}
	return nil
}

func (e *encoder) sample(s *profile.Sample) error {
	e.samples++
	if s.Thread != e.thread || len(e.labels) >= maxLabels {
		e.thread, e.labels = s.Thread, map[int][]int{}
	}
	attrs, ok := e.labels[s.Labels]
	if !ok {
		for _, l := range e.p.Labels(s) {
			if l.Key == "pid" { // belongs to the resource
				continue
			}
			var v any = l.Text
			if l.Text == "" {
				v = l.Num
			}
			n, err := e.attribute(Attribute{labelKey(l.Key), v})
			if err != nil {
				return err
			}
			attrs = append(attrs, n)
		}
		e.labels[s.Labels] = attrs
	}
	stack, err := e.stackOf(s)
	if err != nil {
		return err
	}
	e.sub = pb.Packed(pb.Number(e.sub[:0], sampleStack, uint64(stack)), sampleAttributes, attrs)
	for k, v := range s.Values {
		if v == 0 {
			continue
		}
		e.b = pb.Packed(append(e.b[:0], e.sub...), sampleValues, []int64{v})
		if err := e.put(&e.of[k], profileSamples, e.b); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) stackOf(s *profile.Sample) (int32, error) {
	if int(s.Stack) >= len(e.stacks) {
		e.stacks = append(e.stacks, make([]int32, min(max(int(s.Stack)+1, 2*len(e.stacks)), profile.StackLimit)-len(e.stacks))...)
	}
	at := &e.stacks[s.Stack]
	if *at != 0 {
		return *at, nil
	}
	e.count++
	*at = int32(e.count)
	e.stack = e.p.Stack(s, e.stack[:0])
	e.b = pb.Packed(e.b[:0], 1, e.stack)
	return *at, e.entry(dictStack, e.b)
}

// attribute returns the dictionary entry for a.
func (e *encoder) attribute(a Attribute) (int, error) {
	b := pb.Message(pb.Number(nil, 1, e.str(a.Key)), 2, anyValue(a.Value))
	i, ok := e.attrs[string(b)]
	if !ok {
		i = len(e.attrs) + 1
		e.attrs[string(b)] = i
		return i, e.entry(dictAttribute, b)
	}
	return i, nil
}

func (e *encoder) location(_ int, l *profile.Location) error {
	b := pb.Number(e.b[:0], 1, uint64(l.Mapping))
	b = pb.Number(b, 2, l.Address)
	for _, x := range l.Lines {
		e.sub = pb.Number(pb.Number(e.sub[:0], 1, uint64(x.Function)), 2, uint64(max(x.Line, 0)))
		b = pb.Message(b, 3, e.sub)
	}
	e.b = b
	return e.entry(dictLocation, b)
}

func (e *encoder) function(_ int, f *profile.Function) error {
	b := pb.Number(e.b[:0], 1, e.str(f.Name))
	b = pb.Number(b, 2, e.str(f.System))
	b = pb.Number(b, 3, e.str(f.File))
	e.b = pb.Number(b, 4, uint64(max(f.StartLine, 0)))
	return e.entry(dictFunction, e.b)
}

func (e *encoder) mapping(_ int, m *profile.Mapping) error {
	b := pb.Number(pb.Number(pb.Number(e.b[:0], 1, m.Start), 2, m.Limit), 3, m.Offset)
	b = pb.Number(b, 4, e.str(m.File))
	if m.BuildID != "" {
		n, err := e.attribute(Attribute{"process.executable.build_id.gnu", m.BuildID})
		if err != nil {
			return err
		}
		b = pb.Packed(b, 5, []int{n})
	}
	e.b = b
	return e.entry(dictMapping, b)
}

// write writes the profiles of a process: the gathered messages with their enclosing ones.
func (e *encoder) write(w *bufio.Writer, resource []Attribute, version string) error {
	var comments []string
	for _, c := range e.p.Comments() {
		comments = append(comments, view.Text(c, 1<<14))
	}
	note, err := e.attribute(Attribute{"pprof.profile.comment", comments})
	if err != nil {
		return err
	}
	notes := pb.Packed(nil, profileAttributes, []int{note})

	// Innermost message first, as each length includes the messages inside.
	var tails [len(profile.Types)][]byte
	scopes := pb.Message(nil, scopeScope, pb.Text(pb.Text(nil, 1, "github.com/sliverprof/sliver"), 2, version))
	scopesEnd := pb.Text(nil, scopeSchema, schemaURL)
	inScope := int64(len(scopes) + len(scopesEnd))
	for k, t := range profile.Types {
		b := pb.Message(nil, profileType, e.valueType(t))
		b = protowire.AppendFixed64(protowire.AppendTag(b, profileTime, protowire.Fixed64Type), uint64(max(e.p.Time, 0)))
		b = pb.Number(b, profileDuration, uint64(max(e.p.Duration, 0)))
		b = pb.Message(b, profilePeriodOf, e.valueType(profile.Types[profile.Wall]))
		b = pb.Number(b, profilePeriod, uint64(max(e.p.Period, 0)))
		id := sha256.Sum256(fmt.Appendf(nil, "%x %d %08x %v", b, e.of[k].Len(), e.of[k].Sum(), resource))
		tails[k] = append(pb.Message(b, profileID, id[:16]), notes...)
		inScope += sized(int64(len(tails[k])) + e.of[k].Len())
	}
	var res []byte
	for _, a := range resource {
		res = pb.Message(res, 1, pb.Message(pb.Text(nil, 1, a.Key), 2, anyValue(a.Value)))
	}
	res = pb.Message(nil, resourceResource, res)
	resEnd := pb.Text(nil, resourceSchema, schemaURL)

	head(w, requestResources, int64(len(res))+sized(inScope)+int64(len(resEnd)))
	w.Write(res)
	head(w, resourceScopes, inScope)
	w.Write(scopes)
	for k := range e.of {
		head(w, scopeProfiles, int64(len(tails[k]))+e.of[k].Len())
		if _, err := e.of[k].WriteTo(w); err != nil {
			return err
		}
		w.Write(tails[k])
	}
	w.Write(scopesEnd)
	w.Write(resEnd)
	return nil
}

// dictionary writes the tables.
func (e *encoder) dictionary(w *bufio.Writer) error {
	strings := &e.tables[dictString]
	for _, s := range e.texts {
		if err := e.put(strings, dictString, []byte(s)); err != nil {
			return err
		}
	}
	length := int64(0)
	for t := range e.tables {
		length += e.tables[t].Len()
	}
	head(w, requestDictionary, length)
	for t := range e.tables {
		if _, err := e.tables[t].WriteTo(w); err != nil {
			return err
		}
	}
	return nil
}

// head writes the tag and length of a message of n bytes. w reports errors at Flush.
func head(w *bufio.Writer, field protowire.Number, n int64) {
	w.Write(protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.BytesType), uint64(n)))
}

// sized returns the encoded size of a field of n bytes whose field number is at most 15.
func sized(n int64) int64 { return 1 + int64(protowire.SizeVarint(uint64(n))) + n }

// anyValue encodes an AnyValue.
func anyValue(v any) []byte {
	switch x := v.(type) {
	case string:
		return pb.Message(nil, 1, []byte(x))
	case int64:
		return protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), uint64(x))
	case []string:
		var a []byte
		for _, s := range x {
			a = pb.Message(a, 1, anyValue(s))
		}
		return pb.Message(nil, 5, a)
	}
	return nil
}

func (e *encoder) valueType(t profile.Type) []byte {
	return pb.Number(pb.Number(nil, 1, e.str(t.Name)), 2, e.str(t.Unit))
}

// labelKeys maps pprof's labels to the semantic conventions, and to sliver's own names.
var labelKeys = map[string]string{"thread": "thread.name", "tid": "thread.id", "pid": "process.pid", "state": "sliver.thread.state"}

func labelKey(k string) string {
	if x, ok := labelKeys[k]; ok {
		return x
	}
	return "sliver." + k
}

// Package otlp writes a recording as OpenTelemetry profiles: one
// ExportProfilesServiceRequest of opentelemetry.proto.profiles.v1development
// (field numbers as in go.opentelemetry.io/proto/otlp/profiles/v1development
// v0.4.0), as a collector's receiver takes it over HTTP. Its contents are those
// of the pprof export; each sample type is a Profile of its own.
//
// Write may run for several recordings at once.
package otlp

import (
	"crypto/sha256"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"

	"github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/export/pprof"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// Attribute is a name with a string, int64 or []string.
type Attribute struct {
	Key   string
	Value any
}

// schemaURL is the version of the semantic conventions that attributes follow.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"

// Write writes rec to w.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	p, err := pprof.Profile(rec, o)
	if err != nil {
		return err
	}
	if _, err := w.Write(Encode(p, Resource(rec), rec.Process.Sliver)); err != nil {
		return fmt.Errorf("write OTLP profiles: %w", err)
	}
	return nil
}

// Resource is what was recorded, by the semantic conventions.
func Resource(rec *trace.Recording) []Attribute {
	p := &rec.Process
	var out []Attribute
	add := func(key string, v any) {
		if v != "" && v != int64(0) {
			out = append(out, Attribute{key, v})
		}
	}
	text := func(s string) string { return view.Text(s, 1024) }
	service := text(p.Comm)
	if service == "" {
		service = "unknown_service"
	}
	add("service.name", service)
	add("host.name", text(p.Host))
	add("host.arch", map[string]string{"amd64": "amd64", "arm64": "arm64"}[p.Arch])
	add("os.type", "linux")
	add("os.version", text(p.Kernel))
	add("process.pid", int64(max(p.PID, 0)))
	add("process.executable.name", text(p.Comm))
	add("process.executable.path", text(p.Exe))
	if len(p.Cmdline) > 0 {
		args := []string{}
		for _, a := range p.Cmdline[:min(len(p.Cmdline), 256)] {
			args = append(args, text(a))
		}
		out = append(out, Attribute{"process.command_args", args})
	}
	container, pod := Cgroup(p.Container)
	add("container.id", container)
	add("k8s.pod.uid", pod)
	return out
}

var (
	containerID = regexp.MustCompile(`(?:^|[^0-9a-f])([0-9a-f]{64})(?:[^0-9a-f]|$)`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`)
)

// Cgroup finds the container's ID and the Kubernetes pod's UID in the path of a
// control group, as Docker, containerd and CRI-O name them; "" where there is
// none. In systemd's names the UID has underscores.
func Cgroup(path string) (container, pod string) {
	if m := containerID.FindAllStringSubmatch(path, -1); m != nil {
		container = m[len(m)-1][1] // the innermost
	}
	if m := podUID.FindStringSubmatch(path); m != nil {
		pod = strings.ReplaceAll(m[1], "_", "-")
	}
	return container, pod
}

// encoder builds the dictionary of a request. Entry 0 of each table is the zero
// value, which stands for "none".
type encoder struct {
	strings map[string]int
	texts   []string
	attrs   map[string]int
	tables  [8][]byte // by field number of ProfilesDictionary
	stacks  map[string]int
	funcs   map[*profile.Function]int
	maps    map[*profile.Mapping]int
	locs    map[*profile.Location]int
}

// Fields of ProfilesDictionary.
const (
	dictMapping = iota + 1
	dictLocation
	dictFunction
	dictLink
	dictString
	dictAttribute
	dictStack
)

// Encode is p as an ExportProfilesServiceRequest about a resource. version is
// that of the program that recorded.
func Encode(p *profile.Profile, resource []Attribute, version string) []byte {
	e := &encoder{strings: map[string]int{}, attrs: map[string]int{}, stacks: map[string]int{}, funcs: map[*profile.Function]int{},
		maps: map[*profile.Mapping]int{}, locs: map[*profile.Location]int{}}
	e.str("")
	for _, t := range []int{dictMapping, dictLocation, dictFunction, dictLink, dictAttribute, dictStack} {
		e.entry(t, nil)
	}
	var comment []string
	for _, c := range p.Comments {
		comment = append(comment, view.Text(c, 1<<14))
	}
	notes := packed(nil, 11, []int{e.attribute(Attribute{"pprof.profile.comment", comment}, "")})
	stacks := make([]int, len(p.Sample))
	attrs := make([][]int, len(p.Sample))
	for i, s := range p.Sample {
		stacks[i], attrs[i] = e.stack(s.Location), e.labels(s)
	}
	var profiles []byte
	for k, st := range p.SampleType {
		var b []byte
		b = message(b, 1, e.valueType(st))
		for i, s := range p.Sample {
			if s.Value[k] == 0 {
				continue
			}
			x := number(nil, 1, uint64(stacks[i]))
			x = packed(x, 2, attrs[i])
			x = packed(x, 4, []int{int(s.Value[k])})
			b = message(b, 2, x)
		}
		b = protowire.AppendTag(b, 3, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, uint64(max(p.TimeNanos, 0)))
		b = number(b, 4, uint64(max(p.DurationNanos, 0)))
		if p.PeriodType != nil {
			b = message(b, 5, e.valueType(p.PeriodType))
			b = number(b, 6, uint64(max(p.Period, 0)))
		}
		id := sha256.Sum256(fmt.Appendf(b, "%d %v", p.TimeNanos, resource))
		b = message(b, 7, id[:16])
		b = append(b, notes...)
		profiles = message(profiles, 2, b)
	}
	scope := text(text(nil, 1, "github.com/sliverprof/sliver"), 2, version)
	var res []byte
	for _, a := range resource {
		res = message(res, 1, message(text(nil, 1, a.Key), 2, anyValue(a.Value)))
	}
	scoped := append(message(nil, 1, scope), profiles...)
	rp := message(nil, 1, res)
	rp = message(rp, 2, text(scoped, 3, schemaURL))
	rp = text(rp, 3, schemaURL)

	var dict []byte
	for t := dictMapping; t <= dictStack; t++ {
		if t == dictString {
			for _, s := range e.texts {
				dict = message(dict, dictString, []byte(s))
			}
			continue
		}
		dict = append(dict, e.tables[t]...)
	}
	return message(message(nil, 1, rp), 2, dict)
}

// message appends a field of bytes, also where they are none.
func message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

func text(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return message(b, field, []byte(s))
}

func number(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func packed(b []byte, field protowire.Number, ns []int) []byte {
	if len(ns) == 0 {
		return b
	}
	var p []byte
	for _, n := range ns {
		p = protowire.AppendVarint(p, uint64(n))
	}
	return message(b, field, p)
}

// anyValue is an AnyValue.
func anyValue(v any) []byte {
	switch x := v.(type) {
	case string:
		return message(nil, 1, []byte(x))
	case int64:
		return protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), uint64(x))
	case []string:
		var a []byte
		for _, s := range x {
			a = message(a, 1, anyValue(s))
		}
		return message(nil, 5, a)
	}
	return nil
}

func (e *encoder) str(s string) int {
	i, ok := e.strings[s]
	if !ok {
		i = len(e.texts)
		e.strings[s] = i
		e.texts = append(e.texts, s)
	}
	return i
}

// entry appends to a table.
func (e *encoder) entry(table int, b []byte) {
	e.tables[table] = message(e.tables[table], protowire.Number(table), b)
}

func (e *encoder) valueType(t *profile.ValueType) []byte {
	return number(number(nil, 1, uint64(e.str(t.Type))), 2, uint64(e.str(t.Unit)))
}

func (e *encoder) attribute(a Attribute, unit string) int {
	b := message(number(nil, 1, uint64(e.str(a.Key))), 2, anyValue(a.Value))
	b = number(b, 3, uint64(e.str(unit)))
	i, ok := e.attrs[string(b)]
	if !ok {
		i = len(e.attrs) + 1
		e.attrs[string(b)] = i
		e.entry(dictAttribute, b)
	}
	return i
}

// labelKeys are pprof's labels by the semantic conventions, and sliver's own.
var labelKeys = map[string]string{"thread": "thread.name", "tid": "thread.id", "pid": "process.pid", "state": "sliver.thread.state"}

func labelKey(k string) string {
	if x, ok := labelKeys[k]; ok {
		return x
	}
	return "sliver." + k
}

func (e *encoder) labels(s *profile.Sample) []int {
	var out []int
	var keys []string
	for k := range s.Label {
		keys = append(keys, k)
	}
	for k := range s.NumLabel {
		if k != "pid" { // the resource's
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		if v := s.Label[k]; len(v) > 0 {
			out = append(out, e.attribute(Attribute{labelKey(k), v[0]}, ""))
		}
		if v := s.NumLabel[k]; len(v) > 0 {
			out = append(out, e.attribute(Attribute{labelKey(k), v[0]}, ""))
		}
	}
	return out
}

func (e *encoder) stack(locs []*profile.Location) int {
	ids := make([]int, len(locs))
	for i, l := range locs {
		ids[i] = e.location(l)
	}
	b := packed(nil, 1, ids)
	i, ok := e.stacks[string(b)]
	if !ok {
		i = len(e.stacks) + 1
		e.stacks[string(b)] = i
		e.entry(dictStack, b)
	}
	return i
}

func (e *encoder) location(l *profile.Location) int {
	if i, ok := e.locs[l]; ok {
		return i
	}
	b := number(nil, 1, uint64(e.mapping(l.Mapping)))
	b = number(b, 2, l.Address)
	for _, line := range l.Line {
		b = message(b, 3, number(number(nil, 1, uint64(e.function(line.Function))), 2, uint64(max(line.Line, 0))))
	}
	i := len(e.locs) + 1
	e.locs[l] = i
	e.entry(dictLocation, b)
	return i
}

func (e *encoder) function(f *profile.Function) int {
	if f == nil {
		return 0
	}
	i, ok := e.funcs[f]
	if !ok {
		i = len(e.funcs) + 1
		e.funcs[f] = i
		b := number(nil, 1, uint64(e.str(f.Name)))
		b = number(b, 2, uint64(e.str(f.SystemName)))
		b = number(b, 3, uint64(e.str(f.Filename)))
		e.entry(dictFunction, number(b, 4, uint64(max(f.StartLine, 0))))
	}
	return i
}

func (e *encoder) mapping(m *profile.Mapping) int {
	if m == nil {
		return 0
	}
	i, ok := e.maps[m]
	if !ok {
		i = len(e.maps) + 1
		e.maps[m] = i
		b := number(number(number(nil, 1, m.Start), 2, m.Limit), 3, m.Offset)
		b = number(b, 4, uint64(e.str(m.File)))
		if m.BuildID != "" {
			b = packed(b, 5, []int{e.attribute(Attribute{"process.executable.build_id.gnu", m.BuildID}, "")})
		}
		e.entry(dictMapping, b)
	}
	return i
}

// Package firefox writes a recording as a processed profile, version 60, for
// https://profiler.firefox.com. Samples have the elapsed ms as weight and the kernel's
// CPU time. Categories separate running from waiting; states, gaps and traced calls are markers.
// Inlined frames, libraries and source files are included. The file is gzip-compressed
// JSON.
//
// The format stores columns, so the samples of one thread are kept, packed, until it is
// written, and the traced calls of all threads. Stacks, frames and strings are shared by
// all threads and come last. The profile's information lists the recording's losses.
//
// Write may run for several recordings at once.
package firefox

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Write writes rec to w.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("write Firefox profile: %w", err)
	}
	views := view.All(rec, o)
	p := &profile{
		views: views, w: bufio.NewWriterSize(z, 1<<16), base: views[0].Begin(), tree: tally.NewTree(),
		strings: map[string]int{}, frameOf: map[frameKey]int32{}, funcOf: map[funcKey]int{}, sources: map[string]int{},
	}
	p.str("")
	libs := 0
	for _, v := range views {
		p.base, p.end = min(p.base, v.Begin()), max(p.end, v.End())
		p.libs0 = append(p.libs0, libs)
		libs += len(v.Rec.Modules)
	}
	for n, v := range views {
		p.n, p.v = n, v
		p.traced = append(p.traced, p.calls())
	}
	p.n, p.v = 0, views[0]
	p.print(`{"meta":`)
	p.meta()
	p.print(",\n\"libs\":")
	p.libs()
	p.print(",\n\"pages\":[],\"counters\":[],\"threads\":[")
	first := true
	for n, v := range views {
		p.n, p.v = n, v
		for i := range v.Threads {
			if !first {
				p.print(",")
			}
			first = false
			p.thread(&v.Threads[i])
		}
	}
	p.print("],\n\"shared\":")
	p.shared()
	p.print("}\n")
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("write Firefox profile: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write Firefox profile: %w", err)
	}
	return nil
}

type profile struct {
	views []*view.View // of all processes
	libs0 []int        // number of the first library of each
	// traced are the traced calls of each process, by thread.
	traced [][]markers
	n      int        // process that is being written
	v      *view.View // of process n
	end    stack.Time
	w      *bufio.Writer
	base   stack.Time
	line   []byte

	tree    *tally.Tree // labels are frame numbers
	frames  []frameKey
	frameOf map[frameKey]int32
	funcs   []funcKey
	funcOf  map[funcKey]int
	sources map[string]int
	files   []string
	strings map[string]int
	table   []string // strings
}

// frameKey identifies a logical frame: an index at a location (0 is the innermost) and a
// category. loc is -1 for a gap.
type frameKey struct {
	process int
	loc     int
	inner   int
	cat     int
}

// funcKey identifies a function in a file; fn is an index in Names.Funcs.
type funcKey struct {
	process int
	fn      int
	file    string
}

// catOther is the category of values without a kind. The categories of kinds of code follow, in the order of
// stack.Kinds, and then those of states.
const catOther = 0

var catNative = category(stack.KindNative)

// The categories of states.
var (
	catWaiting  = len(stack.Kinds()) + 1
	catRunnable = catWaiting + 1
	catMissing  = catWaiting + 2
)

// categories is the list of categories, in JSON.
var categories = func() string {
	one := func(name, color string) string {
		return `{"name":"` + name + `","color":"` + color + `","subcategories":["Other"]}`
	}
	all := []string{one("Other", "grey")}
	for _, k := range stack.Kinds() {
		all = append(all, one(k.Title(), k.Color()))
	}
	all = append(all, one("Waiting", "purple"), one("Waiting for a CPU", "lightred"), one(stack.KindError.Title(), stack.KindError.Color()))
	return "[" + strings.Join(all, ",") + "]"
}()

func category(k stack.Kind) int {
	if k == stack.KindError {
		return catMissing
	}
	return kindCategories[k&7]
}

// kindCategories are the categories by kind.
var kindCategories = func() (cat [8]int) {
	for i, k := range stack.Kinds() {
		cat[k] = catOther + 1 + i
	}
	return cat
}()

// waitFields are the fields of view.Detail, in order.
const waitFields = `{"key":"call","label":"Call","format":"string"},{"key":"args","label":"Arguments","format":"string"},` +
	`{"key":"file","label":"File","format":"string"},{"key":"peer","label":"Peer","format":"string"},{"key":"timeout","label":"Timeout","format":"string"},` +
	`{"key":"lock","label":"Lock","format":"string"},{"key":"address","label":"Address","format":"string"},{"key":"module","label":"Module","format":"string"},` +
	`{"key":"lock_known_by","label":"Lock known by","format":"string"},{"key":"holder","label":"Holder","format":"string"},` +
	`{"key":"holder_known_by","label":"Holder known by","format":"string"},{"key":"no_holder","label":"No holder","format":"string"},` +
	`{"key":"not_known","label":"Not known","format":"string"}`

const schema = `[{"name":"State","tooltipLabel":"{marker.data.what}","tableLabel":"{marker.data.what}","chartLabel":"{marker.data.what}",` +
	`"display":["marker-chart","marker-table","timeline-overview"],"fields":[{"key":"what","label":"What the thread does","format":"string"}]},` +
	`{"name":"Wait","tooltipLabel":"waits for {marker.data.what}","tableLabel":"{marker.data.what}","chartLabel":"{marker.data.what}",` +
	`"display":["marker-chart","marker-table","timeline-overview"],"fields":[{"key":"what","label":"For","format":"string"},` +
	waitFields + `]},` +
	`{"name":"Gap","tooltipLabel":"gap: {marker.data.why}","tableLabel":"gap: {marker.data.why}","chartLabel":"gap: {marker.data.why}",` +
	`"display":["marker-chart","marker-table","timeline-overview"],"fields":[{"key":"why","label":"Why samples are missing","format":"string"}]},` +
	`{"name":"Mark","tooltipLabel":"{marker.data.what}","tableLabel":"{marker.data.what}","chartLabel":"{marker.data.what}",` +
	`"display":["marker-chart","marker-table","timeline-overview"],"fields":[{"key":"what","label":"What happened","format":"string"}]}]`

// callSchema is for traced calls, in profiles that have some.
const callSchema = `{"name":"Call","tooltipLabel":"{marker.data.function}","tableLabel":"{marker.data.function}","chartLabel":"{marker.data.function}",` +
	`"display":["marker-chart","marker-table","timeline-overview"],"fields":[{"key":"function","label":"Traced function","format":"string"},` +
	`{"key":"ended","label":"Ended","format":"string"},{"key":"caller","label":"Called from","format":"string"},{"key":"module","label":"Module","format":"string"},` +
	`{"key":"task","label":"Task","format":"string"},{"key":"thread","label":"Thread","format":"string"},{"key":"note","label":"Note","format":"string"}]}`

// schema describes the markers.
func (p *profile) schema() string {
	for _, v := range p.views {
		if v.Rec.Traced != nil {
			return schema[:len(schema)-1] + "," + callSchema + "]"
		}
	}
	return schema
}

func (p *profile) print(s string) { p.w.WriteString(s) } // p.w keeps the first error until Flush

// ms appends ns in milliseconds, without rounding.
func ms(b []byte, ns int64) []byte {
	if ns < 0 {
		b, ns = append(b, '-'), -ns
	}
	b = strconv.AppendInt(b, ns/1e6, 10)
	if f := ns % 1e6; f > 0 {
		b = append(b, '.')
		for d := int64(1e5); f > 0; d /= 10 {
			b = append(b, byte('0'+f/d))
			f %= d
		}
	}
	return b
}

func (p *profile) str(s string) int {
	i, ok := p.strings[s]
	if !ok {
		i = len(p.table)
		p.table = append(p.table, s)
		p.strings[s] = i
	}
	return i
}

func (p *profile) meta() {
	r := &p.v.Rec.Process
	b := append(p.line[:0], `{"version":33,"preprocessedProfileVersion":60,"processType":0,"stackwalk":1,"debug":false,"symbolicated":true,`...)
	b = append(b, `"usesOnlyOneStackType":true,"sourceCodeIsNotOnSearchfox":true,"keepProfileThreadOrder":true,"importedFrom":"sliver","platform":"Linux",`...)
	b = append(b, `"sampleUnits":{"time":"ms","eventDelay":"ms","threadCPUDelta":"µs"},"interval":`...)
	b = ms(b, max(r.Interval, 1))
	b = append(b, `,"startTime":`...)
	start := int64(0)
	if r.Clocks.Realtime > 0 {
		start = max(r.Clocks.Realtime+int64(p.base-r.Clocks.Monotonic), 0)
	}
	b = ms(b, start)
	b = append(b, `,"startTimeAsClockMonotonicNanosecondsSinceBoot":`...)
	b = strconv.AppendInt(b, int64(p.base), 10)
	b = append(b, `,"profilingStartTime":0,"profilingEndTime":`...)
	b = ms(b, int64(p.end-p.base))
	field := func(name, val string) {
		b = append(b, `,"`+name+`":`...)
		b = append(b, view.JSON(val, view.MaxName)...)
	}
	field("product", r.Comm)
	field("oscpu", "Linux "+r.Kernel+" "+r.Arch)
	field("arguments", view.Command(r.Cmdline))
	b = append(b, `,"logicalCPUs":`...)
	b = strconv.AppendInt(b, int64(max(r.CPUs, 0)), 10)
	b = append(b, `,"categories":`+categories+`,"markerSchema":`+p.schema()+`,"extra":[{"label":"Recording","entries":[`...)
	entry := func(k, val string) {
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = append(b, `{"label":`...)
		b = append(b, view.JSON(k, 64)...)
		b = append(b, `,"format":"string","value":`...)
		b = append(b, view.JSON(val, view.MaxName)...)
		b = append(b, '}')
	}
	for _, f := range p.v.Facts() {
		entry(f[0], f[1])
	}
	losses := 0
	for _, v := range p.views {
		for _, l := range v.Losses() {
			if losses++; len(p.views) > 1 {
				l = v.Process() + ": " + l
			}
			entry("loss "+strconv.Itoa(losses), l)
		}
	}
	p.line = append(b, `]}]}`...)
	p.w.Write(p.line)
}

func (p *profile) libs() {
	arch := p.v.Rec.Process.Arch
	switch arch {
	case "amd64":
		arch = "x86_64"
	case "arm64":
		arch = "aarch64"
	}
	p.print("[")
	for i, m := range p.modules() {
		if i > 0 {
			p.print(",")
		}
		name := view.JSON(base(m.Path), 256)
		path := view.JSON(m.Path, view.MaxName)
		code := []byte("null")
		if m.BuildID != "" {
			code = view.JSON(m.BuildID, 128)
		}
		fmt.Fprintf(p.w, "\n{\"arch\":%s,\"name\":%s,\"path\":%s,\"debugName\":%[2]s,\"debugPath\":%[3]s,\"breakpadId\":%s,\"codeId\":%s}",
			view.JSON(arch, 32), name, path, view.JSON(breakpadID(m.BuildID), 64), code)
	}
	p.print("]")
}

// modules returns the modules of all processes, in the order of the libraries.
func (p *profile) modules() (out []*trace.Module) {
	for _, v := range p.views {
		for i := range v.Rec.Modules {
			out = append(out, &v.Rec.Modules[i])
		}
	}
	return out
}

func base(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' && i+1 < len(path) {
			return path[i+1:]
		}
	}
	return path
}

// breakpadID converts a build ID to breakpad's format: a GUID whose first three parts are
// little-endian, and an age of 0.
func breakpadID(build string) string {
	const digits = 32
	if len(build) < digits {
		build += "00000000000000000000000000000000"[:digits-len(build)]
	}
	b := []byte(build[:digits])
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'f':
			b[i] = c - 'a' + 'A'
		case c >= '0' && c <= '9':
		default:
			return "0000000000000000000000000000000000"[:digits+1]
		}
	}
	at := func(i int) string { return string(b[2*i : 2*i+2]) }
	return at(3) + at(2) + at(1) + at(0) + at(5) + at(4) + at(7) + at(6) + string(b[16:]) + "0"
}

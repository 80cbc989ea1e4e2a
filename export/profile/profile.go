// Package profile converts a recording to a profile, which the packages pprof and otlp
// encode. Each stack of each thread, in each state, has its number of samples and its times.
//
// Samples come one thread after another and are not kept. Locations, functions and files are
// numbered when a sample first uses them, and yielded after the samples. A Profile is for
// one goroutine.
package profile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Type is the unit of one value of a sample.
type Type struct{ Name, Unit string }

// Types are the types of a sample's values, in order.
var Types = [...]Type{{"samples", "count"}, {"cpu", "nanoseconds"}, {"wall", "nanoseconds"}, {"lock_wait", "nanoseconds"}, {"off_cpu", "nanoseconds"}}

// Indexes in Types. CPU is the default type; Period is given in units of Wall.
const (
	CPU  = 1
	Wall = 2
)

// Sample is one stack of a thread in one state.
type Sample struct {
	Values [len(Types)]int64
	// Stack identifies the stack: above 0, below StackLimit.
	Stack int32
	// Labels identifies the label set within a thread, from 0 on.
	Labels int
	Thread *view.Thread

	name    string // of the thread at that time
	waiting diff.Waiting
	idle    bool
}

// StackLimit is greater than every Sample.Stack.
const StackLimit = tally.MaxNodes

// Label is a fact about a sample: Text, or Num if Text is empty.
type Label struct {
	Key, Text string
	Num       int64
}

// Location is a place in the code.
type Location struct {
	Mapping int    // number; 0: none
	Address uint64 // run time, inside the mapping
	Lines   []Line // innermost of inlined calls first
}

// Line is a function at a location.
type Line struct {
	Function int // number
	Line     int
}

// Function is a function in a source file.
type Function struct {
	// System is the name in the symbol table; "" if there is none or it must not be
	// demangled.
	Name, System, File string
	StartLine          int
}

// Mapping is a file in the target's memory.
type Mapping struct {
	Start, Limit, Offset uint64
	File, BuildID        string // BuildID in hex
	Named                bool   // the recording has symbols for it
}

// Profile is the profile of a recording.
type Profile struct {
	Process  string // label "process" of each sample; "": none
	Time     int64  // wall clock at the start in ns; 0: unknown
	Duration int64  // ns
	Period   int64  // ns between samples of a thread

	v        *view.View
	tree     *tally.Tree
	stacks   *tally.Cutter
	omitted  []int // numbers of omitted frames, by label: firstOmitted - i
	labelOf  map[int]int32
	numbers  []int32 // location numbers, by label in tree
	below    []int32 // location numbers of negative labels, by -1-label
	places   []int32 // labels, by number - 1
	path     []int32
	function map[source]int
	funcs    []int32 // function numbers with their default file, by index in Names.Funcs
	sources  []source
	mapped   []Mapping // by module; Limit is 0 if it was never mapped
	mapping  []int     // mapping numbers, by module
	modules  []int     // modules, by mapping number - 1
	begun    bool
	before   numbers // those of the profiles before, which the fields above lack
}

// numbers are the highest numbers in use.
type numbers struct{ locations, functions, mappings int }

// firstOmitted and the labels below it represent omitted frames.
const firstOmitted = tally.NotSampled - 1

// source is a function as seen from one source file: code of one function can come from
// several (macros, included bodies).
type source struct {
	fn   int
	file string
}

// New begins a profile of v. Its locations, functions and mappings have the numbers behind those of before, which was
// yielded; nil: they begin at 1.
func New(v *view.View, before *Profile) *Profile {
	tree := tally.NewTree()
	p := &Profile{v: v, tree: tree, stacks: tree.Cutter(), labelOf: map[int]int32{}, function: map[source]int{}, Period: v.Rec.Process.Interval, Duration: int64(v.End() - v.Begin())}
	if c := v.Rec.Process.Clocks; c.Realtime > 0 {
		p.Time = c.Realtime + int64(v.Begin()-c.Monotonic)
	}
	if b := before; b != nil {
		p.before = numbers{b.before.locations + len(b.places), b.before.functions + len(b.sources), b.before.mappings + len(b.modules)}
	}
	p.mapAll()
	return p
}

// Each yields the samples, and then the tables that they reference, until one of the functions fails.
func (p *Profile) Each(sample func(*Sample) error, location func(number int, l *Location) error, function func(number int, f *Function) error,
	mapping func(number int, m *Mapping) error) error {
	if err := p.Samples(sample); err != nil {
		return err
	}
	if err := p.Locations(location); err != nil {
		return err
	}
	if err := p.Functions(function); err != nil {
		return err
	}
	return p.Mappings(mapping)
}

// Comments returns the command on its own line, the recording's settings and its losses. It
// is complete only after Samples.
func (p *Profile) Comments() []string {
	var out []string // pprof prints them above every report, so they are few
	line := ""
	for _, f := range p.v.Facts() {
		if f[0] == "command" {
			out = append(out, f[0]+": "+f[1])
			continue
		}
		if line != "" {
			line += ", "
		}
		line += f[0] + ": " + f[1]
	}
	out = append(out, line)
	for _, l := range p.v.Losses() {
		out = append(out, "loss: "+l)
	}
	if p.tree.Folded > 0 {
		out = append(out, fmt.Sprintf("loss: %s counted for their callers: more than %d distinct ones", plural.Of(p.tree.Folded, "stack"), tally.MaxNodes))
	}
	if l := p.stacks.Loss(); l != "" {
		out = append(out, "loss: "+l)
	}
	return out
}

// Samples yields all samples, by thread and time, until yield fails. Call it at most once.
// It reuses the Sample.
func (p *Profile) Samples(yield func(*Sample) error) error {
	if p.begun {
		panic("profile: samples are reported once")
	}
	p.begun = true
	var s Sample
	for i := range p.v.Threads {
		s.Thread = &p.v.Threads[i]
		t := tally.Of(p.v, s.Thread, p.tree)
		for j := range t.Len() {
			k, v := t.Key(j), t.Values(j)
			if *v == (tally.Values{}) || k.Node == 0 {
				continue // between stacks: the thread had ended, or its program was replaced
			}
			s.Values = [len(Types)]int64{v.Samples, v.CPU, v.Wall, v.Lock, v.Off}
			s.Stack, s.Labels, s.name, s.waiting, s.idle = k.Node, 2*t.Wait(j), t.Name(j), k.Waiting, t.Idle(j)
			if s.idle {
				s.Labels++
			}
			if err := yield(&s); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stack appends the location numbers of s to dst, innermost first. In a deep stack
// one location may represent omitted frames: see tally.Cutter.
func (p *Profile) Stack(s *Sample, dst []int) []int {
	var inner, omitted int
	p.path, inner, omitted = p.stacks.Path(s.Stack, p.path[:0])
	for i, label := range p.path {
		if omitted > 0 && i == inner {
			dst = append(dst, p.before.locations+p.place(p.omit(omitted)))
		}
		dst = append(dst, p.before.locations+p.place(label))
	}
	return dst
}

// omit returns the label for n omitted frames.
func (p *Profile) omit(n int) int32 {
	l, ok := p.labelOf[n]
	if !ok {
		l = firstOmitted - int32(len(p.omitted))
		p.omitted = append(p.omitted, n)
		p.labelOf[n] = l
	}
	return l
}

func (p *Profile) place(label int32) int {
	at, i := &p.numbers, int(label)
	if label < 0 {
		at, i = &p.below, int(-1-label)
	}
	if i >= len(*at) {
		*at = append(*at, make([]int32, i+1-len(*at))...)
	}
	n := (*at)[i]
	if n == 0 {
		p.places = append(p.places, label)
		n = int32(len(p.places))
		(*at)[i] = n
	}
	return int(n)
}

// Labels returns the labels of s, sorted by key: its thread, state and wait.
func (p *Profile) Labels(s *Sample) []Label {
	out := []Label{{Key: "thread", Text: s.name}, {Key: "tid", Num: int64(s.Thread.ID)}, {Key: "pid", Num: int64(p.v.PID())}}
	add := func(k, v string) {
		if v != "" {
			out = append(out, Label{Key: k, Text: v})
		}
	}
	add("process", p.Process)
	w := &s.waiting
	st, nr := w.State()
	if st != stack.StateUnknown {
		add("state", st.String())
	}
	add("call", p.v.Call(nr))
	if d := p.v.Wait(w); d != nil {
		if s.idle {
			add("wait", "idle")
		} else {
			add("wait", view.Text(string(d.Kind), 64))
		}
		add("file", view.Text(d.File, 512))
		add("peer", view.Text(d.Peer, 512))
	} else if w.Lock() != 0 {
		add("wait", "lock")
	}
	add("lock", p.v.LockOf(w))
	if a := w.Lock(); a != 0 {
		add("lock_address", fmt.Sprintf("%#x", a))
	}
	if tid, by := w.Holder(); tid != 0 {
		add("holder", p.v.ThreadName(tid))
		add("holder_known_by", by.String())
	}
	slices.SortFunc(out, func(a, b Label) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return out
}

// Locations yields the locations that stacks used, by number, until yield fails. It reuses
// the Location.
func (p *Profile) Locations(yield func(number int, l *Location) error) error {
	var l Location
	for i, label := range p.places {
		l = Location{Lines: l.Lines[:0]}
		if label < 0 {
			l.Lines = append(l.Lines, Line{Function: p.before.functions + p.functionOf(p.standIn(label), "")})
		} else {
			p.locate(&l, p.v.Names.Locs()[label])
		}
		if err := yield(p.before.locations+i+1, &l); err != nil {
			return err
		}
	}
	return nil
}

// standIn returns the function of a negative label.
func (p *Profile) standIn(label int32) int {
	switch {
	case label == tally.Unknown:
		return p.v.GapFunc(stack.WhyLost)
	case label <= firstOmitted:
		return p.v.OmittedFunc(tally.Omitted(p.omitted[firstOmitted-label]))
	}
	return p.v.UnseenFunc()
}

func (p *Profile) locate(l *Location, from *trace.Loc) {
	if k := from.Word.Kind(); k != stack.KindError && (k != stack.KindKernel || from.Key.Module >= 0) {
		l.Address = from.Addr
		if m := from.Key.Module; m >= 0 && m < len(p.mapped) && p.mapped[m].Limit != 0 {
			l.Mapping = p.before.mappings + p.mappingOf(m)
			if at := &p.mapped[m]; l.Address < at.Start || l.Address >= at.Limit {
				// The address belongs to another generation of the address space, or the
				// file is mapped twice. Convert it to the first mapping.
				l.Address = at.Start
				if a, ok := p.inModule(from.Key); ok && a >= at.Start && a < at.Limit {
					l.Address = a
				}
			}
		}
	}
	for i := range from.Frames { // innermost first
		f := &from.Frames[i]
		l.Lines = append(l.Lines, Line{p.before.functions + p.functionOf(f.Func, f.File), f.Line})
	}
}

// inModule converts a place in a module's file to the run-time address in its first mapping.
func (p *Profile) inModule(k trace.LocKey) (addr uint64, ok bool) {
	m := &p.mapped[k.Module]
	for _, s := range p.v.Rec.Modules[k.Module].Segments {
		if k.Addr >= s.Vaddr && k.Addr-s.Vaddr < s.Size {
			off := s.Off + (k.Addr - s.Vaddr)
			return m.Start + (off - m.Offset), off >= m.Offset
		}
	}
	return 0, false
}

// functionOf returns the number of a function of Names.Funcs; file is "" for its default
// one.
func (p *Profile) functionOf(fn int, file string) int {
	own := p.v.Names.Funcs[fn].File
	if file == "" || file == own { // nearly always
		if fn >= len(p.funcs) {
			p.funcs = append(p.funcs, make([]int32, len(p.v.Names.Funcs)-len(p.funcs))...)
		}
		if p.funcs[fn] == 0 {
			p.sources = append(p.sources, source{fn, own})
			p.funcs[fn] = int32(len(p.sources))
		}
		return int(p.funcs[fn])
	}
	k := source{fn, file}
	n, ok := p.function[k]
	if !ok {
		p.sources = append(p.sources, k)
		n = len(p.sources)
		p.function[k] = n
	}
	return n
}

// Functions yields the functions that locations used, by number, until yield fails.
func (p *Profile) Functions(yield func(number int, f *Function) error) error {
	for i, s := range p.sources {
		fn := &p.v.Names.Funcs[s.fn]
		f := Function{Name: p.v.FuncName(s.fn), System: view.Text(fn.Linkage, view.MaxName), File: view.Text(s.file, view.MaxName), StartLine: fn.StartLine}
		// Readers demangle a name that equals the system name, and pprof then drops parts in
		// <> or (): Python's "<module>" would become empty.
		if f.System == "" && !strings.ContainsAny(f.Name, "<>[]") && !strings.Contains(f.Name, "::") {
			f.System = f.Name
		}
		if err := yield(p.before.functions+i+1, &f); err != nil {
			return err
		}
	}
	return nil
}

// mapAll finds the last mapping of each module. The target's own program is number 1, as
// readers expect, used or not.
func (p *Profile) mapAll() {
	rec := p.v.Rec
	p.mapped, p.mapping = make([]Mapping, len(rec.Modules)), make([]int, len(rec.Modules))
	for g := len(rec.Maps) - 1; g >= 0; g-- {
		for _, m := range rec.Maps[g].Mappings {
			if m.Module < 0 || m.Module >= len(p.mapped) || m.Start >= m.End {
				continue
			}
			if at := &p.mapped[m.Module]; at.Limit == 0 {
				at.Start, at.Limit, at.Offset = m.Start, m.End, m.Off
			}
		}
	}
	for i := range rec.Modules {
		m := &p.mapped[i]
		m.File = view.Text(rec.Modules[i].Path, view.MaxName)
		m.BuildID = hex(rec.Modules[i].BuildID)
		m.Named = rec.Symbols != nil
		if m.Limit != 0 && len(p.modules) == 0 && m.File == view.Text(rec.Process.Exe, view.MaxName) {
			p.mappingOf(i)
		}
	}
}

func (p *Profile) mappingOf(module int) int {
	if p.mapping[module] == 0 {
		p.modules = append(p.modules, module)
		p.mapping[module] = len(p.modules)
	}
	return p.mapping[module]
}

// Mappings yields the files that contain locations, by number, until yield fails.
func (p *Profile) Mappings(yield func(number int, m *Mapping) error) error {
	for i, module := range p.modules {
		if err := yield(p.before.mappings+i+1, &p.mapped[module]); err != nil {
			return err
		}
	}
	return nil
}

// hex returns s if it is a valid build ID, otherwise "".
func hex(s string) string {
	for _, c := range []byte(s) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return ""
		}
	}
	return s
}

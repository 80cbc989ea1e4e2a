// Package pprof writes a recording as a pprof profile: for each stack of each
// thread, and for each state it was seen in, how often it was sampled and
// where the time went.
//
// Sample types: samples/count; cpu, by the kernel's account of the thread;
// wall, the time that elapsed (over a thread, it adds up to the time it was
// observed); lock_wait and off_cpu, the parts of wall in which it was seen to
// wait for a lock, or to be off the CPUs. Labels: thread and state; of a wait
// its kind (wait), the system call (call), what it is for (file, peer, lock,
// lock_address) and who held the lock (holder, holder_known_by) as strings; tid
// and pid as numbers. What the recording is missing stands in the
// comments, and as frames in brackets where it is missing.
//
// It reads a view and knows nothing of files; Write may run for several
// recordings at once.
package pprof

import (
	"fmt"
	"io"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Write writes rec to w, gzip-compressed.
func Write(w io.Writer, rec *trace.Recording, o view.Options) error {
	v := view.New(rec, o)
	p, err := build(v)
	if err != nil {
		return err
	}
	if err := p.Write(w); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}

// Profile is rec as a profile, for other formats with the same contents.
func Profile(rec *trace.Recording, o view.Options) (*profile.Profile, error) {
	return build(view.New(rec, o))
}

// comments are the command line on a line of its own, then how it was recorded.
func comments(v *view.View) []string {
	var out []string
	line := ""
	for _, f := range v.Facts() {
		if f[0] == "command" {
			out = append(out, f[0]+": "+f[1])
			continue
		}
		if line != "" {
			line += ", "
		}
		line += f[0] + ": " + f[1]
	}
	return append(out, line)
}

// builder turns locations and functions into those of a profile, once each.
type builder struct {
	v        *view.View
	p        *profile.Profile
	funcs    []*profile.Function // by number in Names.Funcs
	bySource map[source]*profile.Function
	mappings []*profile.Mapping // by module
	locs     []*profile.Location
	unknown  *profile.Location

	// A profile of many stacks consists of hundreds of thousands of these.
	samples arena[profile.Sample]
	stacks  arena[*profile.Location]
	values  arena[int64]
}

// arena hands out pieces of larger ones.
type arena[T any] struct{ free []T }

func (a *arena[T]) take(n int) []T {
	if n > len(a.free) {
		a.free = make([]T, max(n, 4096))
	}
	s := a.free[:n:n]
	a.free = a.free[n:]
	return s
}

// source is a function as seen from one source file: code of one function can
// come from several (macros, included bodies), and pprof keeps the file there.
type source struct {
	fn   int
	file string
}

func build(v *view.View) (*profile.Profile, error) {
	rec := v.Rec
	p := &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "samples", Unit: "count"},
			{Type: "cpu", Unit: "nanoseconds"},
			{Type: "wall", Unit: "nanoseconds"},
			{Type: "lock_wait", Unit: "nanoseconds"},
			{Type: "off_cpu", Unit: "nanoseconds"},
		},
		DefaultSampleType: "wall",
		PeriodType:        &profile.ValueType{Type: "wall", Unit: "nanoseconds"},
		Period:            rec.Process.Interval,
		DurationNanos:     int64(v.End() - v.Begin()),
	}
	if c := rec.Process.Clocks; c.Realtime > 0 {
		p.TimeNanos = c.Realtime + int64(v.Begin()-c.Monotonic)
	}
	p.Comments = comments(v) // pprof prints them above each of its answers: a few lines
	for _, l := range v.Losses() {
		p.Comments = append(p.Comments, "loss: "+l)
	}
	b := &builder{v: v, p: p, bySource: map[source]*profile.Function{}}
	b.allMappings()

	tree := tally.NewTree()
	for i := range v.Threads {
		b.thread(tally.Of(v, &v.Threads[i], tree), &v.Threads[i])
	}
	if tree.Folded > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("loss: %d stacks counted for their callers: more than %d distinct ones", tree.Folded, tally.MaxNodes))
	}
	b.dropUnusedMappings()
	if err := p.CheckValid(); err != nil {
		return nil, fmt.Errorf("build profile: %w", err)
	}
	return p, nil
}

// thread adds the samples of one thread.
func (b *builder) thread(t *tally.Tally, th *view.Thread) {
	type labels struct {
		strs map[string][]string
		nums map[string][]int64
	}
	known := map[diff.Waiting]labels{}
	var path []int32
	for i, k := range t.Order {
		v := t.Values(i)
		if *v == (tally.Values{}) || k.Node == 0 {
			continue // between stacks: the thread had ended, or its program was replaced
		}
		l, ok := known[k.Waiting]
		if !ok {
			l.strs, l.nums = b.labels(th, &k.Waiting)
			known[k.Waiting] = l
		}
		path = t.Tree.Path(k.Node, path[:0])
		s := &b.samples.take(1)[0]
		s.Location, s.Value, s.Label, s.NumLabel = b.stacks.take(len(path)), b.values.take(5), l.strs, l.nums
		s.Value[0], s.Value[1], s.Value[2], s.Value[3], s.Value[4] = v.Samples, v.CPU, v.Wall, v.Lock, v.Off
		for j, id := range path {
			s.Location[j] = b.location(id)
		}
		b.p.Sample = append(b.p.Sample, s)
	}
}

// labels of what th did and waited for.
func (b *builder) labels(th *view.Thread, w *diff.Waiting) (strs map[string][]string, nums map[string][]int64) {
	strs = map[string][]string{"thread": {th.Label}}
	nums = map[string][]int64{"tid": {int64(th.ID)}, "pid": {int64(b.v.PID())}}
	add := func(k, v string) {
		if v != "" {
			strs[k] = []string{v}
		}
	}
	s, nr := w.State()
	if s != stack.StateUnknown {
		add("state", s.String())
	}
	add("call", b.v.Call(nr))
	if d := b.v.Wait(w); d != nil {
		add("wait", view.Text(d.Kind, 64))
		add("file", view.Text(d.File, 512))
		add("peer", view.Text(d.Peer, 512))
	} else if w.Lock() != 0 {
		add("wait", "lock")
	}
	add("lock", b.v.LockOf(w))
	if a := w.Lock(); a != 0 {
		add("lock_address", fmt.Sprintf("%#x", a))
	}
	if tid, by := w.Holder(); tid != 0 {
		add("holder", b.v.ThreadName(tid))
		add("holder_known_by", by.String())
	}
	return strs, nums
}

func (b *builder) location(id int32) *profile.Location {
	if id == tally.Unknown {
		if b.unknown == nil {
			f := b.newFunction("[gap: "+stack.WhyLost.String()+"]", "", "", 0)
			b.unknown = &profile.Location{ID: uint64(len(b.p.Location) + 1), Line: []profile.Line{{Function: f}}}
			b.p.Location = append(b.p.Location, b.unknown)
		}
		return b.unknown
	}
	if int(id) >= len(b.locs) {
		b.locs = slices.Grow(b.locs, len(b.v.Names.Locs())-len(b.locs))[:len(b.v.Names.Locs())]
	}
	if l := b.locs[id]; l != nil {
		return l
	}
	from := b.v.Names.Locs()[id]
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1)}
	if from.Word.Kind() != stack.KindError {
		l.Address = from.Addr
		if m := from.Key.Module; m >= 0 && m < len(b.mappings) {
			l.Mapping = b.mappings[m]
		}
		if l.Mapping != nil && (l.Address < l.Mapping.Start || l.Address >= l.Mapping.Limit) {
			// Another generation of the address space, or the file is mapped
			// twice: the address as the first mapping would have it.
			l.Address = l.Mapping.Start
			if _, at, ok := b.inModule(from.Key); ok && at >= l.Mapping.Start && at < l.Mapping.Limit {
				l.Address = at
			}
		}
	}
	for i := range from.Frames { // innermost first, as pprof has it
		f := &from.Frames[i]
		l.Line = append(l.Line, profile.Line{Function: b.function(f), Line: int64(f.Line)})
	}
	b.p.Location = append(b.p.Location, l)
	b.locs[id] = l
	return l
}

// inModule turns a place in a module's file into the run-time address that its
// first mapping gives it.
func (b *builder) inModule(k trace.LocKey) (module int, addr uint64, ok bool) {
	m := b.mappings[k.Module]
	for _, s := range b.v.Rec.Modules[k.Module].Segments {
		if k.Addr >= s.Vaddr && k.Addr-s.Vaddr < s.Size {
			off := s.Off + (k.Addr - s.Vaddr)
			return k.Module, m.Start + (off - m.Offset), off >= m.Offset
		}
	}
	return k.Module, 0, false
}

func (b *builder) function(f *trace.LocFrame) *profile.Function {
	fn := &b.v.Names.Funcs[f.Func]
	file := f.File
	if file == "" {
		file = fn.File
	}
	if file == fn.File { // nearly always
		if f.Func >= len(b.funcs) {
			b.funcs = slices.Grow(b.funcs, len(b.v.Names.Funcs)-len(b.funcs))[:len(b.v.Names.Funcs)]
		}
		if b.funcs[f.Func] == nil {
			b.funcs[f.Func] = b.newFunction(b.v.FuncName(f.Func), fn.Linkage, file, fn.StartLine)
		}
		return b.funcs[f.Func]
	}
	k := source{f.Func, file}
	if b.bySource[k] == nil {
		b.bySource[k] = b.newFunction(b.v.FuncName(f.Func), fn.Linkage, file, fn.StartLine)
	}
	return b.bySource[k]
}

func (b *builder) newFunction(name, linkage, file string, line int) *profile.Function {
	f := &profile.Function{
		ID: uint64(len(b.p.Function) + 1), Name: name, SystemName: view.Text(linkage, view.MaxName),
		Filename: view.Text(file, view.MaxName), StartLine: int64(line),
	}
	if f.SystemName == "" {
		f.SystemName = name
	}
	b.p.Function = append(b.p.Function, f)
	return f
}

// allMappings makes one mapping for each module, where it was mapped last.
func (b *builder) allMappings() {
	rec := b.v.Rec
	b.mappings = make([]*profile.Mapping, len(rec.Modules))
	for g := len(rec.Maps) - 1; g >= 0; g-- {
		for _, m := range rec.Maps[g].Mappings {
			if m.Module < 0 || m.Module >= len(b.mappings) || m.Start >= m.End {
				continue
			}
			old := b.mappings[m.Module]
			if old == nil {
				b.mappings[m.Module] = &profile.Mapping{Start: m.Start, Limit: m.End, Offset: m.Off}
			}
		}
	}
	for _, i := range b.v.SortedModules() {
		m := b.mappings[i]
		if m == nil {
			continue
		}
		m.ID = uint64(len(b.p.Mapping) + 1)
		m.File = view.Text(rec.Modules[i].Path, view.MaxName)
		m.BuildID = hex(rec.Modules[i].BuildID)
		if rec.Symbols != nil {
			m.HasFunctions, m.HasFilenames, m.HasLineNumbers, m.HasInlineFrames = true, true, true, true
		}
		b.p.Mapping = append(b.p.Mapping, m)
	}
}

// dropUnusedMappings leaves the main program's mapping, which readers expect
// first, and those that samples lie in.
func (b *builder) dropUnusedMappings() {
	used := map[*profile.Mapping]bool{}
	for _, l := range b.p.Location {
		used[l.Mapping] = true
	}
	main := func(m *profile.Mapping) bool {
		return m.File == view.Text(b.v.Rec.Process.Exe, view.MaxName)
	}
	b.p.Mapping = slices.DeleteFunc(b.p.Mapping, func(m *profile.Mapping) bool { return !used[m] && !main(m) })
	for i, m := range b.p.Mapping {
		m.ID = uint64(i + 1)
	}
}

// hex lets only a build ID through that is one.
func hex(s string) string {
	for _, c := range []byte(s) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return ""
		}
	}
	return s
}

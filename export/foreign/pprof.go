package foreign

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/internal/limits"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// ReadPprof reads a profile in pprof's format and writes it to w as a recording. A
// profile has durations but no times: stacks are laid out one after another, sorted by
// name, so that common prefixes merge into one call. The labels "thread" and "tid"
// separate threads. Of several sample types it uses the default one, otherwise the last
// that is a time.
func ReadPprof(r io.Reader, w io.Writer, o Options) (*Report, error) {
	mem := limits.Process().New("the profile", maxMemory)
	defer mem.Close()
	p, err := readProfile(r, mem)
	if err != nil {
		return nil, err
	}
	kind, unit, isTime := valueOf(p)
	if kind < 0 {
		return nil, errors.New("it has no sample types")
	}
	x := &pprofReader{p: p, rep: &Report{}, kind: kind, unit: unit, byKey: map[string]*pprofThread{}}
	if err := p.samples(func(s *pbSample) error { return x.sample(s, o.Name) }); err != nil {
		return nil, err
	}
	typ, unitName := p.text(p.types[kind].kind), p.text(p.types[kind].unit)
	if x.samples == 0 {
		return nil, fmt.Errorf("it holds no sample of type %q", typ)
	}
	if x.b, err = newBuilder(w, trace.Process{PID: 1, Comm: o.Name, Sliver: o.Version, Clocks: trace.Clocks{Monotonic: 1}}, 1); err != nil {
		return nil, err
	}
	end := stack.Time(1)
	for i, t := range x.threads {
		at, err := x.write(t, i)
		if err != nil {
			return nil, err
		}
		end = max(end, at)
	}
	what := fmt.Sprintf("values are %q; stacks are placed one after another because a profile has no times", typ)
	if !isTime {
		what = fmt.Sprintf("values are %q in %q, shown as ns; a profile has no times", typ, unitName)
	}
	x.rep.Notes = append(x.rep.Notes, what)
	note(x.rep, x.negative, "sample has a value below 0, and is left out", "samples have values below 0, and are left out")
	note(x.rep, x.deep, "stack was too deep, and is cut", "stacks were too deep, and are cut")
	x.rep.Threads, x.rep.Calls = len(x.threads), x.b.calls
	return x.rep, x.b.finish(&x.names, end, trace.Imported+"a pprof profile")
}

// isPprof recognizes a profile by its sample types, messages of one or two small numbers.
// They come first, or after a few numeric fields such as the time.
func isPprof(head []byte) bool {
	for len(head) > 0 {
		n, kind, size := protowire.ConsumeTag(head)
		if size < 0 || n < 7 && kind != protowire.BytesType || n > 14 {
			return false
		}
		head = head[size:]
		if n == 1 {
			m, size := protowire.ConsumeBytes(head)
			return size > 0 && len(m) > 1 && len(m) <= 16 && (m[0] == 1<<3 || m[0] == 2<<3)
		}
		if size = protowire.ConsumeFieldValue(n, kind, head); size < 0 || kind != protowire.VarintType {
			return false
		}
		head = head[size:]
	}
	return false
}

// timeUnits are in ns.
var timeUnits = map[string]int64{"nanoseconds": 1, "ns": 1, "microseconds": 1e3, "us": 1e3, "milliseconds": 1e6, "ms": 1e6, "seconds": 1e9, "s": 1e9}

// valueOf selects a sample type: its index, and the ns in one unit.
func valueOf(p *pbProfile) (kind int, unit int64, isTime bool) {
	kind = -1
	for i, t := range p.types {
		ns, ok := timeUnits[p.text(t.unit)]
		if !ok {
			ns = 1
		}
		if typ := p.text(t.kind); typ == p.text(p.def) && typ != "" {
			return i, ns, ok
		}
		if kind < 0 || ok || !isTime {
			kind, unit, isTime = i, ns, ok
		}
	}
	return kind, unit, isTime
}

type pprofReader struct {
	p       *pbProfile
	rep     *Report
	kind    int
	unit    int64
	b       *builder
	names   names
	byKey   map[string]*pprofThread
	threads []*pprofThread

	samples, negative, deep int
	frames                  int // of all samples
}

// pprofThread holds the samples of one thread.
type pprofThread struct {
	tid    int64
	name   string
	stacks []pprofStack
}

type pprofStack struct {
	path []uint32 // names, outermost first
	ns   int64
}

// sample adds one sample.
func (x *pprofReader) sample(s *pbSample, name string) error {
	if len(s.values) != len(x.p.types) {
		return fmt.Errorf("it is broken: a sample has %d values, there are %d types", len(s.values), len(x.p.types))
	}
	v := s.values[x.kind]
	if v < 0 {
		x.negative++
		return nil
	}
	if v == 0 {
		return nil
	}
	t, err := x.threadOf(s, name)
	if err != nil {
		return err
	}
	x.samples++
	ns := maxTime
	if v < maxTime/x.unit {
		ns = v * x.unit
	}
	var path []uint32
	for i := len(s.locations) - 1; i >= 0 && len(path) <= maxDepth; i-- {
		loc, ok := x.p.locations[s.locations[i]]
		if !ok {
			return fmt.Errorf("invalid profile: missing location %d", s.locations[i])
		}
		if loc.many == 0 {
			if path, err = x.frame(path, "0x"+strconv.FormatUint(loc.addr, 16)); err != nil {
				return err
			}
		}
		lines := x.p.lines[loc.first:][:loc.many]
		for j := len(lines) - 1; j >= 0 && len(path) <= maxDepth; j-- { // the first line is the innermost
			fn := "?"
			if lines[j] != 0 {
				name, ok := x.p.functions[lines[j]]
				if !ok {
					return fmt.Errorf("invalid profile: missing function %d", lines[j])
				}
				fn = x.p.text(name)
			}
			if path, err = x.frame(path, fn); err != nil {
				return err
			}
		}
	}
	if len(path) > maxDepth || s.deep {
		path = path[:min(len(path), maxDepth)]
		x.deep++
	}
	if x.frames += len(path); x.frames > maxFrames {
		return fmt.Errorf("it has more than %d frames", maxFrames)
	}
	if err := x.p.mem.Take(int64(4*cap(path) + perStackMemory)); err != nil {
		return err
	}
	t.stacks = append(t.stacks, pprofStack{path, ns})
	return nil
}

func (x *pprofReader) frame(path []uint32, name string) ([]uint32, error) {
	id, err := x.names.id(name)
	return append(path, id), err
}

// threadOf returns the thread named by a sample's labels. Without labels the profile has
// a single thread.
func (x *pprofReader) threadOf(s *pbSample, name string) (*pprofThread, error) {
	t := &pprofThread{name: name}
	for _, k := range []string{"thread_name", "thread"} { // the last one found takes precedence
		if l := x.label(s, k); l != nil && l.str != 0 && x.p.text(l.str) != "" {
			t.name = x.p.text(l.str)
		}
	}
	for _, k := range []string{"thread_id", "tid"} {
		if l := x.label(s, k); l != nil && l.str == 0 && l.num > 0 && l.num <= 1<<31-1 {
			t.tid = l.num
		}
	}
	key := strconv.FormatInt(t.tid, 10) + " " + t.name
	if known := x.byKey[key]; known != nil {
		return known, nil
	}
	if len(x.threads) >= maxThreads {
		return nil, errThreads
	}
	x.byKey[key] = t
	x.threads = append(x.threads, t)
	return t, nil
}

// label returns the first label with this name.
func (x *pprofReader) label(s *pbSample, name string) *pbLabel {
	for i := range s.labels {
		if x.p.text(s.labels[i].key) == name {
			return &s.labels[i]
		}
	}
	return nil
}

// write lays out the samples of a thread one after another and returns the end time.
func (x *pprofReader) write(t *pprofThread, seq int) (stack.Time, error) {
	byName := func(a, b uint32) int {
		if a == b {
			return 0
		}
		if x.names.list[a] < x.names.list[b] {
			return -1
		}
		return 1
	}
	slices.SortStableFunc(t.stacks, func(a, b pprofStack) int { return slices.CompareFunc(a.path, b.path, byName) })
	tid := t.tid
	if tid == 0 {
		tid = int64(seq) + 1
	}
	th, err := x.b.thread(trace.Thread{TID: stack.TID(tid), Name: t.name, Main: seq == 0, Born: 1, Since: 1, Seq: seq})
	if err != nil {
		return 0, err
	}
	at := stack.Time(1)
	var open []uint32
	for _, s := range t.stacks {
		same := 0
		for same < len(open) && same < len(s.path) && open[same] == s.path[same] {
			same++
		}
		for range open[same:] {
			if err := th.exit(at); err != nil {
				return 0, err
			}
		}
		for _, name := range s.path[same:] {
			if err := th.enter(at, name); err != nil {
				return 0, err
			}
		}
		open = s.path
		at += stack.Time(min(s.ns, maxTime-int64(at)))
	}
	return at, th.close(at)
}

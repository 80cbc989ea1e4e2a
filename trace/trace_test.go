package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// record makes a small recording of n samples of each of two threads and returns it with
// the original stacks.
func record(t testing.TB, n int, finish bool) ([]byte, map[int][]string) {
	t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRecorder(w, Process{PID: 42, Comm: "x", Interval: 1000}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Maps(Maps{At: 1, Mappings: []Mapping{{Start: 0x1000, End: 0x9000, Module: 0}, {Start: 0xa000, End: 0xb000, Off: 0x1000, Module: 1}}},
		[]Module{{Path: "/bin/x", Segments: []Segment{{Off: 0, Vaddr: 0x400000, Size: 0x8000}}}, {Path: "[anon]"}})
	rnd := rand.New(rand.NewPCG(5, 6))
	want := map[int][]string{}
	for k := range 2 {
		s := r.Thread(Thread{TID: stack.TID(100 + k), Name: fmt.Sprint("t", k), Main: k == 0, Since: 1, Born: stack.Time(k)})
		var st []stack.Frame
		for i := range n {
			for range rnd.IntN(3) {
				if len(st) > 0 && rnd.IntN(2) == 0 {
					st = st[1:]
				} else if len(st) < 10 {
					pc := uint64(0x1000 + rnd.IntN(0x8000))
					st = append([]stack.Frame{{Func: pc &^ 0xff, PC: pc, CFA: uint64(0x8000 - 16*len(st)), Exact: rnd.IntN(2) == 0}}, st...)
				}
			}
			x := &stack.Sample{Time: stack.Time(1000 * (i + 1)), Stack: st, CPU: int64(i) * 10, Begin: stack.Time(1000*(i+1) - 5), Pause: 7}
			s.Sample(x)
			want[k] = append(want[k], fmt.Sprint(outermost(st)))
		}
		s.End(stack.Time(1000*(n+1)), stack.WhyGone)
	}
	if finish {
		st, err := r.Close(Stats{Threads: []ThreadStats{{TID: 100, Samples: uint64(n)}}}, End{At: stack.Time(1000 * (n + 1)), Reason: "duration"})
		if err != nil || st.Total().Samples != uint64(n) {
			t.Fatalf("close: %v, %+v", err, st)
		}
		if err := w.Symbols(testSymbols()); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes(), want
}

func testSymbols() *Symbols {
	var s Symbols
	f := s.FuncID(Func{Name: "main", File: "x.c", StartLine: 3, Module: 0, Start: 0x400000})
	g := s.FuncID(Func{Name: "inl", File: "y.h", Module: 0})
	s.Set(LocKey{0, 0x400010}, []LocFrame{{Func: g, File: "y.h", Line: 9, Inlined: true}, {Func: f, File: "x.c", Line: 5}})
	return &s
}

func outermost(st []stack.Frame) (w []event.Word) {
	for i := len(st) - 1; i >= 0; i-- {
		w = append(w, event.WordOf(&st[i]))
	}
	return w
}

type discard struct{}

func (discard) Begin(stack.Time, int, *Slice) {}
func (discard) End(stack.Time, int, *Slice)   {}
func (discard) Other(event.Event)             {}

func open(t testing.TB, b []byte) *Recording {
	t.Helper()
	rec, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestRoundTrip(t *testing.T) {
	const n = 3000
	b, want := record(t, n, true)
	rec := open(t, b)
	if len(rec.Problems) > 0 || rec.End == nil || rec.Process.PID != 42 || len(rec.Threads) != 2 || !rec.Threads[0].Main {
		t.Fatalf("opened as %+v", rec)
	}
	if !reflect.DeepEqual(rec.Symbols.Locs, testSymbols().Locs) || !slices.Equal(rec.Symbols.Funcs, testSymbols().Funcs) {
		t.Fatalf("symbols %+v", rec.Symbols)
	}
	for _, th := range rec.Threads {
		s := NewSlices(NewNames(rec), discard{})
		i := 0
		check := func() {
			var got []event.Word
			for _, f := range s.Real() {
				got = append(got, f.Word)
			}
			if fmt.Sprint(got) != want[th.Seq][i] {
				t.Fatalf("thread %d sample %d: %v, want %v", th.TID, i, got, want[th.Seq][i])
			}
		}
		for e := range rec.Events(th.Seq) {
			if e.Time > stack.Time(1000*(i+1)) {
				check()
				i++
			}
			s.Apply(e)
		}
		if i != n {
			t.Fatalf("thread %d: %d samples replayed", th.TID, i)
		}
		if s.Odd() != 0 {
			t.Fatalf("%d odd events", s.Odd())
		}
	}
	from, to := rec.Span()
	if from != 995 || to != 1000*(n+1) { // the stop of the first sample, not when its thread was added
		t.Fatalf("span %d…%d", from, to)
	}
}

// TestEveryTruncation: a recording truncated anywhere opens or fails with a clear error,
// and replays without panic.
func TestEveryTruncation(t *testing.T) {
	b, _ := record(t, 60, true)
	whole := 0
	for i := range len(b) + 1 {
		rec, err := Open(bytes.NewReader(b[:i]), int64(i))
		if err != nil {
			if !errors.Is(err, ErrForeign) {
				t.Fatalf("cut at %d: %v", i, err)
			}
			continue
		}
		if rec.End != nil {
			whole++
		}
		n := NewNames(rec)
		for _, th := range rec.Threads {
			rec.Replay(th.Seq, n, discard{})
		}
	}
	if whole == 0 {
		t.Fatal("not even the whole file has an end")
	}
}

func TestDamagedChunkIsPassedOver(t *testing.T) {
	b, _ := record(t, 3000, true)
	i := bytes.Index(b, []byte(chunkEvents))
	b[i+chunkHead+40] ^= 1
	rec := open(t, b)
	if rec.End == nil {
		t.Fatal("a damaged chunk hides what follows")
	}
	gaps := 0
	for _, th := range rec.Threads {
		for e := range rec.Events(th.Seq) {
			if e.Kind() == event.Gap {
				gaps++
				if e.Time < th.Since {
					t.Errorf("the gap is at %d, before the thread was taken up at %d", e.Time, th.Since)
				}
			}
		}
	}
	if gaps != 1 {
		t.Fatalf("%d gaps", gaps)
	}
	if len(rec.Problems) != 0 {
		t.Errorf("problems before they were looked for: %q", rec.Problems)
	}
	if rec.Verify(); len(rec.Problems) != 1 || !strings.Contains(rec.Problems[0], "checksum") {
		t.Errorf("problems: %q", rec.Problems)
	}
}

// A problem names the offset of its chunk once.
func TestProblemOffset(t *testing.T) {
	b, _ := record(t, 3000, true)
	i := bytes.Index(b, []byte(chunkMaps))
	b[i+chunkHead+4] ^= 1
	rec := open(t, b)
	if len(rec.Problems) == 0 || rec.Problems[0] != fmt.Sprintf("offset %d: chunk %s is damaged (checksum)", i, chunkMaps) {
		t.Errorf("problems: %q", rec.Problems)
	}
}

func TestForeignAndNewer(t *testing.T) {
	for _, s := range []string{"", "x", "\x7fELF", Magic} {
		if _, err := Open(bytes.NewReader([]byte(s)), int64(len(s))); !errors.Is(err, ErrForeign) {
			t.Errorf("%q: %v", s, err)
		}
	}
	b, _ := record(t, 3, true)
	binary.LittleEndian.PutUint16(b[len(Magic):], Major+1)
	if _, err := Open(bytes.NewReader(b), int64(len(b))); !errors.Is(err, ErrNewer) {
		t.Errorf("newer version: %v", err)
	}
	b, _ = record(t, 3, true)
	i := bytes.Index(b, []byte(chunkEnd))
	copy(b[i:], "ZZZZ")
	if _, err := Open(bytes.NewReader(b), int64(len(b))); !errors.Is(err, ErrNewer) {
		t.Errorf("unknown critical chunk: %v", err)
	}
	copy(b[i:], "zzzz")
	if rec := open(t, b); rec.End != nil {
		t.Error("an unknown chunk is not passed over")
	}
}

// TestOverwrittenIsCounted: a ring that is too small for the events between two drains
// loses some, counts them, and resumes at the next sync.
func TestOverwrittenIsCounted(t *testing.T) {
	var file bytes.Buffer
	w, _ := NewWriter(&file)
	r, err := NewRecorder(w, Process{PID: 1}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Thread(Thread{TID: 1, Since: 1})
	r.drainMu.Lock()
	for i := range 10_000 {
		pc := uint64(0x1000 + i%7*0x100)
		s.Sample(&stack.Sample{Time: stack.Time(1000 * (i + 1)), Stack: []stack.Frame{{Func: pc, PC: pc, CFA: 8, Exact: true}}})
	}
	r.drainMu.Unlock()
	st, err := r.Close(Stats{Threads: []ThreadStats{{TID: 1}}}, End{At: 1})
	if err != nil {
		t.Fatal(err)
	}
	rec := open(t, file.Bytes())
	var kept uint64
	gaps := 0
	for e := range rec.Events(0) {
		if e.Kind() == event.Gap {
			gaps++
			continue
		}
		kept++
	}
	if lost := st.Threads[0].Overwritten; lost == 0 || gaps != 1 || kept+lost != s.ring.Written() {
		t.Fatalf("kept %d + lost %d, written %d, %d gaps", kept, lost, s.ring.Written(), gaps)
	}
	if rec.Stats.Threads[0].Overwritten != st.Threads[0].Overwritten {
		t.Fatal("the file does not say what was lost")
	}
}

// TestDeepStack: stacks deeper than a ring's usual size are recorded whole.
func TestDeepStack(t *testing.T) {
	var file bytes.Buffer
	w, _ := NewWriter(&file)
	r, err := NewRecorder(w, Process{PID: 1}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Thread(Thread{TID: 1, Since: 1})
	const depth = 10_000
	st := make([]stack.Frame, depth)
	for i := range st {
		st[i] = stack.Frame{Func: uint64(i) + 1, PC: uint64(i) + 2, CFA: uint64(i) * 16}
	}
	for i := range 100 {
		st[0].PC = uint64(i + 1)
		s.Sample(&stack.Sample{Time: stack.Time(i+1) * 1000, Stack: st})
	}
	if _, err := r.Close(Stats{}, End{At: 1}); err != nil {
		t.Fatal(err)
	}
	rec := open(t, file.Bytes())
	sl := NewSlices(NewNames(rec), discard{})
	for e := range rec.Events(0) {
		sl.Apply(e)
		if e.Kind() == event.Gap {
			t.Fatal("lost events")
		}
	}
	if len(sl.Stack) != depth {
		t.Fatalf("depth %d", len(sl.Stack))
	}
}

type full struct{ left int }

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

func TestFullDisk(t *testing.T) {
	w, err := NewWriter(&full{left: 300})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	r, err := NewRecorder(w, Process{PID: 1}, 0, func(err error) { failed <- err })
	if err != nil {
		t.Fatal(err)
	}
	r.Capture(Captured{What: "perf-map", Data: make([]byte, 1000)})
	if err := <-failed; err == nil {
		t.Fatal("no failure told")
	}
	if _, err := r.Close(Stats{}, End{}); err == nil {
		t.Fatal("Close hides the failure")
	}
}

func TestNames(t *testing.T) {
	b, _ := record(t, 5, true)
	rec := open(t, b)
	n := NewNames(rec)
	exact := stack.Frame{PC: 0x1010, Exact: true}
	ret := stack.Frame{PC: 0x1011}
	a, r := n.Resolve(event.WordOf(&exact), 5), n.Resolve(event.WordOf(&ret), 5)
	if a != r || len(a.Frames) != 2 || n.Func(&a.Frames[0]).Name != "inl" || n.Func(&a.Frames[1]).Name != "main" {
		t.Fatalf("resolved %+v and %+v", a, r)
	}
	for _, c := range []struct {
		f    stack.Frame
		name string
	}{
		{stack.Frame{PC: 0x2000, Exact: true}, "x+0x401000"},
		{stack.Frame{PC: 0xa004, Exact: true}, "[anon]+0xa000"}, // one name for the code of a page
		{stack.Frame{PC: 0xffff0, Exact: true}, "[unknown]+0xffff0"},
		{stack.Frame{PC: uint64(stack.ReasonShort), Kind: stack.KindError}, "[stack copy too short]"},
	} {
		l := n.Resolve(event.WordOf(&c.f), 5)
		if got := n.Func(&l.Frames[0]).Name; got != c.name {
			t.Errorf("%+v: %q, want %q", c.f, got, c.name)
		}
	}
}

// sliceLog keeps finished slices as text.
type sliceLog struct {
	n   *Names
	out []string
}

func (l *sliceLog) Begin(t stack.Time, depth int, s *Slice) {
	l.out = append(l.out, fmt.Sprintf("%d +%d %s:%d", t, depth, l.n.Func(&s.Frame).Name, s.Frame.Line))
}
func (l *sliceLog) End(t stack.Time, depth int, s *Slice) {
	l.out = append(l.out, fmt.Sprintf("%d -%d %s:%d", t, depth, l.n.Func(&s.Frame).Name, s.Frame.Line))
}
func (l *sliceLog) Other(event.Event) {}

// TestInlinedSlices: inlined calls are slices. A move inside one keeps it; a move to
// another place of the caller ends it.
func TestInlinedSlices(t *testing.T) {
	var s Symbols
	f, g := s.FuncID(Func{Name: "f", Module: 0}), s.FuncID(Func{Name: "g", Module: 0})
	s.Set(LocKey{0, 1}, []LocFrame{{Func: g, Line: 20, Inlined: true}, {Func: f, Line: 5}})
	s.Set(LocKey{0, 2}, []LocFrame{{Func: g, Line: 21, Inlined: true}, {Func: f, Line: 5}})
	s.Set(LocKey{0, 3}, []LocFrame{{Func: g, Line: 20, Inlined: true}, {Func: f, Line: 6}})
	s.Set(LocKey{0, 4}, []LocFrame{{Func: f, Line: 7}})
	rec := &Recording{Symbols: &s, Modules: []Module{{Path: "m"}}, Maps: []Maps{{Mappings: []Mapping{{Start: 0, End: 100}}}}}
	log := &sliceLog{n: NewNames(rec)}
	sl := NewSlices(log.n, log)
	ev := func(t int, k event.Kind, pc uint64) {
		fr := stack.Frame{PC: pc, Exact: true}
		sl.Apply(event.Make(stack.Time(t), k, uint64(event.WordOf(&fr))))
	}
	sl.Apply(event.Make(1, event.Sync, 0))
	ev(1, event.Enter, 1)
	ev(2, event.Move, 2)
	ev(3, event.Move, 3)
	ev(4, event.Move, 4)
	sl.Close(9)
	want := []string{"1 +0 f:5", "1 +1 g:20", "3 -1 g:21", "3 +1 g:20", "4 -1 g:20", "9 -0 f:7"}
	if !slices.Equal(log.out, want) {
		t.Fatalf("got  %q\nwant %q", log.out, want)
	}
}

func FuzzOpen(f *testing.F) {
	b, _ := record(f, 20, true)
	f.Add(b)
	f.Add(recordSeveral(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		fixCRCs(b)
		rec, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		rec.Span()
		n := NewNames(rec)
		for _, th := range rec.Threads {
			rec.Replay(th.Seq, n, discard{})
			rec.Count(th.Seq)
		}
		rec.EachLoc(func(LocKey) {})
		from, to := rec.Span()
		var part bytes.Buffer
		if Cut(&part, rec, Part{From: from + (to-from)/3, To: to - (to-from)/3}) == nil && len(rec.Threads) > 0 {
			if _, err := Open(bytes.NewReader(part.Bytes()), int64(part.Len())); err != nil {
				t.Fatalf("a part cannot be read: %v", err)
			}
		}
		for _, l := range n.Locs() {
			for i := range l.Frames {
				if n.Func(&l.Frames[i]).Name == "" {
					t.Fatal("empty name")
				}
			}
		}
	})
}

// fixCRCs repairs the checksums of a mutated recording, so that the fuzzer gets past
// them.
func fixCRCs(b []byte) {
	for off := headerLen; off+chunkHead <= len(b); {
		n := int(binary.LittleEndian.Uint32(b[off+4:]))
		if n > len(b)-off-chunkHead || n < 0 {
			return
		}
		binary.LittleEndian.PutUint32(b[off+8:], chunkCRC(b[off:off+8], b[off+chunkHead:off+chunkHead+n]))
		off += chunkHead + n
	}
}

func BenchmarkDecode(b *testing.B) {
	file, _ := record(b, 20_000, true)
	rec := open(b, file)
	var n int
	b.ResetTimer()
	for n < b.N {
		for range rec.Events(0) {
			n++
		}
	}
	b.ReportMetric(float64(len(file))/float64(rec.Count(0)+rec.Count(1)), "bytes/event")
}

func BenchmarkReplay(b *testing.B) {
	file, _ := record(b, 20_000, true)
	rec := open(b, file)
	b.ResetTimer()
	for n := 0; n < b.N; n += int(rec.Count(0)) {
		rec.Replay(0, NewNames(rec), discard{})
	}
}

func BenchmarkSample(b *testing.B) {
	var file bytes.Buffer
	w, _ := NewWriter(&file)
	r, _ := NewRecorder(w, Process{PID: 1}, 0, nil)
	s := r.Thread(Thread{TID: 1})
	st := make([]stack.Frame, 30)
	for i := range st {
		st[i] = stack.Frame{Func: uint64(i) + 1, PC: uint64(i) + 2, CFA: uint64(i) * 16}
	}
	b.ReportAllocs()
	for i := range b.N {
		st[0].PC = uint64(i&0xff + 1)
		s.Sample(&stack.Sample{Time: stack.Time(i+1) * 1000, Stack: st})
	}
	r.Close(Stats{}, End{})
}

package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// newSections makes a file with sections in it.
func newSections(t testing.TB) (f *os.File, all *Sections, first *Section) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "several"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if all, first, err = NewSections(f); err != nil {
		t.Fatal(err)
	}
	return f, all, first
}

// recordSeveral records processes 10, 11 and 12 in turns, and 13 without events, and
// returns the file.
func recordSeveral(t testing.TB) []byte {
	t.Helper()
	f, all, first := newSections(t)
	parts := []*Section{first, all.Add(), all.Add(), all.Add()}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range parts {
		w := p.Writer()
		check(w.Process(Process{PID: 10 + i, Parent: 9 + i, Comm: fmt.Sprint("p", i), Interval: 1000}))
		check(w.Maps(Maps{Mappings: []Mapping{{Start: 0x1000, End: 0x9000}}}, 0, []Module{{Path: fmt.Sprint("/bin/p", i)}}))
		check(w.Thread(Thread{TID: stack.TID(10 + i), Name: fmt.Sprint("main of p", i), Main: true, Since: 1}))
	}
	for n := range 5 {
		for i, p := range parts[:3] {
			check(p.Writer().Events(0, []event.Event{event.Make(stack.Time(100*n+i+1), event.Rate, uint64(1000+i))}))
		}
	}
	for i, p := range parts {
		w := p.Writer()
		check(w.Stats(Stats{Threads: []ThreadStats{{TID: stack.TID(10 + i), Samples: 5}}}))
		check(w.End(End{At: 1000, Reason: "duration"}))
		if got := p.Written(); got != (i < 3) {
			t.Errorf("section %d is in the file: %v", i, got)
		}
		if i < 3 {
			rec, err := p.Open()
			check(err)
			if rec.Process.PID != 10+i || len(rec.Others) > 0 || rec.End == nil || rec.Count(0) != 5 {
				t.Errorf("section %d: %+v", i, rec.Process)
			}
		}
	}
	b, err := os.ReadFile(f.Name())
	check(err)
	return b
}

// TestOpenPlaces: a section that is opened with what its writer knows has the same places and times as one that is read.
func TestOpenPlaces(t *testing.T) {
	_, all, _ := newSections(t)
	x := all.Add()
	w := x.Writer()
	k := Known{Process: Process{PID: 10, Arch: "amd64"}, Modules: []Module{{Path: "/bin/a", BuildID: "aa", Segments: []Segment{{Vaddr: 0x1000, Size: 0x8000}}}, {Path: "[anon]"}},
		Maps: []Maps{{At: 0, Mappings: []Mapping{{Start: 0x1000, End: 0x9000}}}, {At: 50, Exec: true, Mappings: []Mapping{{Start: 0x1000, End: 0x3000, Module: 1}, {Start: 0x5000, End: 0x9000, Off: 0x2000}}}}}
	frame := func(t stack.Time, pc uint64) event.Event {
		return event.Make(t, event.Enter, uint64(event.WordOf(&stack.Frame{PC: pc})))
	}
	for _, err := range []error{w.Process(k.Process), w.Maps(k.Maps[0], 0, k.Modules[:1]), w.Maps(k.Maps[1], 1, k.Modules[1:]), w.Thread(Thread{TID: 10, Main: true, Since: 1}),
		w.Events(0, []event.Event{frame(10, 0x1234), frame(20, 0x2000), frame(60, 0x2000), frame(70, 0x6000)}), w.Stats(Stats{Threads: []ThreadStats{{TID: 10, Samples: 5}}}), w.End(End{At: 100})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	describe := func(rec *Recording, err error) string {
		if err != nil || len(rec.Problems) > 0 {
			t.Fatal(err, rec.Problems)
		}
		var places []string
		rec.EachLoc(func(k LocKey) { places = append(places, fmt.Sprintf("%d+%x", k.Module, k.Addr)) })
		slices.Sort(places)
		from, to := rec.Span()
		return fmt.Sprint(rec.Process.PID, rec.Process.Arch, rec.Modules, rec.Maps, places, from, to)
	}
	want, got := describe(x.Open()), describe(x.OpenPlaces(k))
	if got != want || strings.Count(want, "+") != 4 {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// sum describes all processes of rec.
func sum(rec *Recording) (out []string) {
	for _, one := range rec.All() {
		s := fmt.Sprintf("%d<%d %s %d modules", one.Process.PID, one.Process.Parent, one.Process.Comm, len(one.Modules))
		for _, th := range one.Threads {
			s += " " + th.Name + ":"
			for e := range one.Events(th.Seq) {
				s += fmt.Sprintf(" %d=%d", e.Time, e.Payload())
			}
		}
		if one.End != nil {
			s += " end"
		}
		out = append(out, s)
	}
	return out
}

func TestSections(t *testing.T) {
	b := recordSeveral(t)
	rec, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 3 {
		s := fmt.Sprintf("%d<%d p%d 1 modules main of p%[3]d:", 10+i, 9+i, i)
		for n := range 5 {
			s += fmt.Sprintf(" %d=%d", 100*n+i+1, 1000+i)
		}
		want = append(want, s+" end")
	}
	if got := sum(rec); !slices.Equal(got, want) || len(rec.Problems) > 0 {
		t.Errorf("got  %q\nwant %q\n%q", got, want, rec.Problems)
	}
	if from, to := rec.WholeSpan(); from != 1 || to != 1000 {
		t.Errorf("from %d to %d", from, to)
	}
	only := rec.Pick(func(p *Process) bool { return p.PID > 10 })
	if got := sum(only); !slices.Equal(got, want[1:]) {
		t.Errorf("picked %q", got)
	}
	if rec.Pick(func(*Process) bool { return false }) != nil {
		t.Error("a recording of no process")
	}
	for _, c := range []struct {
		name  string
		write func(io.Writer, *Recording) error
		want  []string
	}{
		{"copy", Copy, want}, {"cut", func(w io.Writer, rec *Recording) error { return Cut(w, rec, Part{}) }, want},
	} {
		var copied bytes.Buffer
		if err := c.write(&copied, rec); err != nil {
			t.Fatal(err)
		}
		again, err := Open(bytes.NewReader(copied.Bytes()), int64(copied.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if got := sum(again); !slices.Equal(got, c.want) {
			t.Errorf("%s: got  %q\nwant %q", c.name, got, c.want)
		}
	}
}

// A recorder that is killed leaves a beginning of the file: every process keeps its whole
// chunks.
func TestSectionsCutOff(t *testing.T) {
	b := recordSeveral(t)
	whole, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	most := map[int]uint64{}
	for n := headerLen; n <= len(b); n++ {
		rec, err := Open(bytes.NewReader(b[:n]), int64(n))
		if err != nil {
			if !errors.Is(err, ErrForeign) {
				t.Fatalf("%d bytes: %v", n, err)
			}
			continue
		}
		for i, one := range rec.All() {
			if one.Process.PID != whole.All()[i].Process.PID {
				t.Fatalf("%d bytes: process %d is %d", n, i, one.Process.PID)
			}
			if c := one.Count(0); c < most[i] {
				t.Fatalf("%d bytes: process %d has %d events, and had %d in less bytes", n, i, c, most[i])
			} else {
				most[i] = c
			}
		}
	}
	if most[2] != 5 {
		t.Errorf("%v events", most)
	}
}

// Chunks after a damaged SECT belong to no known process.
func TestSectionsDamaged(t *testing.T) {
	b := recordSeveral(t)
	at := bytes.LastIndex(b[:bytes.LastIndex(b, []byte(chunkSection))], []byte(chunkSection))
	b[at+chunkHead] ^= 1
	rec, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Problems) != 1 || !strings.Contains(rec.Problems[0], "SECT is damaged") {
		t.Errorf("problems: %q", rec.Problems)
	}
	ends := 0
	for _, one := range rec.All() {
		if one.End != nil {
			ends++
		}
	}
	if ends != 2 || len(rec.Others) != 2 {
		t.Errorf("%d processes, %d with an end", len(rec.Others)+1, ends)
	}
}

func TestLeftOut(t *testing.T) {
	l := &LeftOut{Seen: 20, Count: 10, Lost: 3, UsedNS: 2_000_400_000, CPUNS: 1_500_000_000}
	for i := range 7 {
		l.Processes = append(l.Processes, LeftProcess{PID: i, Name: "cc1", Why: "too short"})
	}
	l.Processes = append(l.Processes, LeftProcess{PID: 9, Name: "su", Why: "no permission", CPU: 1_260_000}, LeftProcess{PID: 10, Name: "su", Why: "no permission", CPU: 1_000_000})
	got := strings.Join(l.Lines(), "\n")
	for why, want := range map[string]string{"it ended before its first sample": "they ended before their first sample", "it has ended": "they have ended",
		"another program traces it": "another program traces them", "over the limit of 2 at once": "over the limit of 2 at once"} {
		if one, two := reasonOf(why, 1), reasonOf(why, 2); one != why || two != want {
			t.Errorf("%q is %q for one and %q for two", why, one, two)
		}
	}
	want := "7 processes not recorded (too short): cc1 (0), cc1 (1), cc1 (2), cc1 (3), cc1 (4) and 2 more\n" +
		"2 processes not recorded (no permission): su (9), su (10); 2.3ms of CPU time\n1 process more not recorded\n" +
		"a further 498ms of 2s of CPU time: used by processes that are not recorded, or by threads before their first sample or after their last one, or to end processes\n3 reports of new processes lost: some processes are missing"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if lines := (&LeftOut{UsedNS: 2e9, CPUNS: 1.995e9}).Lines(); lines != nil {
		t.Errorf("of 5 ms that are missing: %q", lines)
	}
	if lines := (&LeftOut{UsedNS: 2e9, CPUNS: 1.995e9, SampledNS: 1.5e9}).Lines(); len(lines) != 1 || !strings.HasPrefix(lines[0], "500ms of 2s of CPU time") {
		t.Errorf("of time that counters have and samples have not: %q", lines)
	}
	// The lines of processes have all of it: it is not stated a second time.
	short := &LeftOut{Count: 1, UsedNS: 11e6, CPUNS: 11e6, SampledNS: 9e6, Processes: []LeftProcess{{PID: 9, Name: "ls", Why: "too short", CPU: 2e6}}}
	if lines := short.Lines(); len(lines) != 1 || lines[0] != "1 process not recorded (too short): ls (9); 2ms of CPU time" {
		t.Errorf("of a process that is left out: %q", lines)
	}
	if (*LeftOut)(nil).Lines() != nil {
		t.Error("lines of nothing")
	}
}

// The CPU time of a process is by the kernel's account at its end, if that has more than the samples.
func TestCPUOfProcess(t *testing.T) {
	for _, c := range []struct {
		end  *End
		want int64
	}{{nil, 12}, {&End{}, 12}, {&End{CPU: 11}, 12}, {&End{CPU: 20}, 20}} {
		rec := &Recording{End: c.end}
		rec.Stats.Threads = []stack.ThreadStats{{CPUNS: 5}, {CPUNS: 7}}
		if got := rec.CPU(); got != c.want {
			t.Errorf("%+v: %d ns, want %d", c.end, got, c.want)
		}
	}
}

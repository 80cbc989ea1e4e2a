package perfetto

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

const ms = exporttest.Ms

// calls is a query for all slices that are calls.
const calls = `select tid, ts, dur, s.name as name, depth + case when k.name is null then 0 else cast(substr(k.name, 18) as int) end depth
	from slice s join thread_track k on s.track_id = k.id join thread t using (utid)
	where (k.type = 'thread_execution' or k.name like 'calls from depth %') and (s.category is null or s.category != 'sliver')`

func export(t testing.TB, rec *trace.Recording, o view.Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, rec, o); err != nil {
		t.Fatal(err)
	}
	return exporttest.File(t, "x.pftrace", b.Bytes())
}

// read converts the rows of the query calls.
func read(rec *trace.Recording, rows []exporttest.Row) []exporttest.Call {
	seq := map[int64]int{}
	for _, t := range rec.Threads {
		seq[int64(t.TID)] = t.Seq
	}
	var out []exporttest.Call
	for _, r := range rows {
		out = append(out, exporttest.Call{Thread: seq[r.Int("tid")], Name: r.Text("name"), Depth: int(r.Int("depth")),
			Begin: r.Int("ts"), End: r.Int("ts") + r.Int("dur")})
	}
	return out
}

func TestReaderSeesTheReplay(t *testing.T) {
	for name, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 30_000, 3),
		"contended": exporttest.Contended(t, 30_000, 3)} {
		t.Run(name, func(t *testing.T) {
			rows := exporttest.Ask(t, export(t, rec, view.Options{}), calls)
			exporttest.Match(t, exporttest.Calls(rec), read(rec, rows[0]))
		})
	}
}

// A kernel frame is on top of the calls as long as the state lasts.
func TestKernel(t *testing.T) {
	rec := exporttest.Sample(t)
	a := exporttest.Ask(t, export(t, rec, view.Options{Kernel: true}),
		`select t.name thread, s.ts - 5000000000 ts, s.dur, s.depth, s.name from slice s join thread_track k on k.id = s.track_id join thread t using (utid)
			where s.name glob '[[]kernel*' order by ts`,
	)
	var got []string
	for _, r := range a[0] {
		got = append(got, fmt.Sprintf("%s %d+%d %d %s", r.Text("thread"), r.Int("ts")/ms, r.Int("dur")/ms, r.Int("depth"), r.Text("name")))
	}
	want := "server 30+60 3 [kernel] epoll_wait, worker-1 65+10 3 [kernel] futex"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
}

func TestGolden(t *testing.T) {
	rec := exporttest.Sample(t)
	a := exporttest.Ask(t, export(t, rec, view.Options{}),
		`select coalesce(t.name, p.name) who, coalesce(k.name, k.type) track, s.ts - 5000000000 ts, s.dur, s.depth, s.name, s.category,
			extract_arg(s.arg_set_id, 'source.file_name') file, extract_arg(s.arg_set_id, 'source.line_number') line,
			extract_arg(s.arg_set_id, 'debug.module') module, extract_arg(s.arg_set_id, 'debug.missing_ns') missing,
			extract_arg(s.arg_set_id, 'debug.interval_ns') interval, extract_arg(s.arg_set_id, 'debug.lock') lock,
			extract_arg(s.arg_set_id, 'debug.holder') holder, extract_arg(s.arg_set_id, 'debug.cpu_us') cpu, extract_arg(s.arg_set_id, 'debug.switches') switches
			from slice s join track k on k.id = s.track_id left join thread_track tt on tt.id = k.id left join thread t using (utid)
			left join process_track pt on pt.id = k.id left join process p on p.upid = pt.upid order by who, track, ts, depth`,
		`select k.name track, t.name thread, k.unit, c.ts - 5000000000 ts, c.value from counter c join thread_counter_track k on k.id = c.track_id
			join thread t using (utid) order by track, thread, ts`,
		`with recursive up(id, at, depth, text) as (
			select p.id, callsite_id, 0, '' from perf_sample p
			union all select up.id, c.parent_id, up.depth + 1,
				coalesce(sym.name, f.name) || coalesce(' ' || sym.source_file || ':' || sym.line_number, '') || ' ' || m.name || '+' || printf('%x', f.rel_pc) || x'0a' || '    ' || text
				from up join stack_profile_callsite c on c.id = up.at join stack_profile_frame f on f.id = c.frame_id
				join stack_profile_mapping m on m.id = f.mapping left join stack_profile_symbol sym on sym.symbol_set_id = f.symbol_set_id)
			select t.name thread, p.ts - 5000000000 ts, text from up join perf_sample p using (id) join thread t using (utid) where at is null order by thread, ts`,
		`select tid, name, is_main_thread main from thread where upid = 1 order by utid`,
		`select name, build_id, start, end, exact_offset off from stack_profile_mapping order by name`,
		`select key, display_value value from args where arg_set_id = (select arg_set_id from slice where name like 'recording%') and key like 'debug%' order by key`,
		`select name, str_value value from metadata where name like 'system%' order by name`,
		`select clock_name, clock_value from clock_snapshot where snapshot_id = 0 order by clock_name`,
	)
	var b strings.Builder
	show := func(title string, rows []exporttest.Row, cols ...string) {
		fmt.Fprintf(&b, "== %s\n", title)
		for _, r := range rows {
			for i, c := range cols {
				if i > 0 {
					b.WriteString(" | ")
				}
				if r[c] == nil {
					b.WriteString("-")
				} else {
					fmt.Fprint(&b, r[c])
				}
			}
			b.WriteByte('\n')
		}
	}
	show("slices: ts, dur in ns", a[0], "who", "track", "ts", "dur", "depth", "name", "category", "file", "line", "module", "missing", "interval", "lock", "holder", "cpu", "switches")
	show("counters", a[1], "track", "thread", "unit", "ts", "value")
	show("callstack samples, innermost last", a[2], "thread", "ts", "text")
	show("threads", a[3], "tid", "name", "main")
	show("mappings", a[4], "name", "build_id", "start", "end", "off")
	show("recording", a[5], "key", "value")
	show("machine", a[6], "name", "value")
	show("clocks", a[7], "clock_name", "clock_value")
	exporttest.Golden(t, "sample.golden", b.String())
}

// Every interval of CPU time is one sample, whatever the sampling times.
func TestSamplesCountCPUTime(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(100) {
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 3 * ms, State: stack.StateRunning, Stack: fmt.Sprintf("main:1 work:%d", 1+i%3)})
	}
	idle := b.Thread(1235, "idle")
	for i := range int64(100) {
		idle.Look(exporttest.Look{At: i * 10 * ms, CPU: 5 * ms, State: stack.StateBlocked, Stack: "main:1 libwait:1"})
	}
	// On a kernel that does not account CPU time, each running observation is a sample.
	blind := b.Thread(1236, "blind")
	for i := range int64(100) {
		s := stack.StateBlocked
		if i%4 == 0 {
			s = stack.StateRunning
		}
		blind.Look(exporttest.Look{At: i * 10 * ms, CPU: -1, State: s, Stack: "main:1 work:1"})
	}
	a := exporttest.Ask(t, export(t, b.Finish(1000*ms), view.Options{}), `select t.name, count(*) n from perf_sample join thread t using (utid) group by 1 order by 1`,
		`select count(distinct perf_session_id) n from perf_sample`)
	got := fmt.Sprint(a[0])
	if want := "[map[n:24 name:blind] map[n:29 name:main]]"; got != want { // 25 less the first; 99 × 3 ms
		t.Errorf("samples: %s, want %s", got, want)
	}
	if a[1][0].Int("n") != 1 {
		t.Errorf("%d sessions of samples, want 1", a[1][0].Int("n"))
	}
}

func TestRangeAndThreads(t *testing.T) {
	rec := exporttest.Sample(t)
	from, to := exporttest.Start+25*ms, exporttest.Start+95*ms
	a := exporttest.Ask(t, export(t, rec, view.Options{Threads: []int{0}, From: from, To: to}), calls,
		`select s.name, ts from slice s join thread_track k on k.id = s.track_id where k.name = 'state' order by ts limit 1`,
		`select count(*) n from thread where upid = 1`)
	var want []exporttest.Call
	for _, c := range exporttest.Calls(rec) {
		c.Begin, c.End = max(c.Begin, int64(from)), min(c.End, int64(to))
		if c.Thread == 0 && c.Begin < c.End {
			want = append(want, c)
		}
	}
	exporttest.Match(t, want, read(rec, a[0]))
	if r := a[1][0]; r.Text("name") != "running" || r.Int("ts") != int64(from)+5*ms && r.Int("ts") != int64(from) {
		t.Errorf("first state: %v", r)
	}
	if n := a[2][0].Int("n"); n != 1 {
		t.Errorf("%d threads, want 1", n)
	}
}

func TestHostileNames(t *testing.T) {
	rec := exporttest.Hostile(t)
	rows := exporttest.Ask(t, export(t, rec, view.Options{}), calls)[0]
	want := exporttest.Calls(rec)
	for i := range want {
		want[i].Name = view.Text(want[i].Name, view.MaxName)
	}
	exporttest.Match(t, want, read(rec, rows))
}

// A TID that the kernel reuses, and TIDs that no kernel assigns.
func TestThreadNumbers(t *testing.T) {
	b := exporttest.New(t)
	for i, tid := range []int{1234, 77, 77, 0, -5, 1 << 30} {
		th := b.Thread(tid, fmt.Sprintf("t%d", i))
		at := int64(i) * 100 * ms
		th.Look(exporttest.Look{At: at, CPU: 0, State: stack.StateRunning, Stack: fmt.Sprintf("main:1 f%d:2", i)})
		th.Look(exporttest.Look{At: at + 50*ms, CPU: 40 * ms, State: stack.StateRunning, Stack: fmt.Sprintf("main:1 f%d:2", i)})
		th.End(at+60*ms, stack.WhyGone)
	}
	rec := b.Finish(700 * ms)
	rows := exporttest.Ask(t, export(t, rec, view.Options{}),
		`select t.name as thread, s.name as name, s.dur from slice s join thread_track k on k.id = s.track_id join thread t using (utid) where s.name like 'f%' order by ts`)[0]
	if len(rows) != 6 {
		t.Fatalf("%d slices, want 6: %v", len(rows), rows)
	}
	for i, r := range rows {
		if r.Text("thread") != fmt.Sprintf("t%d", i) || r.Text("name") != fmt.Sprintf("f%d", i) || r.Int("dur") != 60*ms {
			t.Errorf("thread %d: %v", i, r)
		}
	}
}

// A truncated recording leaves no open slices in the reader.
func TestCutOff(t *testing.T) {
	b := exporttest.New(t)
	b.Cut = true
	th := b.Thread(1234, "main")
	th.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1 work:1"})
	th.Look(exporttest.Look{At: 30 * ms, State: stack.StateRunning, Stack: "main:1 work:1"})
	rec := b.Finish(0)
	a := exporttest.Ask(t, export(t, rec, view.Options{}), calls, `select count(*) n from slice where dur < 0`,
		`select display_value v from args where key = 'debug.ended'`)
	exporttest.Match(t, exporttest.Calls(rec), read(rec, a[0]))
	if a[1][0].Int("n") != 0 || len(a[2]) != 1 || a[2][0].Text("v") != "cut off" {
		t.Errorf("open slices %v, ended %v", a[1], a[2])
	}
}

// Stacks as deep as real programs make them, with more callstacks than the reader keeps
// at once.
func TestDeepAndMany(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	var st []string
	for i := range 3000 {
		st = append(st, fmt.Sprintf("f%d:%d", i%90, 1+i%5))
	}
	for i := range int64(40) {
		th.LookAt(exporttest.Look{At: i * 10 * ms, CPU: i * 10 * ms, State: stack.StateRunning}, st[:3000-i*50]...)
	}
	rec := b.Finish(400 * ms)
	a := exporttest.Ask(t, export(t, rec, view.Options{}), calls, `select count(*) n, max(c.depth) depth from perf_sample p join stack_profile_callsite c on c.id = p.callsite_id`)
	exporttest.Match(t, exporttest.Calls(rec), read(rec, a[0]))
	if r := a[1][0]; r.Int("n") != 39 || r.Int("depth") != maxCallstack-1 {
		t.Errorf("callstack samples: %v", r)
	}
}

func TestForgetting(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i := range int64(60) {
		th.Look(exporttest.Look{At: i * 10 * ms, CPU: i * 10 * ms, State: stack.StateRunning, Stack: fmt.Sprintf("main:1 f%d:%d g%d:2", i%7, 1+i%5, i%3)})
	}
	rec := b.Finish(600 * ms)
	var out bytes.Buffer
	if _, err := writeBounded(&out, rec, view.Options{}, true, 20); err != nil {
		t.Fatal(err)
	}
	cleared := 0
	packets(t, out.Bytes(), func(f protowire.Number, v uint64) {
		if f == packetSequenceFlags && v == flagStateCleared {
			cleared++
		}
	})
	if cleared < 5 {
		t.Errorf("state was cleared %d times, want more", cleared)
	}
	a := exporttest.Ask(t, exporttest.File(t, "x.pftrace", out.Bytes()), `select count(*) n from perf_sample`,
		`select f.name, count(*) n from perf_sample p join stack_profile_callsite c on c.id = p.callsite_id join stack_profile_frame f on f.id = c.frame_id group by 1 order by 1`)
	if got := fmt.Sprint(a); got != "[[map[n:59]] [map[n:19 name:g0] map[n:20 name:g1] map[n:20 name:g2]]]" {
		t.Error(got)
	}
}

// packets yields the number fields of all packets of an uncompressed trace.
func packets(t testing.TB, b []byte, yield func(f protowire.Number, v uint64)) {
	t.Helper()
	for len(b) > 0 {
		_, _, n := protowire.ConsumeTag(b)
		p, m := protowire.ConsumeBytes(b[n:])
		if n < 0 || m < 0 {
			t.Fatal("not a trace")
		}
		b = b[n+m:]
		for len(p) > 0 {
			f, typ, n := protowire.ConsumeTag(p)
			m := protowire.ConsumeFieldValue(f, typ, p[n:])
			if n < 0 || m < 0 {
				t.Fatal("not a packet")
			}
			if typ == protowire.VarintType {
				v, _ := protowire.ConsumeVarint(p[n:])
				yield(f, v)
			}
			p = p[n+m:]
		}
	}
}

func TestMessageLengths(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 200, 16383, 16384, 70000} {
		var m message
		a := m.open(2)
		b := m.open(66)
		m.bytes(3, make([]byte, n))
		m.end(b)
		m.uint(1, 7)
		m.end(a)
		f, _, k := protowire.ConsumeTag(m.b)
		in, k2 := protowire.ConsumeBytes(m.b[k:])
		if f != 2 || k+k2 != len(m.b) {
			t.Fatalf("%d: outer message is %d long of %d", n, k+k2, len(m.b))
		}
		_, _, k = protowire.ConsumeTag(in)
		x, k2 := protowire.ConsumeBytes(in[k:])
		_, _, k3 := protowire.ConsumeTag(x)
		y, _ := protowire.ConsumeBytes(x[k3:])
		if len(y) != n || !bytes.Equal(in[k+k2:], []byte{8, 7}) {
			t.Fatalf("%d: inner message is %d long, then % x", n, len(y), in[k+k2:])
		}
	}
}

// At most seventeen bytes an event before compression.
func TestSize(t *testing.T) {
	rec := exporttest.Big(t, 200_000, 4)
	events := uint64(0)
	for _, th := range rec.Threads {
		events += rec.Count(th.Seq)
	}
	raw, err := write(io.Discard, rec, view.Options{}, false)
	if err != nil {
		t.Fatal(err)
	}
	if per := float64(raw) / float64(events); per > 17 {
		t.Errorf("%.1f bytes an event, want 17 at most", per)
	}
}

// A lock wait stays small too: a slice with its details, an arrow and a piece of a lane.
func TestWaitSize(t *testing.T) {
	size := func(rec *trace.Recording) (raw, waits int64) {
		raw, err := write(io.Discard, rec, view.Options{}, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range rec.Threads {
			for e := range rec.Events(th.Seq) {
				if e.Kind() == event.Lock {
					waits++
				}
			}
		}
		return raw, waits
	}
	without, _ := size(exporttest.Big(t, 100_000, 4))
	with, waits := size(exporttest.Contended(t, 100_000, 4))
	if per := (with - without) / max(waits, 1); waits < 1000 || per > 160 {
		t.Errorf("%d waits of %d bytes each, want 160 at most", waits, per)
	}
}

func TestWriteError(t *testing.T) {
	rec := exporttest.Big(t, 50_000, 2)
	if err := Write(&broken{left: 1000}, rec, view.Options{}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want that the disk is full", err)
	}
}

type broken struct{ left int }

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, fmt.Errorf("disk full")
	}
	return len(p), nil
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		rec := exporttest.Raw(t, data)
		var b bytes.Buffer
		if err := WritePlain(&b, rec, view.Options{}); err != nil {
			t.Fatal(err)
		}
		packets(t, b.Bytes(), func(protowire.Number, uint64) {})
		if err := WritePlain(&b, rec, view.Options{From: exporttest.Start + 5*ms, To: exporttest.Start + 50*ms}); err != nil {
			t.Fatal(err)
		}
	})
}

// Runs the fuzz seeds and random data through the real reader.
func TestNonsense(t *testing.T) {
	b := exporttest.New(t)
	for i := range 40 {
		th := b.Thread(1234+i, "chance")
		x := uint64(i)*0x9e3779b97f4a7c15 + 1
		for range 60 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			k := event.Kind(x % 14)
			p := x >> 8
			if k == event.Sync {
				p &= 3
			}
			th.Raw(event.Make(exporttest.Start+stack.Time(x%(1<<40))-1<<39, k, p))
		}
	}
	rec := b.Finish(100 * ms)
	a := exporttest.Ask(t, export(t, rec, view.Options{}), `select count(*) n from slice`, `select count(*) n from slice where dur < 0`)
	if a[0][0].Int("n") == 0 || a[1][0].Int("n") != 0 {
		t.Errorf("slices: %v, open: %v", a[0], a[1])
	}
}

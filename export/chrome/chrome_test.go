package chrome

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/trace"
)

type file struct {
	TraceEvents []struct {
		Ph, Name string
		Ts       json.Number
		ID       any `json:"id"`
		Pid, Tid int
		Args     map[string]any
	}
	OtherData map[string]string
}

func export(t testing.TB, rec *trace.Recording, o view.Options) ([]byte, *file) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, rec, o); err != nil {
		t.Fatal(err)
	}
	var f file
	if err := json.Unmarshal(b.Bytes(), &f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), &f
}

const calls = `select tid, ts, dur, s.name as name, depth from slice s join thread_track k on s.track_id = k.id join thread t using (utid)
	where s.category = 'call'`

func TestReaderSeesTheReplay(t *testing.T) {
	for what, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 30_000, 3), "hostile": exporttest.Hostile(t)} {
		t.Run(what, func(t *testing.T) {
			b, _ := export(t, rec, view.Options{})
			if bytes.ContainsAny(b, "<>\x00\x1b") {
				t.Error("the file has characters that markup is made of")
			}
			base := int64(view.New(rec, view.Options{}).Begin())
			seq := map[int64]int{}
			for _, th := range rec.Threads {
				seq[int64(th.TID)] = th.Seq
			}
			rows := exporttest.Ask(t, exporttest.File(t, "x.json", b), calls)[0]
			var got []exporttest.Call
			for _, r := range rows {
				got = append(got, exporttest.Call{Thread: seq[r.Int("tid")], Name: r.Text("name"), Depth: int(r.Int("depth")), Begin: base + r.Int("ts"), End: base + r.Int("ts") + r.Int("dur")})
			}
			want := exporttest.Calls(rec)
			for i := range want {
				want[i].Name = view.Text(want[i].Name, view.MaxName)
			}
			exporttest.Match(t, want, got)
		})
	}
}

func TestGolden(t *testing.T) {
	b, f := export(t, exporttest.Sample(t), view.Options{})
	if f.OtherData["late"] != "2" {
		t.Errorf("other data %v", f.OtherData)
	}
	exporttest.Golden(t, "sample.golden", string(b))
	a := exporttest.Ask(t, exporttest.File(t, "x.json", b),
		`select t.name thread, tid, is_main_thread main from thread t where tid > 0 order by tid`,
		`select s.name, ts, dur from slice s where category = 'sliver' and dur > 0 order by ts, s.id`,
		`select extract_arg(arg_set_id, 'args.file') file, extract_arg(arg_set_id, 'args.line') line, extract_arg(arg_set_id, 'args.module') module from slice where name = 'libpoll'`,
		`select extract_arg(arg_set_id, 'args.waits_for') what, extract_arg(arg_set_id, 'args.holder') holder, extract_arg(arg_set_id, 'args.holder_known_by') known,
			extract_arg(arg_set_id, 'args.call') call from slice where name = 'blocked: futex'`,
		`select s.name from flow f join slice s on s.id in (f.slice_out, f.slice_in) order by 1`) // v55 reverses arrows
	if got := fmt.Sprint(a[0]); got != "[map[main:1 name:<nil> thread:server tid:1234] map[main:0 thread:worker-1 tid:1240]]" && !strings.Contains(got, "worker-1") {
		t.Error(got)
	}
	if len(a[1]) < 6 || !slices.ContainsFunc(a[1], func(r exporttest.Row) bool { return r.Text("name") == "blocked: epoll_wait" }) {
		t.Errorf("states %v", a[1])
	}
	if r := a[2][0]; r.Text("file") != "/src/libpoll.c" || r.Int("line") != 9 || r.Text("module") != "/usr/lib/libwork.so.1" {
		t.Errorf("args %v", r)
	}
	if r := a[3]; len(r) != 1 || r[0].Text("what") != "mutex cache_lock" || r[0].Text("holder") != "server (1234)" || r[0].Text("known") != "lock word" || r[0].Text("call") != "futex" {
		t.Errorf("wait %v", r)
	}
	if r := a[4]; len(r) != 2 || r[0].Text("name") != "liblock" || r[1].Text("name") != "libpoll" {
		t.Errorf("arrows %v", r)
	}
}

// A gap has the length that it had in the recording. Adjacent gaps with one reason are
// merged, and none overlaps another. Gaps are not among the calls.
func TestGapsHaveTheirLength(t *testing.T) {
	data, _ := export(t, exporttest.Gaps(t), view.Options{})
	a := exporttest.Ask(t, exporttest.File(t, "x.json", data),
		`select s.ts / 1000000 ts, s.dur / 1000000 dur, s.name, extract_arg(s.arg_set_id, 'args.gaps') gaps, extract_arg(s.arg_set_id, 'args.missing_ns') / 1000000 missing
			from slice s where s.name glob 'gap*' order by gaps is null, s.ts, s.id`,
		`select count(*) n from slice s join thread_track k on k.id = s.track_id where s.name glob 'gap*'`,
		`select count(*) n from slice s where s.name glob 'gap*' and s.dur <= 0`)
	var got []string
	for _, r := range a[0] {
		got = append(got, fmt.Sprintf("%d+%d %s %d of %d", r.Int("ts"), r.Int("dur"), r.Text("name"), r.Int("gaps"), r.Int("missing")))
	}
	slices.Sort(got)
	want := "0+10 gap: late 1 of 70368744, 10+20 gap: late 2 of 20, 40+10 gap: late 1 of 10, 50+5 gap: denied 1 of 30" // from the first tick, at 10 ms
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	if a[1][0].Int("n") != 0 || a[2][0].Int("n") != 0 {
		t.Errorf("%d among the calls, %d without a length", a[1][0].Int("n"), a[2][0].Int("n"))
	}
}

func FuzzWrite(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, p := export(t, exporttest.Raw(t, data), view.Options{})
		depth := 0
		for _, e := range p.TraceEvents {
			switch e.Ph {
			case "B":
				depth++
			case "E":
				depth--
			}
			if depth < 0 || strings.HasPrefix(e.Ts.String(), "-") {
				t.Fatalf("event %+v at depth %d", e, depth)
			}
		}
		if depth != 0 {
			t.Fatalf("%d calls left open", depth)
		}
	})
}

func BenchmarkWrite(b *testing.B) { exporttest.Throughput(b, Write) }

// Several processes have their own tracks and IDs.
func TestSeveral(t *testing.T) {
	rec := exporttest.Several(t)
	b, f := export(t, rec, view.Options{})
	base := int64(view.New(rec, view.Options{}).Begin())
	rows := exporttest.Ask(t, exporttest.File(t, "x.json", b), calls,
		`select pid, p.name as process, count(distinct tid) as threads from process p join thread t using (upid) where pid > 0 group by 1, 2 order by pid`)
	var first, second []exporttest.Call
	for _, r := range rows[0] {
		c := exporttest.Call{Name: r.Text("name"), Depth: int(r.Int("depth")), Begin: base + r.Int("ts"), End: base + r.Int("ts") + r.Int("dur")}
		if r.Int("tid") == 900 {
			second = append(second, c)
			continue
		}
		for _, th := range rec.Threads {
			if int64(th.TID) == r.Int("tid") {
				c.Thread = th.Seq
			}
		}
		first = append(first, c)
	}
	exporttest.Match(t, exporttest.Calls(rec), first)
	exporttest.Match(t, exporttest.Calls(rec.Others[0]), second)
	if got, want := fmt.Sprint(rows[1]), fmt.Sprintf("[map[pid:900 process:worker threads:1] map[pid:1234 process:server threads:%d]]", len(rec.Threads)); got != want {
		t.Errorf("processes %s, want %s", got, want)
	}
	of := map[string]int{} // the process of each asynchronous ID
	for _, e := range f.TraceEvents {
		if e.Ph != "b" {
			continue
		}
		id := fmt.Sprint(e.ID)
		if pid, ok := of[id]; ok && pid != e.Pid {
			t.Errorf("ID %s belongs to the processes %d and %d", id, pid, e.Pid)
		}
		of[id] = e.Pid
	}
	if len(of) < 3 {
		t.Errorf("IDs %v", of)
	}
}

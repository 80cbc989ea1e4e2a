package query

//sliver:layer unit unraced

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

func answer(t testing.TB, rec *trace.Recording, o view.Options, format, question string) (string, error) {
	t.Helper()
	db, err := Open(context.Background(), rec, o, question)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Rows(context.Background(), question)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	_, err = Write(&b, rows, format)
	return b.String(), err
}

func must(t testing.TB, rec *trace.Recording, o view.Options, format, question string) string {
	t.Helper()
	s, err := answer(t, rec, o, format, question)
	if err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return s
}

// Compares every table of a small recording, as text, with the golden.
func TestGolden(t *testing.T) {
	rec := waiting(t)
	var b strings.Builder
	for _, x := range Tables() {
		b.WriteString("-- " + x.Name + "\n" + must(t, rec, view.Options{}, "table", "select * from "+x.Name) + "\n")
	}
	exporttest.Golden(t, "tables.txt", b.String())
	exporttest.Golden(t, "threads.csv", must(t, rec, view.Options{}, "csv", "select * from threads"))
	exporttest.Golden(t, "slices.json", must(t, rec, view.Options{}, "json", "select * from slices where depth < 2"))
}

// Slices carry the kind of runtime, so that a question can select one language.
func TestKinds(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(11, "x")
	for at := int64(0); at < 40; at += 10 {
		th.Look(exporttest.Look{At: at * exporttest.Ms, State: stack.StateRunning, Stack: "main:1 py.run:2 native_call:3 java.Shop.handle:4"})
	}
	got := must(t, b.Finish(40*exporttest.Ms), view.Options{}, "csv", "select name, kind from slices s join functions f on f.id = s.function order by depth")
	if want := "name,kind\nmain,native\npy.run,python\nnative_call,native\njava.Shop.handle,java\n"; strings.ReplaceAll(got, "\r", "") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// After lost events nothing is known until the next full stack. Other gaps are clipped to
// the selected range.
func TestGaps(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	m := b.Thread(1234, "main")
	m.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1 hold:2"})
	m.Gap(20*ms, stack.WhyBudget, 10*ms)
	m.Lose(30 * ms)
	m.Look(exporttest.Look{At: 50 * ms, CPU: 30 * ms, State: stack.StateRunning, Stack: "main:1 hold:2"})
	m.Sync()
	m.Gap(90*ms, stack.WhyLate, 30*ms)
	m.Look(exporttest.Look{At: 90 * ms, CPU: 30 * ms, State: stack.StateRunning, Stack: "main:1"})
	rec := b.Finish(100 * ms)
	const question = "select ts/1000000 at, dur/1000000 ms, why from gaps order by ts"
	want := "at,ms,why\n10,10,overhead budget\n30,20,overwritten\n60,30,late\n"
	if got := must(t, rec, view.Options{}, "csv", question); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := must(t, rec, view.Options{From: exporttest.Start + 75*stack.Time(ms)}, "csv", question); got != "at,ms,why\n75,15,late\n" {
		t.Errorf("from 75 ms on: %q", got)
	}
}

// waiting returns a recording with a thread that waits for a lock held by another thread.
func waiting(t testing.TB) *trace.Recording {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	lock := b.Wait(trace.Wait{Call: "futex", Kind: "lock", Symbol: "cache_lock", Args: "mutex"})
	file := b.Wait(trace.Wait{Call: "read", Kind: "io", File: "/var/lib/data"})
	m := b.Thread(1234, "main")
	m.Look(exporttest.Look{At: 0, State: stack.StateRunning, Pause: 1000, Stack: "main:1 hold:2"})
	m.Look(exporttest.Look{At: 40 * ms, CPU: 30 * ms, State: stack.StateBlocked, Call: 1, Stack: "main:1 read:3"})
	m.Event(40*ms, event.Wait, file)
	m.Look(exporttest.Look{At: 60 * ms, CPU: 30 * ms, State: stack.StateRunning, Stack: "main:1"})
	w := b.Thread(1235, "worker")
	w.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main:1 work:2"})
	w.Look(exporttest.Look{At: 10 * ms, CPU: 5 * ms, State: stack.StateBlocked, Call: 203, Stack: "main:1 work:2 lock:4"})
	w.Event(10*ms, event.Wait, lock)
	w.Event(10*ms, event.Lock, 0xcafe0)
	w.Event(10*ms, event.Holder, event.HolderOf(1234, event.KnownByWord))
	w.Look(exporttest.Look{At: 40 * ms, CPU: 5 * ms, State: stack.StateRunning, Stack: "main:1 work:2"})
	w.Event(40*ms, event.Wait, 0)
	w.Event(40*ms, event.Lock, 0)
	w.Gap(55*ms, stack.WhyLate, 10*ms)
	w.Look(exporttest.Look{At: 60 * ms, CPU: 25 * ms, State: stack.StateRunning, Stack: "main:1 work:2"})
	return b.Finish(60 * ms)
}

// The slices in the database equal those of the replay.
// Waits for files with alike names, such as temporary ones, are one row of hot_waits, and each is in waits.
func TestHotFiles(t *testing.T) {
	b := exporttest.New(t)
	th := b.Thread(1234, "main")
	for i, name := range []string{"/tmp/tmp49vnubxd", "/tmp/tmpy3vzf9v8", "/tmp/tmpca14hsj_", "/tmp/tmp6f286tf8", "/var/db", "/tmp/tmpqori960n", "/tmp/tmpa88ygtd0", "/tmp/tmpstle8mz5", "/tmp/tmpjqjopb6x"} {
		at := int64(i) * 10e6
		id := b.Wait(trace.Wait{Call: "fsync", Args: "3 " + name, File: name, Kind: "file"})
		th.Look(exporttest.Look{At: at, State: stack.StateBlocked, Call: 74, Times: uint64(2*i + 1), Stack: "main:1 fsync:1"})
		th.Event(at, event.Wait, id)
		th.Look(exporttest.Look{At: at + 5e6, State: stack.StateRunning, Times: uint64(2*i + 2), Stack: "main:1 crunch:1"})
	}
	rec := b.Finish(90e6)
	if got := must(t, rec, view.Options{}, "csv", "select file, count, dur/1000000 as ms from hot_waits"); got != "file,count,ms\n/tmp/tmp*,8,40\n/var/db,1,5\n" {
		t.Errorf("hot_waits: %s", got)
	}
	if got := must(t, rec, view.Options{}, "csv", "select file, files from waits where file like '%49v%' or file = '/var/db' order by 1"); got != "file,files\n/tmp/tmp49vnubxd,/tmp/tmp*\n/var/db,/var/db\n" {
		t.Errorf("waits: %s", got)
	}
}

// Idle waits of pool threads are in waits, marked, and not in hot_waits.
func TestIdleWaits(t *testing.T) {
	b := exporttest.New(t)
	disk := b.Wait(trace.Wait{Call: "read", Args: "3 /var/db, 4096 bytes", File: "/var/db", Kind: "file"})
	cond := b.Wait(trace.Wait{Call: "futex", Args: "condition variable work_cv", Kind: "lock", Lock: "condition variable", KnownBy: "function", Symbol: "work_cv"})
	main := b.Thread(1234, "main")
	main.Look(exporttest.Look{At: 0, State: stack.StateBlocked, Call: 1, Times: 1, Stack: "main:1 load:2 read:1"})
	main.Event(0, event.Wait, disk)
	main.Look(exporttest.Look{At: 1000e6, State: stack.StateBlocked, Call: 1, Times: 1, Way: stack.WayUnrun})
	for i, st := range []string{"clone3:1 start_thread:1 work:1 pthread_cond_wait:1", "main:1 query:1 pthread_cond_wait:1"} {
		th := b.Thread(1240+i, "pool")
		th.Look(exporttest.Look{At: 0, State: stack.StateBlocked, Call: 203, Times: 1, Stack: st})
		th.Event(0, event.Wait, cond)
		th.Event(0, event.Lock, 0x9000)
		th.Look(exporttest.Look{At: 400e6, State: stack.StateRunning, Times: 2, Stack: "clone3:1 start_thread:1 work:1 crunch:1"})
		th.Look(exporttest.Look{At: 1000e6, State: stack.StateBlocked, Call: 203, Times: 1, Stack: st})
	}
	rec := b.Finish(1000e6)
	if got := must(t, rec, view.Options{}, "csv", "select file, count, dur/1000000 as ms from hot_waits order by 3"); got != "file,count,ms\n,1,400\n/var/db,1,1000\n" {
		t.Errorf("hot_waits: %s", got)
	}
	got := must(t, rec, view.Options{}, "csv", "select t.tid, w.idle, w.dur/1000000 as ms from waits w join threads t on t.id = w.thread order by 1, 3")
	if got != "tid,idle,ms\n1234,0,1000\n1240,1,400\n1241,0,400\n" {
		t.Errorf("waits: %s", got)
	}
}

func TestSlicesAreTheCalls(t *testing.T) {
	for what, rec := range map[string]*trace.Recording{"sample": exporttest.Sample(t), "big": exporttest.Big(t, 5000, 2)} {
		start := int64(view.New(rec, view.Options{}).Start())
		var rows []struct {
			Thread, Depth int
			Ts, Dur       int64
			Name          string
		}
		s := must(t, rec, view.Options{}, "json", "select thread, depth, ts, dur, name from slices join functions f on f.id = function")
		if err := json.Unmarshal([]byte(s), &rows); err != nil {
			t.Fatal(err)
		}
		var got []exporttest.Call
		for _, r := range rows {
			got = append(got, exporttest.Call{Thread: r.Thread, Name: r.Name, Depth: r.Depth, Begin: r.Ts + start, End: r.Ts + start + r.Dur})
		}
		t.Run(what, func(t *testing.T) { exporttest.Match(t, exporttest.Calls(rec), got) })
		// Every parent encloses its children.
		if s := must(t, rec, view.Options{}, "csv", `select count(*) from slices c join slices p on p.id = c.parent
			where c.ts < p.ts or c.ts+c.dur > p.ts+p.dur or p.depth+1 <> c.depth or p.thread <> c.thread`); s != "count(*)\n0\n" {
			t.Errorf("%s: parents: %s", what, s)
		}
	}
}

func TestRange(t *testing.T) {
	o := view.Options{From: exporttest.Start + 10*exporttest.Ms, To: exporttest.Start + 30*exporttest.Ms, Threads: []int{1}}
	if s := must(t, waiting(t), o, "csv", "select t.name, s.ts, dur, lock, symbol, holder, known_by from locks s join threads t on t.id=thread"); s != "name,ts,dur,lock,symbol,holder,known_by\nworker,10001000,20000000,831456,cache_lock,1234,word\n" {
		t.Error(s)
	}
}

func TestBadQuestions(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for q, says := range map[string]string{
		"select nosuch from slices":              "no such column: nosuch",
		"select * from nosuch":                   "no such table: nosuch",
		"drop table slices":                      "readonly",
		"delete from slices":                     "readonly",
		"attach '" + out + "' as x":              "attached",
		"vacuum into '" + out + "'":              "",
		"select load_extension('" + out + "')":   "",
		"create table x (a)":                     "readonly",
		"select 1; create table slices.x(a int)": "",
	} {
		if s, err := answer(t, exporttest.Sample(t), view.Options{}, "csv", q); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v", q, s, err)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a question wrote a file")
	}
}

func TestHostile(t *testing.T) {
	rec := exporttest.Hostile(t)
	const q = "select name, file from functions union all select name, name from threads union all select value, name from recording"
	r := csv.NewReader(strings.NewReader(must(t, rec, view.Options{}, "csv", q)))
	all, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, cells := range all {
		for _, c := range cells {
			if c != "" && strings.ContainsRune("=+-@\t\r", rune(c[0])) || strings.ContainsAny(c, "\x00\x1b\n") || len(c) > view.MaxName+1 {
				t.Errorf("cell %.60q", c)
			}
		}
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(must(t, rec, view.Options{}, "json", q)), &rows); err != nil || len(rows)+1 != len(all) {
		t.Errorf("%d rows as JSON, %d as CSV: %v", len(rows), len(all), err)
	}
	for _, l := range strings.Split(must(t, rec, view.Options{}, "table", q), "\n") {
		if strings.ContainsAny(l, "\x00\x1b\r") || len(l) > 1000 {
			t.Errorf("line %.80q", l)
		}
	}
	if got := must(t, rec, view.Options{}, "json", `select 1.5 a, null b, x'00ff' c, 9e999 "d""e"`); got != "[\n{\"a\": 1.5, \"b\": null, \"c\": \"x'00ff'\", \"d\\\"e\": \"+Inf\"}\n]\n" {
		t.Error(got)
	}
	if got := must(t, rec, view.Options{}, "json", `select 1 a where 0`); got != "[\n]\n" {
		t.Error(got)
	}
}

// docs/sql.md lists every table and column, in order.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	all := Tables()
	for _, v := range Views() {
		v.About += " (a view of `" + v.of[0] + "`)"
		all = append(all, v.Table)
	}
	for _, x := range all {
		var w strings.Builder
		fmt.Fprintf(&w, "## %s\n\n%s.\n\n| column | type | |\n|---|---|---|\n", x.Name, strings.ToUpper(x.About[:1])+x.About[1:])
		for _, c := range x.Columns {
			fmt.Fprintf(&w, "| `%s` | %s | %s |\n", c.Name, strings.ToLower(strings.TrimSuffix(c.Type, " PRIMARY KEY")), c.About)
		}
		if !strings.Contains(string(b), w.String()) {
			t.Errorf("docs/sql.md lacks:\n%s", w.String())
		}
	}
}

func BenchmarkSlices(b *testing.B) {
	rec := exporttest.Big(b, 200_000, 2)
	for b.Loop() {
		must(b, rec, view.Options{}, "csv", "select function, sum(dur) from slices group by function")
	}
	b.ReportMetric(200e3*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/export/internal/exporttest"
	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

const ms = exporttest.Ms

// recording is one of a thread that holds a lock, two that want it, and a
// socket that nobody writes to.
func recording(t testing.TB) *trace.Recording {
	b := exporttest.New(t)
	cache := b.Wait(trace.Wait{Call: "futex", Args: "mutex cache_lock", Kind: "lock", Lock: "mutex", KnownBy: "layout", Symbol: "cache_lock"})
	sock := b.Wait(trace.Wait{Call: "recvfrom", Args: "7 unix /run/<db>.sock", File: "unix /run/<db>.sock", Kind: "socket", Peer: "PID 77 (db)"})
	cond := b.Wait(trace.Wait{Call: "futex", Args: "condition variable work_cv", Kind: "lock", Lock: "condition variable", KnownBy: "function", Symbol: "work_cv",
		NoHolder: "a condition variable has no holder"})
	run, wait := stack.StateRunning, stack.StateBlocked
	main := b.Thread(1234, "main")
	main.Look(exporttest.Look{At: 0, State: run, Times: 1, Stack: "main:1 fill:2"})
	main.Look(exporttest.Look{At: 50 * ms, CPU: 49 * ms, Times: 1, State: run, Stack: "main:1 fill:2"})
	main.Look(exporttest.Look{At: 60 * ms, CPU: 58 * ms, Times: 2, Delay: ms, State: wait, Call: 46, Stack: "main:1 reply:3 recv:0"}) // without a line, as code that a runtime made
	main.Event(60*ms, event.Wait, sock)
	main.Look(exporttest.Look{At: 200 * ms, CPU: 58 * ms, Times: 2, Delay: ms, State: wait, Call: 46, Way: stack.WayUnrun})
	for i, end := range []int64{50, 52} {
		w := b.Thread(1240+i, "worker")
		at := int64(10+10*i) * ms
		w.Look(exporttest.Look{At: 0, State: run, Stack: "start:1 work:1"})
		w.Look(exporttest.Look{At: at, CPU: 5 * ms, Times: 1, State: wait, Call: 203, Stack: "start:1 find:2 pthread_mutex_lock:1"})
		w.Event(at, event.Wait, cache)
		w.Event(at, event.Lock, 0x8000)
		w.Event(at, event.Holder, event.HolderOf(1234, event.KnownByWord))
		w.Look(exporttest.Look{At: end * ms, CPU: 5 * ms, Times: 2, State: run, Stack: "start:1 find:3"})
		w.Look(exporttest.Look{At: 100 * ms, CPU: 40 * ms, Times: 3, State: wait, Call: 203, Stack: "start:1 idle:1 pthread_cond_wait:1"})
		w.Event(100*ms, event.Wait, cond)
		w.Event(100*ms, event.Lock, 0x9000)
		w.Look(exporttest.Look{At: 190 * ms, CPU: 40 * ms, Times: 3, State: wait, Call: 203, Way: stack.WayUnrun})
	}
	b.Stats.Pause = stack.Pauses{Count: 6, Mean: 38_000, P99: 46_000, Max: 46_000}
	return b.Finish(200 * ms)
}

func TestTextAndJSON(t *testing.T) {
	r := report.Of(recording(t), view.Options{}, 0)
	var text, doc strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&doc); err != nil {
		t.Fatal(err)
	}
	exporttest.Golden(t, "report.txt", text.String())
	exporttest.Golden(t, "report.json", doc.String())
	l := r.Locks[0]
	if l.Name != "mutex cache_lock" || l.Waits != 2 || l.Total != 72*ms || l.Longest != 40*ms || l.Most != 2 || !l.Excludes ||
		l.Holders[0] != (report.Share{Name: "main (1234) (lock word)", Waits: 2, Total: 72 * ms}) || l.HolderIn[0].Name != "fill" || l.WaiterIn[0].Name != "find" {
		t.Errorf("lock %+v", l)
	}
	if c := r.Calls[0]; c.Call != "futex" || c.Waits != 4 || c.Threads != 2 || c.Total != 72*ms+180*ms {
		t.Errorf("call %+v", c)
	}
	if w := r.Longest[0]; w.Duration != 140*ms || !w.Cut || w.For != "unix /run/<db>.sock to PID 77 (db)" || w.Stack[0].Func != "recv" {
		t.Errorf("longest %+v", w)
	}
	for _, th := range r.Threads {
		if th.TID == 1234 && (th.CPU != 58*ms || th.Blocked != 141*ms || th.Runnable != ms || th.Locks != 0) || th.TID == 1240 && (th.Locks != 150*ms*40/130 || th.Blocked != 150*ms) {
			t.Errorf("thread %+v", th)
		}
		if th.CPU+th.Runnable+th.Blocked+th.Disk+th.Stopped != th.Observed {
			t.Errorf("times of thread %+v do not add up", th)
		}
	}
}

// On a machine without a free CPU, where looks are late, a thread's times are still no more than
// there was: what it waited for a CPU is not counted as blocked as well.
func TestSumsOfBusy(t *testing.T) {
	b := exporttest.New(t)
	w := b.Thread(1234, "sleeper")
	look := func(at, delay int64, s stack.State, times int) {
		w.Look(exporttest.Look{At: at * ms, CPU: at * ms / 100, Delay: delay * ms, Times: uint64(times), State: s, Call: 230, Stack: "main:1 nanosleep:1"})
	}
	look(0, 0, stack.StateBlocked, 0)
	look(50, 40, stack.StateBlocked, 1) // 40 ms of this time
	look(110, 90, stack.StateBlocked, 2)
	look(120, 95, stack.StateRunning, 3) // more than this state lasts
	look(125, 105, stack.StateBlocked, 4)
	look(200, 105, stack.StateBlocked, 4)
	th := report.Of(b.Finish(200*ms), view.Options{}, 0).Threads[0]
	if th.Observed != 200*ms || th.Runnable != 105*ms || th.CPU != 2*ms || th.Blocked != 93*ms {
		t.Errorf("observed %d, on CPU %d, runnable %d, blocked %d", th.Observed, th.CPU, th.Runnable, th.Blocked)
	}
}

// Where a lock is held for less than an interval, "held in" is where its holder was while
// somebody waited, if it was looked at then; else where it was before and after.
func TestHeldIn(t *testing.T) {
	cases := []struct {
		name           string
		from, held, to int64 // of the wait, and when the holder was seen, in ms
		want           string
	}{
		{"a sample of the holder before", 9, 12, 14, "parse"},
		{"one after", 16, 16, 24, "fill"},
		{"two, the one after is nearer to when the holder was seen", 5, 18, 29, "fill"},
		{"two, the one before is nearer", 5, 11, 29, "parse"},
		{"none", 12, 12, 18, "main"},
		{"none, and it stays where it is", 32, 32, 38, "fill"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := exporttest.New(t)
			lock := b.Wait(trace.Wait{Call: "futex", Args: "mutex cache_lock", Kind: "lock", Lock: "mutex", KnownBy: "layout", Symbol: "cache_lock"})
			h := b.Thread(1234, "main")
			for i, s := range []string{"main:1 parse:2", "main:1 parse:3", "main:1 fill:2", "main:1 fill:2", "main:1 fill:2"} {
				h.Look(exporttest.Look{At: int64(i) * 10 * ms, CPU: int64(i) * 9 * ms, Times: uint64(i), State: stack.StateRunning, Stack: s})
			}
			w := b.Thread(1240, "worker")
			w.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "start:1 work:1"})
			w.Look(exporttest.Look{At: c.from * ms, CPU: ms, Times: 1, State: stack.StateBlocked, Call: 203, Stack: "start:1 find:2 pthread_mutex_lock:1"})
			w.Event(c.from*ms, event.Wait, lock)
			w.Event(c.from*ms, event.Lock, 0x8000)
			w.Event(c.held*ms, event.Holder, event.HolderOf(1234, event.KnownByWord))
			w.Look(exporttest.Look{At: c.to * ms, CPU: ms, Times: 2, State: stack.StateRunning, Stack: "start:1 find:3"})
			l := report.Of(b.Finish(50*ms), view.Options{}, 0).Locks
			if len(l) != 1 || len(l[0].HolderIn) != 1 || l[0].HolderIn[0].Name != c.want {
				t.Errorf("%+v, want %s", l, c.want)
			}
		})
	}
}

func TestSides(t *testing.T) {
	rec := recording(t)
	off := report.Of(rec, view.Options{Side: view.OffCPU}, 0)
	if len(off.OnCPU) != 0 || len(off.Locks) != 2 || off.Threads[0].CPU != 0 || off.Recording.Shown != "off-CPU time alone" {
		t.Errorf("off: %+v", off)
	}
	on := report.Of(rec, view.Options{Side: view.OnCPU}, 0)
	if len(on.OnCPU) == 0 || len(on.Locks) != 0 || len(on.Longest) != 0 || len(on.Calls) != 0 {
		t.Errorf("on: %+v", on)
	}
	if r := report.Of(rec, view.Options{}, 1); len(r.Locks) != 1 || r.More.Locks != 1 || len(r.Longest) != 1 || len(r.Functions) != 1 || r.More.Functions == 0 {
		t.Errorf("one row: %+v", r)
	}
}

// The page is whole, loads nothing, and what names hold does it no harm.
func TestHTML(t *testing.T) {
	loads := regexp.MustCompile(`(?i)<(script|img|link|iframe|object|embed)|\b(src|href)=|url\(|@import|\bon\w+=`)
	for name, rec := range map[string]*trace.Recording{"small": recording(t), "hostile": exporttest.Hostile(t), "sample": exporttest.Sample(t)} {
		var b bytes.Buffer
		if err := report.Of(rec, view.Options{}, 100).WriteHTML(&b); err != nil {
			t.Fatal(err)
		}
		plain := regexp.MustCompile(`(?s)<(td|th|b|code|span|p|pre|summary|li)\b[^>]*>[^<]*`).ReplaceAll(b.Bytes(), nil)
		if m := loads.Find(plain); m != nil {
			t.Errorf("%s: the page has %q", name, m)
		}
		if bytes.Contains(b.Bytes(), []byte("ZgotmplZ")) {
			t.Errorf("%s: something was not fit for its place", name)
		}
		// A stripe that set the whole background would take away the bars of every other row.
		if m := regexp.MustCompile(`\btd *{[^}]*background:[^}]*}`).Find(b.Bytes()); m != nil {
			t.Errorf("%s: no bars in the rows of %q", name, m)
		}
		d := xml.NewDecoder(&b)
		d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

func FuzzOf(f *testing.F) {
	exporttest.FuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := report.Of(exporttest.Raw(t, data), view.Options{}, 5)
		var text, doc bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteJSON(&doc); err != nil {
			t.Fatal(err)
		}
		var back report.Report
		if err := json.Unmarshal(doc.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		for _, l := range r.Locks {
			if l.Total < 0 || l.Longest > l.Total || l.Waits <= 0 {
				t.Fatalf("lock %+v", l)
			}
		}
	})
}

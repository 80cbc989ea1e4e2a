package web_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
	"github.com/sliverprof/sliver/web/store"
)

// TestTwoHours serves two hours, nearly all from a file, and requests all of it, one
// second of it, and one function. Nothing is lost or dropped, and the replies equal those
// of a server with everything in memory.
func TestTwoHours(t *testing.T) {
	o := synth.Options{Seed: 3, Threads: 1, Interval: int64(200 * time.Millisecond), Samples: 36_000}
	plain := serve(t, web.Options{Source: web.NewRecording(recording(t, o))})
	long := serve(t, web.Options{Source: web.NewRecording(recording(t, o)), Overflow: t.TempDir(), OverflowAt: 5000})
	loaded(t, plain)
	loaded(t, long)
	var st client.Status
	if err := dial(t, long).Ask(t.Context(), client.Query{Op: "status"}, &st); err != nil {
		t.Fatal(err)
	}
	if st.InFile < 50_000 || st.InFile < st.Held*8/10 || st.Dropped != 0 || st.To-st.From < 7190e9 {
		t.Errorf("%d of %d slices are in the file, %d dropped, of %.0f s", st.InFile, st.Held, st.Dropped, (st.To-st.From)/1e9)
	}
	middle := st.From + (st.To-st.From)/2
	for _, q := range []client.Query{
		{Op: "slices", T0: st.From, T1: st.To, Bin: 7200e9 / 1400},
		{Op: "slices", T0: middle, T1: middle + 1e9, Bin: 1},
		{Op: "tree", T0: st.From, T1: st.To},
		{Op: "calls", T0: st.From, T1: st.To, Func: 3},
		{Op: "hits", T0: st.From, T1: st.To, Funcs: []uint32{1, 2, 3}},
		{Op: "waits", T0: middle, T1: st.To},
		{Op: "loads", T0: st.From, T1: st.To, N: 100},
	} {
		var a, b any
		if err := dial(t, plain).Ask(t.Context(), q, &a); err != nil {
			t.Fatal(q.Op, err)
		}
		if err := dial(t, long).Ask(t.Context(), q, &b); err != nil {
			t.Fatal(q.Op, err)
		}
		if len(fmt.Sprint(a)) < 40 || !reflect.DeepEqual(a, b) {
			t.Errorf("%s over [%.0f, %.0f): %.300v, want %.300v", q.Op, q.T0, q.T1, b, a)
		}
	}
}

// twoHours returns a recording of two hours at 10 ms of 64 busy threads, about 7 GB; with
// -short at 1 s. SLIVER_BENCH_RECORDING names an existing one.
func twoHours(b *testing.B) *trace.Recording {
	b.Helper()
	path := os.Getenv("SLIVER_BENCH_RECORDING")
	if path == "" {
		path = filepath.Join(b.TempDir(), "two-hours.sliver")
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		w := bufio.NewWriterSize(f, 1<<20)
		o := synth.Options{Seed: 1, Threads: 64, Interval: int64(10 * time.Millisecond), Samples: 720_000}
		if testing.Short() {
			o.Interval, o.Samples = o.Interval*100, o.Samples/100
		}
		if _, err := synth.Write(w, o); err != nil {
			b.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	in, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	rec, err := trace.Open(f, in.Size())
	if err != nil {
		b.Fatal(err)
	}
	return rec
}

// memory returns the process's own memory in MB, without file pages, which the kernel can
// drop.
func memory(b *testing.B) float64 {
	b.Helper()
	runtime.GC()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	var kb float64
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		b.Fatal(err)
	}
	return kb / 1e3
}

// BenchmarkTwoHours opens two hours and runs a page's queries: all of it in 1400 pixels
// for 10 threads, seconds at random times, one function over the whole time, and the
// flame graph of everything.
func BenchmarkTwoHours(b *testing.B) {
	rec := twoHours(b)
	events := uint64(0)
	for i := range rec.Threads {
		events += rec.Count(rec.Threads[i].Seq)
	}
	for b.Loop() {
		st := store.New(0)
		st.Overflow(b.TempDir(), 0)
		begin := time.Now()
		took := func(name string) {
			b.ReportMetric(float64(time.Since(begin))/1e6, name)
			begin = time.Now()
		}
		if _, err := web.NewRecording(rec).Run(b.Context(), st); err != nil {
			b.Fatal(err)
		}
		took("open-ms")
		in, err := st.InFile()
		if err != nil || st.Dropped() != 0 {
			b.Errorf("%d slices were dropped: %v", st.Dropped(), err)
		}
		b.ReportMetric(float64(events), "events")
		b.ReportMetric(float64(st.Held()), "slices")
		b.ReportMetric(float64(in), "in-file")
		b.ReportMetric(memory(b), "own-MB")
		from, to := st.Span()
		b.ReportMetric(float64(to-from)/1e9, "s")
		view := func(t0, t1 stack.Time) {
			for seq := range 10 {
				var p store.Position
				st.Lookup(seq).View(t0, t1, int64(t1-t0)/1400, nil, &p)
			}
		}
		begin = time.Now()
		view(from, to)
		took("view-all-ms")
		for k := range stack.Time(100) {
			at := from + (to-from)*k/100
			view(at, at+1e9)
		}
		took("view-100-seconds-ms")
		st.HitsOf(map[uint32]bool{6: true}, from, to, nil, nil, 0)
		took("search-ms")
		st.Tree(from, to, nil, store.TreeOptions{Max: 20_000})
		took("flame-ms")
	}
}

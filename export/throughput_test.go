package export

import (
	"context"
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/export/perfetto"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/query"
	"github.com/sliverprof/sliver/trace"
)

// spent returns the CPU time of this process so far, in ns.
func spent(tb testing.TB) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// writers returns a function per format that writes a recording once.
func writers() map[string]func(*trace.Recording) error {
	out := map[string]func(*trace.Recording) error{
		"perfetto-plain": func(rec *trace.Recording) error { return perfetto.WritePlain(io.Discard, rec, Options{}) },
	}
	for _, f := range Formats() {
		switch {
		case f.write != nil:
			out[f.Name] = func(rec *trace.Recording) error { return f.write(io.Discard, rec, Options{}) }
		case f.writeThread != nil:
			out[f.Name] = func(rec *trace.Recording) error {
				v := view.New(rec, Options{})
				for i := range v.Threads {
					if err := f.writeThread(io.Discard, v, &v.Threads[i]); err != nil {
						return err
					}
					if err := f.beside(io.Discard, v, &v.Threads[i]); err != nil {
						return err
					}
				}
				return nil
			}
		}
	}
	for _, table := range []string{"slices", "samples", "states"} {
		out["sql-"+table] = func(rec *trace.Recording) error {
			d, err := query.Open(context.Background(), rec, Options{}, "select count(*) from "+table)
			if err != nil {
				return err
			}
			return d.Close()
		}
	}
	return out
}

// rate returns millions of events per second of CPU time, which other load on the machine
// affects little.
func rate(rec *trace.Recording, ns int64) float64 {
	events := uint64(0)
	for i := range rec.Threads {
		events += rec.Count(rec.Threads[i].Seq)
	}
	return float64(events) / float64(max(ns, 1)) * 1e3
}

// TestThroughput: at least two million events per second to Perfetto, and one to the
// other formats, on one core. The result depends on the machine, so it runs only with
// SLIVER_LONG=1.
func TestThroughput(t *testing.T) {
	if os.Getenv("SLIVER_LONG") == "" {
		t.Skip("SLIVER_LONG=1 measures how fast exports are")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for what, rec := range map[string]*trace.Recording{"running": exporttest.Big(t, 1_000_000, 4), "waiting for locks": exporttest.Contended(t, 1_000_000, 4)} {
		for name, write := range writers() {
			best := 0.0
			for range 3 {
				before := spent(t)
				if err := write(rec); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				best = max(best, rate(rec, spent(t)-before))
			}
			t.Logf("%-18s %-15s %5.1f million events a second", what, name, best)
			limit := 1.0
			if name == "perfetto" {
				limit = 2
			}
			if best < limit {
				t.Errorf("%s, %s: %.2f million events a second, want %v", what, name, best, limit)
			}
		}
	}
}

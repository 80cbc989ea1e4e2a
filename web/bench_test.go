package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
	"github.com/sliverprof/sliver/web/internal/synth"
	"github.com/sliverprof/sliver/web/store"
)

// BenchmarkClients measures how late a feed's rounds are, in µs, and what its recording
// loses, without clients and with 100 clients of which 10 never read. A round takes 10 s,
// with -short 1 s.
func BenchmarkClients(b *testing.B) {
	lasts := 10 * time.Second
	if testing.Short() {
		lasts = time.Second
	}
	for _, n := range []struct {
		name        string
		read, stuck int
	}{{"none", 0, 0}, {"100", 90, 10}} {
		b.Run(n.name, func(b *testing.B) {
			for range b.N {
				f, err := synth.NewFeed(5, 16, 2*time.Millisecond)
				if err != nil {
					b.Fatal(err)
				}
				l := web.NewLive(f.Rec, web.LiveOptions{Namer: synth.Namer{}})
				s, err := web.Serve(b.Context(), web.Options{Source: l})
				if err != nil {
					b.Fatal(err)
				}
				end := clients(b, s.URL(), n.read, n.stuck)
				for s.Clients() < n.read+n.stuck {
					runtime.Gosched()
				}
				ctx, stop := context.WithTimeout(b.Context(), lasts)
				f.Run(ctx)
				stop()
				st, err := f.Rec.Close(trace.Stats{Threads: []stack.ThreadStats{{TID: 4242}}}, trace.End{At: f.Now()})
				if err != nil {
					b.Fatal(err)
				}
				l.End("measured")
				s.Close()
				end()
				slices.Sort(f.Lates)
				at := func(q float64) float64 { return float64(f.Lates[int(q*float64(len(f.Lates)-1))]) / 1e3 }
				b.ReportMetric(at(.5), "late-p50-µs")
				b.ReportMetric(at(.99), "late-p99-µs")
				b.ReportMetric(float64(st.Threads[0].Overwritten), "overwritten")
				b.ReportMetric(float64(len(f.Lates)), "rounds")
			}
		})
	}
}

// clients starts clients that read, and some that never do, in a separate process: in the
// server's process they would delay the samplers.
func clients(b *testing.B, url string, read, stuck int) (end func()) {
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestClientsOfBenchmark$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", clientsVar, url, read, stuck))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() { in.Close(); _ = cmd.Wait() } // it fails when its connections close
}

const clientsVar = "SLIVER_BENCH_CLIENTS"

// TestClientsOfBenchmark runs as the child process of BenchmarkClients.
func TestClientsOfBenchmark(t *testing.T) {
	var printed string
	var read, stuck int
	if _, err := fmt.Sscan(os.Getenv(clientsVar), &printed, &read, &stuck); err != nil {
		t.Skip("for BenchmarkClients")
	}
	c, err := client.New(printed)
	if err != nil {
		t.Fatal(err)
	}
	for range read {
		w, err := c.Watch(t.Context(), client.View{Follow: true, Bin: 4e6})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				if _, err := w.Next(); err != nil {
					return
				}
			}
		}()
	}
	for range stuck {
		if _, err := c.Watch(t.Context(), client.View{Follow: true, T0: -1e18, Bin: 1}); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// big returns a recording of ten million events over 64 threads, with -short of one
// million.
func big(b *testing.B) *trace.Recording {
	b.Helper()
	each := 156_250
	if testing.Short() {
		each /= 10
	}
	var w bytes.Buffer
	n, err := synth.Write(&w, synth.Options{Seed: 1, Threads: 64, Interval: 1_000_000, Samples: 1 << 30, Events: each})
	if err != nil || n < 64*each {
		b.Fatal(n, err)
	}
	rec, err := trace.Open(bytes.NewReader(w.Bytes()), int64(w.Len()))
	if err != nil {
		b.Fatal(err)
	}
	return rec
}

// BenchmarkOpen loads the events of big.
func BenchmarkOpen(b *testing.B) {
	rec := big(b)
	for b.Loop() {
		st := store.New(0)
		if _, err := web.NewRecording(rec).Run(b.Context(), st); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/1e6, "heap-MB")
		b.ReportMetric(float64(st.Held()), "slices")
		b.StartTimer()
	}
}

// BenchmarkView answers the queries of a page of 1400 pixels with 10 of 64 threads,
// zoomed out and zoomed in.
func BenchmarkView(b *testing.B) {
	rec := big(b)
	st := store.New(0)
	if _, err := web.NewRecording(rec).Run(b.Context(), st); err != nil {
		b.Fatal(err)
	}
	from, to := st.Span()
	for _, z := range []struct {
		name string
		span stack.Time
	}{{"all", to - from}, {"10s", 10e9}, {"100ms", 100e6}} {
		b.Run(z.name, func(b *testing.B) {
			items := 0
			for b.Loop() {
				items = 0
				for seq := range 10 {
					var p store.Position
					for _, r := range st.Lookup(seq).View(from, from+z.span, int64(z.span)/1400, nil, &p).Rows {
						items += len(r.Items)
					}
				}
			}
			b.ReportMetric(float64(items), "items")
		})
	}
}

// BenchmarkScroll counts the frames in a second of a page that scrolls through the tracks of 1,000 threads,
// and of 10,000 goroutines, at ten screens a second: see page/test/scroll.mjs. Chromium draws without a GPU.
func BenchmarkScroll(b *testing.B) {
	node := need(b, "node", "node")
	chromium := need(b, "chromium", "chromium", "chromium-browser", "google-chrome")
	dir := modules(b, "playwright-core")
	program := synthserve(b)
	seconds := "8"
	if testing.Short() {
		seconds = "2"
	}
	for _, n := range []struct{ name, threads, tasks string }{{"threads", "1000", "0"}, {"goroutines", "8", "10000"}} {
		b.Run(n.name, func(b *testing.B) {
			var rate, longest float64
			for range b.N {
				cmd := exec.CommandContext(b.Context(), node, "test/scroll.mjs", program, chromium, "-", n.threads, n.tasks, seconds)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				var r, l float64
				var rows int
				if _, scan := fmt.Sscan(string(out), &r, &l, &rows); err != nil || scan != nil {
					b.Fatalf("%v, %v\n%s", err, scan, out)
				}
				rate, longest = rate+r, max(longest, l)
			}
			b.ReportMetric(rate/float64(b.N), "frames/s")
			b.ReportMetric(longest, "longest-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

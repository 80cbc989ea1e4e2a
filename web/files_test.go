package web_test

import (
	"math"
	"testing"

	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/web"
	"github.com/sliverprof/sliver/web/client"
)

type fileLanes struct {
	T0, T1 float64
	Files  []struct {
		Path               string
		Total              int64
		Ops                int
		Most               float64
		Read, Write, Other []float64
		Count              []int
		Longest            []int64
	}
	MoreFiles int `json:"more_files"`
}

// TestFileLanes: at any resolution, the parts of a file's lane add up to its operations, and the file in
// whose operations threads spent the most time comes first.
func TestFileLanes(t *testing.T) {
	const ms = exporttest.Ms
	b := exporttest.New(t)
	for i, name := range []string{"main", "worker"} {
		th := b.Thread(i+1, name)
		th.Look(exporttest.Look{At: 0, State: stack.StateRunning, Stack: "main work"})
		th.Look(exporttest.Look{At: 1000 * ms, State: stack.StateRunning, Stack: "main work"})
	}
	b.Op(1, iowatch.OpRead, "/data/a", 100*ms, 160*ms, 10, "")
	b.Op(1, iowatch.OpSync, "/data/log", 200*ms, 500*ms, 0, "")
	b.Op(2, iowatch.OpWrite, "/data/log", 400*ms, 450*ms, 20, "")
	b.Op(2, iowatch.OpWrite, "/data/log", 600*ms, 601*ms, 20, "")
	b.Op(2, iowatch.OpRead, "/data/b", 900*ms, 901*ms, 5, "")
	s := serve(t, web.Options{Source: web.NewRecording(b.Finish(1000 * ms))})
	loaded(t, s)
	c := dial(t, s)
	for _, n := range []int{1, 7, 100} {
		var got fileLanes
		if err := c.Ask(t.Context(), client.Query{Op: "lanes", N: n}, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Files) != 3 || got.Files[0].Path != "/data/log" || got.Files[1].Path != "/data/a" || got.Files[2].Path != "/data/b" {
			t.Fatalf("%d parts: %+v", n, got.Files)
		}
		width := (got.T1 - got.T0) / float64(n)
		sum := func(parts []float64) (ns float64) {
			for _, v := range parts {
				ns += v * width
			}
			return ns
		}
		log := got.Files[0]
		for _, x := range []struct {
			what      string
			got, want float64
		}{
			{"reads", sum(log.Read), 0},
			{"writes", sum(log.Write), 51 * ms},
			{"syncs", sum(log.Other), 300 * ms},
			{"all", float64(log.Total), 351 * ms},
			{"reads of a", sum(got.Files[1].Read), 60 * ms},
		} {
			if math.Abs(x.got-x.want) > 0.0006*width*float64(n) { // rounded to thousandths of a thread
				t.Errorf("%d parts: %s are %.0f ns, want %.0f", n, x.what, x.got, x.want)
			}
		}
		ops, longest := 0, int64(0)
		for k := range log.Count {
			ops += log.Count[k]
			longest = max(longest, log.Longest[k])
		}
		if ops != 3 || log.Ops != 3 || longest != 300*ms || got.MoreFiles != 0 {
			t.Errorf("%d parts: %d and %d operations, the longest of %d ns, %d more files", n, ops, log.Ops, longest, got.MoreFiles)
		}
	}
	var part fileLanes
	q := client.Query{Op: "lanes", N: 10, T0: 1, T1: 450 * ms, Threads: []int{1}}
	if err := c.Ask(t.Context(), q, &part); err != nil {
		t.Fatal(err)
	}
	if len(part.Files) != 1 || part.Files[0].Ops != 1 || part.Files[0].Total != 50*ms {
		t.Errorf("of the worker up to 450 ms: %+v", part.Files)
	}
}

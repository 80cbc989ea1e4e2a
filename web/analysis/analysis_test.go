package analysis_test

//sliver:layer unit unraced

import (
	"bytes"
	"context"
	"math"
	"testing"
	"time"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/query"
	"github.com/sliverprof/sliver/session/top"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/web/analysis"
	"github.com/sliverprof/sliver/web/internal/synth"
)

func record(t *testing.T, o synth.Options) *trace.Recording {
	t.Helper()
	var b bytes.Buffer
	if _, err := synth.Write(&b, o); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

type times struct{ self, total int64 }

// byFunc adds up the CPU time of the tree by function; recursion counts once.
func byFunc(a *analysis.Analysis) map[string]times {
	tr := a.Tree
	self := append([]int64(nil), tr.CPU...)
	for i := len(self) - 1; i > 0; i-- {
		self[tr.Parent[i]] -= tr.CPU[i]
	}
	out := map[string]times{}
	for i := 1; i < len(self); i++ {
		name := a.Funcs[tr.Func[i]].Name
		x := out[name]
		x.self += self[i]
		again := false
		for p := tr.Parent[i]; p > 0; p = tr.Parent[p] {
			again = again || a.Funcs[tr.Func[p]].Name == name
		}
		if !again {
			x.total += tr.CPU[i]
		}
		out[name] = x
	}
	return out
}

// TestSameNumbers compares the analysis with the report, with `sliver sql` and with `sliver top`.
func TestSameNumbers(t *testing.T) {
	rec := record(t, synth.Options{Seed: 3, Threads: 6, Interval: 1e6, Samples: 4000})
	base := rec.Begin()
	for _, o := range []view.Options{{}, {From: base + 1e9, To: base + 2e9}, {Threads: []int{1, 2}}} {
		a := analysis.Of(rec, base, analysis.Options{From: o.From, To: o.To, Threads: o.Threads})
		got := byFunc(a)
		r := report.Of(rec, o, 1000)
		if len(r.OnCPU) < 10 {
			t.Fatalf("%+v: the report has %d functions", o, len(r.OnCPU))
		}
		said := map[string]times{} // functions of one name, in other files, are added up
		for _, f := range r.OnCPU {
			said[f.Name] = times{said[f.Name].self + f.Self, said[f.Name].total + f.Total}
		}
		for name, x := range said {
			if got[name] != x {
				t.Errorf("%+v: %s has %+v, the report says %+v", o, name, got[name], x)
			}
		}
		if a.Report.Idle != r.Idle || len(a.Report.Locks) != len(r.Locks) || len(r.Locks) == 0 || a.Report.Locks[0].Total != r.Locks[0].Total {
			t.Errorf("%+v: idle waits %+v and %d locks, the report says %+v and %d", o, a.Report.Idle, len(a.Report.Locks), r.Idle, len(r.Locks))
		}
		cpu := int64(0)
		for _, x := range a.Threads {
			cpu += x.CPU
			if sum := x.CPU + x.Runnable + x.Lock + x.IO + x.Sleep + x.Other + x.Idle + x.Stopped; math.Abs(float64(sum-x.Observed)) > 10 {
				t.Errorf("%+v: %+v adds up to %d", o, x, sum)
			}
		}
		if cpu == 0 || a.Tree.CPU[0] != cpu {
			t.Errorf("%+v: the tree has %d ns, the threads %d", o, a.Tree.CPU[0], cpu)
		}
		asked(t, rec, o, got)
	}
	a := analysis.Of(rec, base, analysis.Options{})
	compareTop(t, rec, byFunc(a), a.Tree.CPU[0])
}

// asked compares with the table "profile" of `sliver sql`.
func asked(t *testing.T, rec *trace.Recording, o view.Options, got map[string]times) {
	t.Helper()
	const question = "select function, self_cpu, total_cpu from profile where total_cpu > 0"
	db, err := query.Open(context.Background(), rec, o, question)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Rows(context.Background(), question)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	said := map[string]times{}
	for rows.Next() {
		var name string
		var x times
		if err := rows.Scan(&name, &x.self, &x.total); err != nil {
			t.Fatal(err)
		}
		said[name] = times{said[name].self + x.self, said[name].total + x.total}
	}
	if err := rows.Err(); err != nil || len(said) < 10 {
		t.Fatalf("%d functions: %v", len(said), err)
	}
	for name, x := range said {
		if got[name] != x {
			t.Errorf("%s has %+v, sql says %+v", name, got[name], x)
		}
	}
}

// names gives a top.Model the names of a recording.
type names struct{ n *trace.Names }

func (x names) Frames(_ int, w event.Word) (out []top.Frame) {
	for _, f := range x.n.Resolve(w, math.MaxInt32).Frames {
		out = append(out, top.Frame{Func: x.n.Func(&f).Name})
	}
	return out
}

func (names) Wait(int) (trace.Wait, bool) { return trace.Wait{}, false }
func (names) Call(int32) string           { return "" }

// compareTop feeds the events to `sliver top`: shares agree up to what its window leaves out at the end.
func compareTop(t *testing.T, rec *trace.Recording, got map[string]times, cpu int64) {
	t.Helper()
	m := top.New(time.Minute)
	for _, th := range rec.Threads {
		x := m.Thread(stack.ThreadInfo{TID: th.TID, Name: th.Name, Main: th.Main})
		for e := range rec.Events(th.Seq) {
			x.Apply(e)
		}
	}
	_, end := rec.Span()
	tb := m.Table(end+10e9, names{trace.NewNames(rec)})
	sum := int64(0)
	for _, f := range tb.Funcs {
		sum += f.Self.CPU
	}
	if sum == 0 || len(tb.Funcs) < 10 {
		t.Fatalf("top has %d functions, %d ns", len(tb.Funcs), sum)
	}
	for _, f := range tb.Funcs {
		if a, b := float64(f.Self.CPU)/float64(sum), float64(got[f.Name].self)/float64(cpu); math.Abs(a-b) > .01 {
			t.Errorf("%s has %.3f of the CPU time in top, %.3f here", f.Name, a, b)
		}
	}
}

// TestSmallTree keeps the callers of what it keeps, and the sums.
func TestSmallTree(t *testing.T) {
	rec := record(t, synth.Options{Seed: 3, Threads: 6, Interval: 1e6, Samples: 2000})
	whole := analysis.Of(rec, 0, analysis.Options{ByThread: true})
	small := analysis.Of(rec, 0, analysis.Options{ByThread: true, Nodes: 50})
	if n := len(small.Tree.Parent); n > 50 || n < 20 || len(whole.Tree.Parent) < 100 {
		t.Fatalf("%d nodes of %d", n, len(whole.Tree.Parent))
	}
	if small.Tree.CPU[0] != whole.Tree.CPU[0] || small.Tree.Folded == 0 {
		t.Errorf("CPU time %d of %d, %d folded", small.Tree.CPU[0], whole.Tree.CPU[0], small.Tree.Folded)
	}
	for i, p := range small.Tree.Parent {
		if int(p) >= i && i > 0 || i > 0 && small.Tree.CPU[i] > small.Tree.CPU[p] {
			t.Errorf("node %d has the parent %d, with %d of %d ns", i, p, small.Tree.CPU[i], small.Tree.CPU[p])
		}
	}
	if f := whole.Funcs[whole.Tree.Func[1]]; f.Thread == nil {
		t.Errorf("below the root is %+v, which is not a thread", f)
	}
}

package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/export/view"
)

// Traced is a function whose calls were traced. Durations are of calls whose beginning and end are
// known; percentiles are at most 3 % too high.
type Traced struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Calls  uint64 `json:"calls"`        // that are recorded
	Left   uint64 `json:"left"`         // of these, without a return
	Open   uint64 `json:"open"`         // of these, that had not ended
	Before uint64 `json:"began_before"` // of these, that began before tracing
	All    uint64 `json:"all_calls"`    // with those that are not recorded for being short
	Total  int64  `json:"total_ns"`
	Mean   int64  `json:"mean_ns"`
	P50    int64  `json:"p50_ns"`
	P90    int64  `json:"p90_ns"`
	P99    int64  `json:"p99_ns"`
	P999   int64  `json:"p999_ns"`
	Max    int64  `json:"max_ns"`
	// CPU, Delay and Off are the times of Timed calls on a CPU, waiting for one, and in waits; they are not known of the
	// others. Exact says that they are by the kernel's context switches, and not estimated from samples.
	CPU   int64  `json:"on_cpu_ns"`
	Delay int64  `json:"runnable_ns"`
	Off   int64  `json:"off_cpu_ns"`
	Timed uint64 `json:"timed"`
	Exact bool   `json:"times_exact"`
	// Slowest are the calls that took longest, with a known beginning and end.
	Slowest []TracedCall `json:"slowest"`
	// Histogram counts calls by duration, in buckets of powers of two; empty ones are left out.
	Histogram []Bucket `json:"histogram"`
}

// MarshalJSON writes null for times that are not known: those of no call with a known beginning and end, and those on
// and off the CPUs of no Timed call.
func (x Traced) MarshalJSON() ([]byte, error) {
	type plain Traced
	type timed struct {
		plain
		CPU   *int64 `json:"on_cpu_ns"`
		Delay *int64 `json:"runnable_ns"`
		Off   *int64 `json:"off_cpu_ns"`
	}
	t := timed{plain: plain(x)}
	if x.Timed > 0 {
		t.CPU, t.Delay, t.Off = &x.CPU, &x.Delay, &x.Off
	}
	if len(x.Histogram) > 0 {
		return json.Marshal(t)
	}
	return json.Marshal(struct {
		timed
		NoTimes
	}{timed: t})
}

// NoTimes replaces the times of a traced function by null in JSON, where no call has a known length: a field that is
// embedded hides those of its name that are embedded further in.
type NoTimes struct {
	Total *int64 `json:"total_ns"`
	Mean  *int64 `json:"mean_ns"`
	P50   *int64 `json:"p50_ns"`
	P90   *int64 `json:"p90_ns"`
	P99   *int64 `json:"p99_ns"`
	P999  *int64 `json:"p999_ns"`
	Max   *int64 `json:"max_ns"`
}

// TracedCall is one call of a traced function.
type TracedCall struct {
	At       int64  `json:"at_ns"` // since the recording began
	Duration int64  `json:"duration_ns"`
	TID      int32  `json:"tid"`
	Thread   string `json:"thread"` // "" if it was not sampled
	Caller   string `json:"caller"`
	// The times add up to Duration, and are nil where they are not known.
	CPU   *int64 `json:"on_cpu_ns"`
	Delay *int64 `json:"runnable_ns"`
	Off   *int64 `json:"off_cpu_ns"`
	Woken string `json:"woken_by"` // what ended its longest wait, by the kernel
}

// maxSlowest is how many of the slowest calls of a function a report has.
const maxSlowest = 10

// Bucket of a histogram.
type Bucket struct {
	UpTo  int64  `json:"up_to_ns"`
	Calls uint64 `json:"calls"`
}

// traced reports on traced functions, those with the most time first.
func (r *Report) traced(v *view.View, top int) {
	t := v.Rec.Traced
	if t == nil {
		return
	}
	all := make([]Traced, len(t.Functions))
	times := make([]calls.Histogram, len(t.Functions))
	timer := v.CallTimer()
	slowest := make([][]view.Call, len(t.Functions))
	v.Calls(func(c *view.Call) bool {
		x := &all[c.Fn]
		x.Calls++
		switch {
		case c.Before:
			x.Before++
		case c.How == calls.Left:
			x.Left++
		case c.How == calls.Open:
			x.Open++
		default:
			times[c.Fn].Add(c.Duration())
			slowest[c.Fn] = slower(slowest[c.Fn], c)
			if y, ok := timer.Of(c); ok {
				x.Exact = y.Exact && (x.Exact || x.Timed == 0)
				x.Timed++
				x.CPU, x.Delay, x.Off = x.CPU+y.CPU, x.Delay+y.Delay, x.Off+y.Off
			}
		}
		return true
	})
	callerOf := v.Callers()
	for i := range all {
		x, f, h := &all[i], &t.Functions[i], &times[i]
		x.Name, x.File, x.Line = v.TracedName(i), view.Text(f.File, view.MaxName), f.Line
		x.All = max(f.Calls, x.Calls)
		if !v.Whole() || len(v.Threads) != len(v.Rec.Threads) { // the accounts are of the whole recording
			x.All = x.Calls
		}
		x.Total, x.Mean, x.Max = h.Sum, h.Mean(), h.Max
		x.P50, x.P90, x.P99, x.P999 = h.Percentile(.5), h.Percentile(.9), h.Percentile(.99), h.Percentile(.999)
		x.Histogram, x.Slowest = buckets(h), []TracedCall{}
		for k := range slowest[i] {
			x.Slowest = append(x.Slowest, tracedCall(v, timer, &slowest[i][k], callerOf))
		}
	}
	slices.SortStableFunc(all, func(a, b Traced) int { return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(b.Calls, a.Calls)) })
	r.Traced, r.More.Traced = cut(all, top)
}

// slower adds a call to the slowest ones if it is one of them.
func slower(all []view.Call, c *view.Call) []view.Call {
	at, _ := slices.BinarySearchFunc(all, c, func(a view.Call, c *view.Call) int {
		return cmp.Or(cmp.Compare(c.Duration(), a.Duration()), cmp.Compare(a.Enter, c.Enter))
	})
	if at == maxSlowest {
		return all
	}
	all = slices.Insert(all, at, *c)
	return all[:min(len(all), maxSlowest)]
}

func tracedCall(v *view.View, timer *view.CallTimer, c *view.Call, callerOf func(*view.Call) string) TracedCall {
	x := TracedCall{At: int64(c.Enter - v.Begin()), Duration: c.Duration(), TID: int32(c.TID), Caller: callerOf(c)}
	if c.Thread >= 0 {
		x.Thread = v.Threads[c.Thread].Name
	}
	if t, ok := timer.Of(c); ok {
		x.CPU, x.Delay, x.Off, x.Woken = &t.CPU, &t.Delay, &t.Off, v.Woken(t.Woken)
	}
	return x
}

// buckets joins those of a histogram to one for each power of two.
func buckets(h *calls.Histogram) []Bucket {
	out := []Bucket{}
	limit := int64(1)
	for upTo, n := range h.Buckets {
		for limit < upTo && limit < 1<<62 {
			limit *= 2
		}
		if len(out) == 0 || out[len(out)-1].UpTo != limit {
			out = append(out, Bucket{UpTo: limit})
		}
		out[len(out)-1].Calls += n
	}
	return out
}

// histWidth is how wide the bar of a histogram's largest bucket is, in characters.
const histWidth = 40

func (r *Report) textTraced(w io.Writer) {
	if len(r.Traced) == 0 {
		return
	}
	fmt.Fprintf(w, "\nTraced functions%s\n", more(r.More.Traced))
	t := newTable(w, "calls", "total", "p50", "p90", "p99", "p99.9", "longest", "on CPU", "for a CPU", "waited", "left", "function")
	for i := range r.Traced {
		x := &r.Traced[i]
		t.row(fmt.Sprint(x.Calls), duration(x.Total), duration(x.P50), duration(x.P90), duration(x.P99), duration(x.P999), duration(x.Max),
			x.known(x.CPU), x.known(x.Delay), x.known(x.Off), fmt.Sprint(x.Left), cell(x.Name)+at(cell(base(x.File)), x.Line))
	}
	t.end()
	if slices.ContainsFunc(r.Traced, func(x Traced) bool { return x.Calls > 0 && !x.Exact }) {
		fmt.Fprintln(w, "  on CPU, for a CPU, waited: by samples, for calls of at least two of their intervals; --kernel=auto measures them")
	}
	x := &r.Traced[0]
	if len(x.Histogram) == 0 {
		return
	}
	fmt.Fprintf(w, "  Slowest calls of %s\n", cell(x.Name))
	t = newTable(w, "at", "took", "on CPU", "for a CPU", "waited", "caller", "woken by", "thread")
	for i := range x.Slowest[:min(len(x.Slowest), slowestShown)] {
		c := &x.Slowest[i]
		t.row(duration(c.At), duration(c.Duration), orUnknown(c.CPU), orUnknown(c.Delay), orUnknown(c.Off), cell(c.Caller), cell(c.Woken), cell(strings.TrimSpace(fmt.Sprintf("%s (%d)", c.Thread, c.TID))))
	}
	t.end()
	var most uint64
	for _, b := range x.Histogram {
		most = max(most, b.Calls)
	}
	fmt.Fprintf(w, "  Durations of %s\n", cell(x.Name))
	for _, b := range x.Histogram {
		bar := strings.Repeat("#", int((b.Calls*histWidth+most-1)/most))
		fmt.Fprintf(w, "  %10s  %-*s  %d\n", "≤ "+duration(b.UpTo), histWidth, bar, b.Calls)
	}
}

// slowestShown is how many of the slowest calls the text has.
const slowestShown = 5

// orUnknown is a duration, "-" for nil.
func orUnknown(ns *int64) string {
	if ns == nil {
		return "-"
	}
	return duration(*ns)
}

// known is a sum over the calls whose times are known, with their number if it is not all, "-" if there are none.
func (x *Traced) known(ns int64) string {
	switch {
	case x.Timed == 0:
		return "-"
	case x.Timed < x.Calls:
		return fmt.Sprintf("%s of %d", duration(ns), x.Timed)
	}
	return duration(ns)
}

// base is a path's last part, "" for none.
func base(file string) string { return file[strings.LastIndexByte(file, '/')+1:] }

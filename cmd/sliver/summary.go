package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

func isTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// statusLine shows the progress of the recording on one line, once a second.
type statusLine struct {
	w    io.Writer
	s    *session.Session
	stop chan struct{}
	wg   sync.WaitGroup
}

func newStatusLine(e *env, s *session.Session, quiet bool) *statusLine {
	l := &statusLine{w: e.stderr, s: s, stop: make(chan struct{})}
	if quiet || !isTerminal(e.stderr) {
		return l
	}
	l.wg.Add(1)
	go l.loop()
	return l
}

func (l *statusLine) loop() {
	defer l.wg.Done()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last session.Status
	for {
		select {
		case <-tick.C:
			st := l.s.Status()
			l.show(statusText(st, last))
			last = st
		case <-l.stop:
			l.show("")
			return
		}
	}
}

// show replaces the line; text beyond the terminal's width is cut.
func (l *statusLine) show(s string) {
	width := 80
	if f, ok := l.w.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			width = w
		}
	}
	if len(s) >= width {
		s = s[:width-1]
	}
	fmt.Fprintf(l.w, "\r\x1b[K%s", s)
}

func statusText(st, last session.Status) string {
	secs := (st.Elapsed - last.Elapsed).Seconds()
	if secs <= 0 {
		secs = 1
	}
	if st.Awaits != "" {
		return fmt.Sprintf("recording %s, waits for a thread that matches %s", st.Elapsed.Round(time.Second), st.Awaits)
	}
	s := fmt.Sprintf("recording %s, %s, %.0f samples/s, stopped %s", st.Elapsed.Round(time.Second),
		plural.Of(st.Threads, "thread"), float64(st.Total.Samples-last.Total.Samples)/secs, share(session.Share(st.Total)))
	if st.Processes > 0 {
		s += ", " + plural.Either(st.Processes, "process", "processes")
	}
	if st.LeftOut > 0 {
		s += fmt.Sprintf(", %d left out", st.LeftOut)
	}
	if l := allLosses(&st.Total, st.Tasks, st.Unrecorded); l != "" {
		s += ", " + l
	}
	return s
}

func (l *statusLine) close() {
	close(l.stop)
	l.wg.Wait()
}

// share formats a share of one in percent with two significant digits.
func share(x float64) string {
	switch x *= 100; {
	case x == 0:
		return "0%"
	case x < leastPercent:
		return fmt.Sprintf("below %v%%", leastPercent)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 0, 64) + "%"
	}
	return strconv.FormatFloat(x, 'g', 2, 64) + "%"
}

// leastPercent is the smallest share that is shown as a number.
const leastPercent = .001

// losses lists every kind of missing or incomplete sample.
func losses(t *stack.ThreadStats) string {
	var out []string
	for _, l := range []struct {
		n    uint64
		what string
	}{
		{t.Late, late(t)}, {t.Truncated, "truncated"}, {t.TimedOut, "timed out"}, {t.Denied, "denied"},
		{t.Rested, "left out of threads that mostly slept"}, {t.Stretched, "left out for the overhead bound"}, {t.Overwritten, "events overwritten"},
	} {
		if l.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", l.n, l.what))
		}
	}
	return strings.Join(out, ", ")
}

// late describes ticks that were skipped, and how many of them because of the file.
func late(t *stack.ThreadStats) string {
	if t.Behind == 0 {
		return "late"
	}
	return fmt.Sprintf("late (%d of them because the file was written too slowly)", t.Behind)
}

// allLosses adds the losses of task scans, and the threads that are not recorded.
func allLosses(t *stack.ThreadStats, tasks trace.LostTasks, missing []trace.Unrecorded) string {
	all := []string{losses(t), tasks.String()}
	for _, u := range missing {
		all = append(all, u.String())
	}
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), ", ")
}

// lossesOf adds the threads that fd does not sample to its samplers' losses.
func lossesOf(fd interface{ Unrecorded() []trace.Unrecorded }) func(*stack.ThreadStats) string {
	return func(t *stack.ThreadStats) string { return allLosses(t, trace.LostTasks{}, fd.Unrecorded()) }
}

// moment formats ns with three digits and a suitable unit.
func moment(ns int64) string {
	switch {
	case ns < 999_500:
		return fmt.Sprintf("%.3g µs", float64(ns)/1e3)
	case ns < 999_500_000:
		return fmt.Sprintf("%.3g ms", float64(ns)/1e6)
	}
	return fmt.Sprintf("%.3g s", float64(ns)/1e9)
}

func bytesText(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d bytes", n)
	case n < 10_000_000:
		return fmt.Sprintf("%.4g kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.4g MB", float64(n)/1e6)
}

// childrenTold is the lowest CPU time of the target's children that the summary shows; it must also be a
// tenth of the CPU time of the target itself.
const childrenTold = 20 * time.Millisecond

// span formats a duration to a tenth of a second, and shorter ones with three digits.
func span(d time.Duration) string {
	if d < 100*time.Millisecond {
		return moment(int64(d))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func writeSummary(w io.Writer, r *session.Result, p trace.Process) {
	t := r.Stats.Total()
	fmt.Fprintf(w, "recorded %s of %s (%d)%s for %s, until %s\n", threadsText(r), printable(p.Comm), p.PID, othersText(r),
		span(r.Duration), r.Reason)
	clocked := ""
	if t.Clocked > 0 {
		clocked = fmt.Sprintf("%d by a CPU clock, ", t.Clocked)
	}
	fmt.Fprintf(w, "  samples  %d: %s%d by a stop, %d of threads that had not run, %d read while blocked\n",
		t.Samples, clocked, t.Stopped(), t.Unrun, t.Read)
	if r.Threads == 0 && p.ThreadSpec != "" {
		fmt.Fprintf(w, "           no thread matched %s while it ran\n", p.ThreadSpec)
	} else if t.Samples == 0 {
		fmt.Fprintln(w, "           it was over before the first tick; a shorter interval (-i) sees more")
	}
	lost := []string{}
	if l := allLosses(&t, r.Tasks, nil); l != "" {
		lost = append(lost, l)
	}
	for _, u := range r.Stats.Unrecorded {
		lost = append(lost, u.String())
	}
	if l := unsampled(r); l != "" {
		lost = append(lost, l)
	}
	if len(lost) == 0 {
		lost = append(lost, "none")
	}
	for i, l := range lost {
		summaryLine(w, []string{"losses", ""}[min(i, 1)], l)
	}
	for _, l := range overruns(r) {
		summaryLine(w, "ended", l)
	}
	if s := cutText(&t); s != "" {
		summaryLine(w, "cut", s)
	}
	if ps := r.Stats.Pause; ps.Count > 0 {
		fmt.Fprintf(w, "  pauses   mean %s, p99 %s, max %s; %s of the threads' time\n", moment(ps.Mean), moment(ps.P99), moment(ps.Max),
			share(session.Share(t)))
	}
	if l := costText(&r.Cost, r.Interval); l != "" {
		summaryLine(w, "cost", l)
	}
	if r.Processes == nil && r.Children >= childrenTold && int64(r.Children)*10 >= t.CPUNS {
		summaryLine(w, "left out", fmt.Sprintf("%s of CPU in other programs that %s started; 'sliver watch --name NAME' waits for one of them",
			span(r.Children), printable(p.Comm)))
	}
	eachWrote(r.Files, func(line, left string) {
		fmt.Fprintf(w, "  wrote    %s\n", line)
		if left != "" {
			fmt.Fprintf(w, "           without %s\n", left)
		}
	})
	for i, s := range r.Problems {
		if i == 5 {
			fmt.Fprintf(w, "  names    and %s\n", plural.Of(len(r.Problems)-i, "more problem"))
			break
		}
		fmt.Fprintf(w, "  names    %s\n", oneLine(fmt.Errorf("%s", s)))
	}
}

// summaryWidth is the most columns of a line of the summary, but for paths.
const summaryWidth = 100

// summaryLine prints a labelled line, or several of them where it is longer than summaryWidth.
func summaryLine(w io.Writer, label, text string) {
	const indent = 11
	fmt.Fprintf(w, "  %-8s %s\n", label, wrap(text, summaryWidth-indent, strings.Repeat(" ", indent)))
}

// ordinal formats a number as 2nd, 4th, 21st.
func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// threadsText returns how many threads were recorded, and of how many if some were not.
func threadsText(r *session.Result) string {
	if n := r.Stats.Missing(); n > 0 {
		return fmt.Sprintf("%d of %d threads", r.Threads, r.Threads+n)
	}
	return plural.Of(r.Threads, "thread")
}

// unsampled describes the CPU time that no thread of the recording has; "" if it is little.
func unsampled(r *session.Result) string {
	if whole, _ := r.LeftOut.Missing(); whole > 0 { // a separate line has it
		return ""
	}
	missing, all := int64(0), int64(0)
	add := func(cpu, threads int64) {
		missing, all = missing+trace.Unsampled(cpu, threads, int64(r.Interval)), all+cpu
	}
	for i := range r.Processes {
		add(r.Processes[i].CPU, r.Processes[i].Stats.CPUNS)
	}
	if r.Processes == nil {
		add(max(r.Stats.CPU, r.CPU), r.Stats.Total().CPUNS)
	}
	if missing == 0 {
		return ""
	}
	return trace.UnsampledText(missing, all)
}

// overruns explains why a recording took more than a twentieth longer than requested.
func overruns(r *session.Result) (out []string) {
	if r.Asked == 0 || r.Reason != "duration" {
		return nil
	}
	least := r.Asked / 20
	if late := r.Duration - r.Asked; late > least {
		out = append(out, fmt.Sprintf("%s late: the samplers had to wait for a CPU, or for threads that did not stop", span(late)))
	}
	if late := r.Releasing; late > least {
		out = append(out, fmt.Sprintf("%s after the last sample: detaching from %s took this long", span(late), plural.Of(r.Threads, "thread")))
	}
	if r.Writing > least && r.Writing > time.Second {
		out = append(out, fmt.Sprintf("%s later with the file: names were looked up and outputs written", span(r.Writing)))
	}
	return out
}

// costText describes the cost of a recording and the measures taken to stay within the limit.
func costText(c *sampler.Cost, interval time.Duration) string {
	if !c.Measured {
		return ""
	}
	s := fmt.Sprintf("%s of the CPUs for sliver itself", share(c.Own))
	if c.Stops > 0 {
		s += fmt.Sprintf(", %s of the process's CPU time in stops and samples of its clocks", share(c.Stops))
	}
	var did, bounds []string
	if c.Bound > 0 {
		bounds = append(bounds, "--max-overhead "+share(c.Bound))
	}
	if c.Limit > 0 && c.Limited {
		bounds = append(bounds, "--max-cpu "+share(c.Limit))
	}
	if c.Busy > 0 {
		bounds = append(bounds, share(c.Busy)+" of the processes' CPU time while no CPU is idle")
	}
	if len(bounds) == 0 {
		return s
	}
	if c.Naps > 1 {
		did = append(did, fmt.Sprintf("sleeping threads were looked at each %s tick at least", ordinal(int(c.Naps))))
	}
	if c.Factor > 1 {
		did = append(did, fmt.Sprintf("the interval was stretched from %s to %s", moment(int64(interval)), moment(int64(float64(interval)*c.Factor))))
	}
	if len(did) > 0 {
		s += fmt.Sprintf("; to hold %s, %s", strings.Join(bounds, " and "), strings.Join(did, " and "))
	}
	return s
}

// openHint says how to open a format.
func openHint(format, path string) string {
	switch format {
	case "sliver":
		return fmt.Sprintf("; next: sliver export %s -o FILE.pftrace", path)
	case "perfetto":
		return "; open in https://ui.perfetto.dev"
	case "pprof":
		return fmt.Sprintf("; go tool pprof -http=: %s", path)
	}
	return ""
}

// summaryJSON is the output of --json. It is documented in docs/summary-json.md and kept stable.
type summaryJSON struct {
	Samples      uint64     `json:"samples"`
	Threads      int        `json:"threads"`
	Late         uint64     `json:"late"`
	Behind       uint64     `json:"behind"`
	Untaken      int        `json:"untaken"`
	Unrecorded   int        `json:"unrecorded"`
	Rested       uint64     `json:"rested"`
	Truncated    uint64     `json:"truncated"`
	TimedOut     uint64     `json:"timed_out"`
	Denied       uint64     `json:"denied"`
	Stretched    uint64     `json:"stretched"`
	Overwritten  uint64     `json:"overwritten"`
	TasksLost    int        `json:"tasks_lost"`
	Stops        uint64     `json:"stops"`
	Unrun        uint64     `json:"unrun"`
	Read         uint64     `json:"read"`
	Clocked      uint64     `json:"clocked"`
	StoppedShare float64    `json:"stopped_share"`
	Pause        pauseJSON  `json:"pause_ns"`
	DurationNS   int64      `json:"duration_ns"`
	AskedNS      int64      `json:"asked_ns"`
	SampledNS    int64      `json:"sampled_ns"`
	ReleasingNS  int64      `json:"releasing_ns"`
	WritingNS    int64      `json:"writing_ns"`
	Cost         *costJSON  `json:"cost,omitempty"`
	Reason       string     `json:"reason"`
	Files        []fileJSON `json:"files"`
	Problems     []string   `json:"problems"`
	SelfCPUNS    int64      `json:"self_cpu_ns"`
	ChildrenNS   int64      `json:"children_cpu_ns"`
	FirstNS      int64      `json:"first_sample_ns"`

	Processes []processJSON  `json:"processes,omitempty"`
	LeftOut   *trace.LeftOut `json:"left_out,omitempty"`
	Tracing   *tracingJSON   `json:"tracing,omitempty"`
}

type costJSON struct {
	Bound   float64 `json:"bound"`
	MaxCPU  float64 `json:"max_cpu"`
	MaxBusy float64 `json:"max_busy"`
	Own     float64 `json:"own"`
	Stops   float64 `json:"stops"`
	Stretch float64 `json:"stretch"`
	Naps    int     `json:"naps"`
}

type pauseJSON struct {
	Mean  int64 `json:"mean"`
	P50   int64 `json:"p50"`
	P90   int64 `json:"p90"`
	P99   int64 `json:"p99"`
	P999  int64 `json:"p999"`
	Max   int64 `json:"max"`
	Under int64 `json:"under_40us"`

	UnderShare float64 `json:"under_40us_share"`
	Worst      int64   `json:"worst_of_10000"`
}

type fileJSON struct {
	Path   string `json:"path"`
	Format string `json:"format"`
	Bytes  int64  `json:"bytes"`
	Left   string `json:"left_out,omitempty"`
}

func writeSummaryJSON(w io.Writer, r *session.Result) error {
	t, ps := r.Stats.Total(), r.Stats.Pause
	out := summaryJSON{
		Samples: t.Samples, Threads: r.Threads, Late: t.Late, Behind: t.Behind, Untaken: r.Untaken, Unrecorded: r.Stats.Missing(), Rested: t.Rested, Truncated: t.Truncated, TimedOut: t.TimedOut, Denied: t.Denied,
		Stretched: t.Stretched, Overwritten: t.Overwritten, TasksLost: r.Tasks.N, Stops: t.Stopped(), Unrun: t.Unrun, Read: t.Read, Clocked: t.Clocked,
		StoppedShare: session.Share(t), DurationNS: int64(r.Duration), AskedNS: int64(r.Asked), SampledNS: int64(r.Duration), ReleasingNS: int64(r.Releasing), WritingNS: int64(r.Writing), Reason: r.Reason, SelfCPUNS: r.Stats.SelfCPU,
		FirstNS: int64(r.FirstSample), ChildrenNS: int64(r.Children),
		Pause:    pauseJSON{ps.Mean, ps.P50, ps.P90, ps.P99, ps.P999, ps.Max, int64(ps.Under), ps.UnderShare(), ps.P9999},
		Files:    []fileJSON{},
		Problems: []string{},
	}
	for _, u := range r.Stats.Unrecorded {
		out.Problems = append(out.Problems, u.String())
	}
	if l := unsampled(r); l != "" {
		out.Problems = append(out.Problems, l)
	}
	out.Problems = append(out.Problems, r.Problems...)
	if c := r.Calls; c != nil {
		out.Problems = append(out.Problems, methodLosses(c.LostBytes, c.Missing, c.Silent)...)
		out.Tracing = tracingOf(c.Engine, &c.Stats)
	}
	if out.Processes = processesJSON(r); r.Processes != nil {
		out.LeftOut = &r.LeftOut
	}
	if c := r.Cost; c.Measured {
		out.Cost = &costJSON{c.Bound, c.Limit, c.Busy, c.Own, c.Stops, c.Factor, c.Naps}
	}
	for _, f := range r.Files {
		out.Files = append(out.Files, fileJSON{f.Path, f.Format, f.Bytes, f.Left})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/export/view"
)

// WriteJSON writes the document of docs/report-json.md and a line end.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// duration is ns with three digits in a unit that suits it, "-" for 0.
func duration(ns int64) string {
	f := float64(ns)
	switch {
	case ns == 0:
		return "-"
	case ns < 1e3:
		return strconv.FormatInt(ns, 10) + "ns"
	case ns < 1e6:
		return digits(f/1e3) + "µs"
	case ns < 1e9:
		return digits(f/1e6) + "ms"
	}
	return digits(f/1e9) + "s"
}

func digits(f float64) string {
	switch {
	case f >= 100:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}

func percent(part, whole int64) string {
	if whole <= 0 || part <= 0 {
		return ""
	}
	return fmt.Sprintf(" %.0f%%", 100*float64(part)/float64(whole))
}

// count is a number of things, "" for 0.
func count(n uint64, what string) string {
	if n == 0 {
		return ""
	}
	if n != 1 {
		what += "s"
	}
	return strconv.FormatUint(n, 10) + " " + what
}

// maxCell is how wide a name is in a table of text, in characters.
const maxCell = 70

func cell(s string) string {
	if r := []rune(s); len(r) > maxCell {
		// What tells two of a kind apart is at the end: a place, an address, a method.
		head := maxCell / 3
		return string(r[:head]) + "…" + string(r[len(r)-(maxCell-1-head):])
	}
	if s == "" {
		return "-"
	}
	return s
}

// at is the place behind a function's name, as far as it is known.
func at(file string, line int) string {
	switch {
	case file == "" || file == ".":
		return ""
	case line <= 0: // code that a runtime made has no lines
		return " (" + file + ")"
	}
	return fmt.Sprintf(" (%s:%d)", file, line)
}

// more says that a table has further rows.
func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d more; --top shows more)", n)
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	p := func(format string, args ...any) { fmt.Fprintf(b, format, args...) }
	x := &r.Recording
	p("%s (%d): %s", x.Name, x.PID, duration(x.Duration))
	if !x.Begin.IsZero() {
		p(" from %s", x.Begin.Format(time.RFC3339))
	}
	if x.Interval > 0 {
		p(", a sample every %s", duration(x.Interval))
	}
	if x.Shown != "" {
		p("; %s", x.Shown)
	}
	p("\n%s\n", x.Command)
	if left := r.Idle.String(); left != "" {
		p("left out: %s\n", left)
	}
	r.textTasks(b)
	r.textThreads(b)
	r.textLocks(b)
	r.textCalls(b)
	r.textFunctions(b)
	r.textLongest(b)
	if len(r.OnCPU) > 0 {
		p("\nOn the CPUs, by function%s\n", more(r.More.OnCPU))
		t := newTable(b, "self", "with calls", "function")
		for _, f := range r.OnCPU {
			t.row(duration(f.Self), duration(f.Total), cell(f.Name)+at(cell(path.Base(f.File)), f.Line))
		}
		t.end()
	}
	c := &r.Cost
	p("\nWhat sliver took\n  %d samples, %d with a stop; the threads were held for %s in all, %.3f%% of their time\n", c.Samples, c.Stops, duration(c.Held), 100*c.Share)
	if c.Stops > 0 {
		p("  a stop: mean %s, p99 %s, longest %s\n", duration(c.Mean), duration(c.P99), duration(c.Max))
	}
	if c.Restarted > 0 {
		p("  %s put back\n", count(c.Restarted, "interrupted call"))
	}
	if c.Self > 0 {
		p("  CPU time of sliver itself: %s\n", duration(c.Self))
	}
	if len(r.Losses) > 0 {
		p("\nMissing\n")
		for _, l := range r.Losses {
			p("  %s\n", l)
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// table is one of text: numbers to the right, the last column to the left.
type table struct {
	w    io.Writer
	rows [][]string
}

func newTable(w io.Writer, head ...string) *table { return &table{w: w, rows: [][]string{head}} }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) end() {
	width := make([]int, len(t.rows[0]))
	for _, r := range t.rows {
		for i, c := range r {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	for _, r := range t.rows {
		line := " "
		for i, c := range r {
			line += " "
			if pad := strings.Repeat(" ", width[i]-len([]rune(c))); i == len(r)-1 || left(t.rows[0][i]) {
				line += c + pad
			} else {
				line += pad + c
			}
			line += " "
		}
		fmt.Fprintln(t.w, strings.TrimRight(line, " "))
	}
}

// left reports whether a column holds words.
func left(head string) bool {
	switch head {
	case "call", "thread", "function", "for":
		return true
	}
	return false
}

func (r *Report) textTasks(w io.Writer) {
	x := r.Tasks
	if x == nil {
		return
	}
	fmt.Fprintf(w, "\nGoroutines: %d, on threads for %s, ready to run for %s", x.Count, duration(x.Ran), duration(x.Ready))
	if x.Idle > 0 {
		fmt.Fprintf(w, "; %s of the runtime left out, --idle shows them", count(uint64(x.Idle), "goroutine"))
	}
	fmt.Fprintln(w)
	t := newTable(w, "ran", "ready", "waited", "goroutines", "function")
	for i := range x.Funcs {
		f := &x.Funcs[i]
		t.row(duration(f.Ran), duration(f.Ready), duration(f.Waited), strconv.Itoa(f.Tasks), cell(f.Name))
	}
	t.end()
	fmt.Fprintf(w, "\nWaits of goroutines%s\n", more(r.More.TaskWaits))
	t = newTable(w, "total", "longest", "waits", "goroutines", "for", "function")
	for i := range x.Waits {
		f := &x.Waits[i]
		in := cell(f.Func) + at(cell(path.Base(f.File)), f.Line)
		if len(f.Holders) > 0 {
			in += ", held by " + strings.Join(f.Holders, ", ")
		}
		t.row(duration(f.Total), duration(f.Longest), strconv.Itoa(f.Waits), strconv.Itoa(f.Tasks), f.For, in)
	}
	t.end()
}

func (r *Report) textThreads(w io.Writer) {
	fmt.Fprintf(w, "\nThreads%s\n", more(r.More.Threads))
	t := newTable(w, "observed", "on CPU", "runnable", "blocked", "for locks", "idle", "uninterruptible", "stopped", "switches", "waits", "held by sliver", "thread")
	for i := range r.Threads {
		x := &r.Threads[i]
		t.row(duration(x.Observed), duration(x.CPU)+percent(x.CPU, x.Observed), duration(x.Runnable), duration(x.Blocked)+percent(x.Blocked, x.Observed),
			duration(x.Locks), duration(x.Idle), duration(x.Disk), duration(x.Stopped), strconv.FormatUint(x.Switches, 10), strconv.Itoa(x.Waits), duration(x.Held),
			fmt.Sprintf("%s (%d)", cell(x.Name), x.TID))
	}
	t.end()
}

func listed(s []Share) string {
	var parts []string
	for _, x := range s {
		parts = append(parts, fmt.Sprintf("%s %d× %s", cell(x.Name), x.Waits, duration(x.Total)))
	}
	return strings.Join(parts, ", ")
}

func (r *Report) textLocks(w io.Writer) {
	fmt.Fprintf(w, "\nBy lock%s\n", more(r.More.Locks))
	if len(r.Locks) == 0 {
		fmt.Fprintln(w, "  no thread was seen to wait for one")
		return
	}
	t := newTable(w, "total", "longest", "waits", "at once", "lock")
	for i := range r.Locks {
		x := &r.Locks[i]
		t.row(duration(x.Total), duration(x.Longest), strconv.Itoa(x.Waits), strconv.Itoa(x.Most), cell(x.Name))
	}
	t.end()
	for i := range r.Locks {
		x := &r.Locks[i]
		fmt.Fprintf(w, "  %s\n", x.Name)
		for _, l := range []struct{ what, text string }{{"held by", listed(x.Holders)}, {"holder", x.Unknown}, {"held in", listed(x.HolderIn)}, {"wanted in", listed(x.WaiterIn)}} {
			if l.text != "" {
				fmt.Fprintf(w, "    %-9s  %s\n", l.what, l.text)
			}
		}
	}
}

func (r *Report) textCalls(w io.Writer) {
	fmt.Fprintf(w, "\nBy call, and what for%s\n", more(r.More.Calls))
	t := newTable(w, "total", "longest", "waits", "threads", "call", "for")
	for i := range r.Calls {
		x := &r.Calls[i]
		what := x.For
		if what == "" {
			what = x.Kind
		}
		t.row(duration(x.Total), duration(x.Longest), strconv.Itoa(x.Waits), strconv.Itoa(x.Threads), x.Call, cell(what))
	}
	t.end()
}

func (r *Report) textFunctions(w io.Writer) {
	fmt.Fprintf(w, "\nWaiting, by function%s\n", more(r.More.Functions))
	t := newTable(w, "total", "longest", "waits", "function", "mostly for")
	for i := range r.Functions {
		x := &r.Functions[i]
		t.row(duration(x.Total), duration(x.Longest), strconv.Itoa(x.Waits), cell(x.Name)+at(cell(path.Base(x.File)), x.Line), cell(x.For))
	}
	t.end()
}

func (r *Report) textLongest(w io.Writer) {
	if len(r.Longest) == 0 {
		return
	}
	fmt.Fprintf(w, "\nLongest waits\n")
	for i := range r.Longest {
		x := &r.Longest[i]
		end := ""
		if x.Cut {
			end = ", when the recording ended"
		}
		fmt.Fprintf(w, "  %s of %s (%d) at %s%s, %s\n", duration(x.Duration), cell(x.Thread), x.TID, view.Duration(x.Begin/1e6*1e6), end, x.State)
		for _, f := range x.Facts {
			if f.Name != view.DetailCall {
				fmt.Fprintf(w, "    %-15s  %s\n", strings.ReplaceAll(f.Name, "_", " "), f.Value)
			}
		}
		for _, f := range x.Stack {
			fmt.Fprintf(w, "      %s%s\n", f.Func, at(f.File, f.Line))
		}
	}
}

package top

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/idle"
)

// Head is the description of the process above a printed table.
type Head struct {
	PID     int
	Comm    string
	Ended   bool   // the process has ended
	Losses  string // of samples, since the start; "": none
	Samples uint64 // since the start
}

// Layout configures a printed table.
type Layout struct {
	By      By
	Funcs   FuncOrder
	Threads ThreadOrder
	Filter  *Filter // of functions
	Rows    int     // maximum, of each kind; 0: all
	Width   int     // columns; 0: no limit
}

// WriteText prints a table once, as plain text.
func (t *Table) WriteText(w io.Writer, h *Head, l *Layout) error {
	b := bufio.NewWriter(w)
	line := func(format string, args ...any) {
		b.WriteString(Cut(Plain(fmt.Sprintf(format, args...)), l.Width))
		b.WriteByte('\n')
	}
	span := int64(t.Span)
	ended := ""
	if h.Ended {
		ended = ", ended"
	}
	n := len(t.Threads) + t.Left.Threads
	threads := plural.Of(n, "thread")
	what := fmt.Sprintf("PID %d (%s)", h.PID, h.Comm)
	if t.Processes != nil {
		what = h.Comm
	}
	line("%s%s: %s, CPU %s, %s, window %.2gs", what, ended, threads, Share(t.CPU(), span), plural.Of(h.Samples, "sample"), t.Span.Seconds())
	if loss := t.Losses(h.Losses); loss != "" {
		line("losses: %s", loss)
	}
	if left := t.Left.String(); left != "" {
		line("left out: %s", left)
	}
	if hint := t.Interpreted(); hint != "" {
		line("%s", hint)
	}
	if t.Processes != nil {
		line("")
		line("%7s %7s  %7s  PROCESS", "PID", "CPU", "THREADS")
		for i, p := range SortProcesses(slices.Clone(t.Processes)) {
			if i == l.Rows && l.Rows > 0 {
				line("and %d more", len(t.Processes)-i)
				break
			}
			line("%s", p.Text(span))
		}
	}
	fs := SortFuncs(l.Filter.Funcs(slices.Clone(t.Funcs)), l.By, l.Funcs)
	line("")
	line("%7s %7s  FUNCTION (by %s)", "SELF", "TOTAL", l.By)
	for i := range fs {
		if i == l.Rows && l.Rows > 0 {
			line("and %d more", len(fs)-i)
			break
		}
		line("%7s %7s  %s", Share(l.By.Of(fs[i].Self), span), Share(l.By.Of(fs[i].Total), span), FuncText(&fs[i]))
	}
	line("")
	rows := SortThreads(slices.Clone(t.Threads), l.Threads)
	width := NameWidth(rows)
	line("%s", t.ThreadHead(width, "WAITS FOR, OR IS IN"))
	for i := range rows {
		if i == l.Rows && l.Rows > 0 {
			line("and %d more", len(rows)-i)
			break
		}
		line("%s", rows[i].Text(span, width))
	}
	return b.Flush()
}

// CPU returns the CPU time, in ns, of all threads, idle ones included: of a large pool, they may use a whole CPU.
func (t *Table) CPU() int64 {
	ns := t.IdleCPU
	for i := range t.Threads {
		ns += t.Threads[i].CPU
	}
	return ns
}

// Losses joins the sampler's losses (as text) and the table's.
func (t *Table) Losses(sampler string) string {
	s := sampler
	add := func(n uint64, what string) {
		if n == 0 {
			return
		}
		if s != "" {
			s += ", "
		}
		s += fmt.Sprintf("%d %s", n, what)
	}
	add(t.Lost, "events overwritten")
	add(t.Folded, "frames of too many stacks left out")
	return s
}

// manyRuntime is the inverse of the share of time from which the interpreter's own code is worth a line.
const manyRuntime = 10

// Interpreted describes how the interpreter's own code is counted, and how to change that; "": it has used
// little time, or the table has no functions that it runs.
func (t *Table) Interpreted() string {
	if !slices.ContainsFunc(t.Funcs, func(f Func) bool { return stack.ManagedModule(f.Module) }) {
		return ""
	}
	if t.NoRuntime {
		return "the interpreter's own code counts for the functions that it runs; --kinds all shows it"
	}
	var own, all int64
	for i := range t.Funcs {
		f := &t.Funcs[i]
		all += f.Self.CPU
		if f.Self.CPU > 0 && !stack.ManagedModule(f.Module) && stack.Interpreter(f.Module, f.Name, "") {
			own += f.Self.CPU
		}
	}
	if own*manyRuntime < all || own == 0 {
		return ""
	}
	return fmt.Sprintf("%s of the CPU time is the interpreter's own code; --kinds no-runtime counts it for the functions that it runs", Share(own, all))
}

// FuncText returns a function's name with its module.
func FuncText(f *Func) string {
	return f.Name + InModule(f.Module)
}

// NameWidth returns the width of the column of thread names: the kernel's names have at
// most 15 characters, those of runtimes more.
func NameWidth(rows []Row) int {
	const least, most = 15, 24
	w := least
	for i := range rows {
		w = max(w, utf8.RuneCountInString(rows[i].Name))
	}
	return min(w, most)
}

// ThreadHead formats the heading of the threads, with the name in name columns.
func (t *Table) ThreadHead(name int, last string) string {
	pid := ""
	if t.Processes != nil {
		pid = fmt.Sprintf("%7s ", "PID")
	}
	return pid + fmt.Sprintf("%7s %7s  %-8s %-*s  %s", "TID", "CPU", "STATE", name, "NAME", last)
}

// Text formats a process's line.
func (p *Process) Text(span int64) string {
	ended := ""
	if p.Ended {
		ended = " (ended)"
	}
	return fmt.Sprintf("%7d %7s  %7d  %s%s", p.PID, Share(p.CPU, span), p.Threads, p.Comm, ended)
}

// Text formats a thread's line with the name in name columns.
func (r *Row) Text(span int64, name int) string {
	pid := ""
	if r.PID != 0 {
		pid = fmt.Sprintf("%7d ", r.PID)
	}
	return pid + fmt.Sprintf("%7d %7s  %-8s %-*s  %s", r.TID, Share(r.CPU, span), StateText(r.State), name, Cut(r.Name, name), r.Doing())
}

// Cut shortens s to width columns (runes); 0 means no limit.
func Cut(s string, width int) string {
	if width <= 0 || len(s) <= width {
		return s
	}
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:width-1]) + "…"
}

// tableJSON is the JSON form; docs/top-json.md documents it.
type tableJSON struct {
	Version int          `json:"version"`
	PID     int          `json:"pid"`
	Name    string       `json:"name"`
	Ended   bool         `json:"ended"`
	Window  int64        `json:"window_ns"`
	Samples uint64       `json:"samples"`
	Losses  string       `json:"losses"`
	Idle    idle.Left    `json:"idle"`
	Funcs   []funcJSON   `json:"functions"`
	Threads []threadJSON `json:"threads"`
	// Of several processes only.
	Processes []processJSON `json:"processes,omitempty"`
}

type processJSON struct {
	PID     int    `json:"pid"`
	Name    string `json:"name"`
	Ended   bool   `json:"ended"`
	Threads int    `json:"threads"`
	CPU     int64  `json:"cpu_ns"`
	Wall    int64  `json:"wall_ns"`
}

type funcJSON struct {
	Func      string `json:"func"`
	Module    string `json:"module,omitempty"`
	SelfWall  int64  `json:"self_wall_ns"`
	SelfCPU   int64  `json:"self_cpu_ns"`
	TotalWall int64  `json:"total_wall_ns"`
	TotalCPU  int64  `json:"total_cpu_ns"`
}

type threadJSON struct {
	TID    stack.TID `json:"tid"`
	Name   string    `json:"name"`
	State  string    `json:"state"`
	CPU    int64     `json:"cpu_ns"`
	Wall   int64     `json:"wall_ns"`
	Func   string    `json:"func,omitempty"`
	Waits  string    `json:"waits_for,omitempty"`
	Holder stack.TID `json:"holder_tid,omitempty"`
	PID    int       `json:"pid,omitempty"`
}

// WriteJSON prints a table as one JSON document.
func (t *Table) WriteJSON(w io.Writer, h *Head, l *Layout) error {
	out := tableJSON{Version: 1, PID: h.PID, Name: h.Comm, Ended: h.Ended, Window: int64(t.Span), Samples: h.Samples,
		Losses: t.Losses(h.Losses), Idle: t.Left, Funcs: []funcJSON{}, Threads: []threadJSON{}}
	for _, f := range SortFuncs(l.Filter.Funcs(slices.Clone(t.Funcs)), l.By, l.Funcs) {
		if l.Rows > 0 && len(out.Funcs) == l.Rows {
			break
		}
		out.Funcs = append(out.Funcs, funcJSON{f.Name, f.Module, f.Self.Wall, f.Self.CPU, f.Total.Wall, f.Total.CPU})
	}
	for _, r := range SortThreads(slices.Clone(t.Threads), l.Threads) {
		if l.Rows > 0 && len(out.Threads) == l.Rows {
			break
		}
		out.Threads = append(out.Threads, threadJSON{r.TID, r.Name, r.State.String(), r.CPU, r.Wall, r.Top, r.Waits, r.Holder, r.PID})
	}
	for _, p := range SortProcesses(slices.Clone(t.Processes)) {
		out.Processes = append(out.Processes, processJSON{p.PID, p.Comm, p.Ended, p.Threads, p.CPU, p.Wall})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

package tui

import (
	"fmt"
	"path"
	"strings"

	"github.com/gdamore/tcell/v2"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/session/top"
	"github.com/sliverprof/sliver/stack"
)

// Colours are the terminal's eight standard ones, so that its colour scheme applies.
// Nothing is shown by colour alone. If NO_COLOR is set, the library omits colours.
var (
	plain    = tcell.StyleDefault
	heading  = plain.Bold(true).Underline(true)
	titled   = plain.Reverse(true)
	warning  = plain.Foreground(tcell.ColorMaroon).Bold(true)
	running  = plain.Foreground(tcell.ColorGreen)
	waiting  = plain.Foreground(tcell.ColorOlive)
	selected = plain.Reverse(true)
)

// put writes s on row y from column x on, clipped at the right edge.
func (u *ui) put(x, y int, s string, st tcell.Style) {
	w, h := u.scr.Size()
	if y < 0 || y >= h || x >= w {
		return
	}
	u.scr.PutStrStyled(x, y, top.Cut(top.Plain(s), w-x), st)
}

// fill writes a whole row.
func (u *ui) fill(y int, s string, st tcell.Style) {
	w, _ := u.scr.Size()
	u.put(0, y, fmt.Sprintf("%-*s", w, s), st)
}

// shifted returns s without its first columns, as set by the arrow keys.
func (u *ui) shifted(s string) string {
	if u.shift == 0 {
		return s
	}
	r := []rune(s)
	return string(r[min(u.shift, len(r)):])
}

func (u *ui) draw() {
	u.scr.Clear()
	u.scr.HideCursor()
	_, h := u.scr.Size()
	u.head()
	switch u.page {
	case tablesPage:
		u.tables(3, h-1)
		u.foot(h-1, fmt.Sprintf("q quit  Tab table  Enter stack  s sort  w by %s  i idle  / filter  ? help", 1-u.o.By))
	case stackPage:
		u.stackLines(3, h-1)
		u.foot(h-1, "q quit  Esc back  Up/Down scroll  Left/Right shift  Space pause  ? help")
	case helpPage:
		for i, s := range strings.Split(strings.TrimSpace(help), "\n") {
			if 3+i < h-1 {
				u.put(0, 3+i, s, plain)
			}
		}
		u.foot(h-1, "q quit  Esc back")
	}
	u.scr.Show()
}

const help = `
Functions: SELF is the time on top, TOTAL the time anywhere on the stack, over
the window. 100% is one thread (by wall) or one CPU (by cpu) all the time.

Tab          go to the other table     Up, Down, PgUp, PgDn, Home, End   move
Enter        stack of the chosen thread, live; Esc goes back
s            next order of this table (self, total, name; cpu, name, tid, state)
w            functions by wall time or by CPU time
i            with idle threads and idle waits, or without
/            filter this table: part of a name, or /regexp/; Esc takes it away
Left, Right  shift long names
Space        hold the picture; sampling goes on
Ctrl-L       draw anew
Ctrl-Z       suspend sliver: no samples until it goes on, with fg
q, Ctrl-C    leave`

// head draws the three lines at the top.
func (u *ui) head() {
	t := u.table
	w, _ := u.scr.Size()
	live := t.Left.Threads
	for i := range t.Threads {
		if t.Threads[i].State != stack.StateDead {
			live++
		}
	}
	what := fmt.Sprintf("%d %s", u.o.PID, u.o.Comm)
	if n := len(t.Processes); n == 1 {
		what = fmt.Sprintf("%d %s", t.Processes[0].PID, t.Processes[0].Comm)
	} else if n > 1 || u.o.PID == 0 {
		what = plural.Of(n, "process")
	}
	left := fmt.Sprintf("sliver top %s  %s  CPU %s  %.0f samples/s", what, plural.Of(live, "thread"),
		top.Share(t.CPU(), int64(t.Span)), u.rate)
	clock := u.at.Format("15:04:05")
	u.fill(0, left, titled)
	if len(left)+2+len(clock) < w {
		u.put(w-len(clock), 0, clock, titled)
	}
	order := u.o.Funcs.String()
	if u.focus == threadsPane {
		order = u.threads.String()
	}
	line := fmt.Sprintf("window %s  by %s  sort %s", u.o.Window, u.o.By, order)
	if u.o.Idle {
		line += "  with idle"
	}
	if u.shift > 0 {
		line += fmt.Sprintf("  shifted %d", u.shift)
	}
	u.put(0, 1, line, plain)
	switch {
	case !u.ended.IsZero():
		u.put(len(line)+2, 1, "TARGET ENDED at "+u.ended.Format("15:04:05")+"; q leaves", warning)
	case u.paused:
		u.put(len(line)+2, 1, "PAUSED", warning)
	}
	losses := "no losses"
	if l := t.Losses(u.o.Losses(&u.stats)); l != "" {
		losses = "losses: " + l
	}
	if l := t.Left.String(); l != "" {
		losses += "; left out: " + strings.Replace(l, "--idle shows", "i shows", 1)
	}
	if l := t.Interpreted(); l != "" {
		losses += "; " + l
	}
	u.put(0, 2, losses, plain)
}

func (u *ui) foot(y int, keys string) {
	if u.edit == nil {
		u.put(0, y, keys, plain)
		return
	}
	s := "filter: " + string(u.edit.text)
	st := plain.Bold(true)
	u.put(0, y, s, st)
	if u.edit.bad {
		u.put(len([]rune(s))+2, y, "(not a regular expression yet)", warning)
	}
	w, _ := u.scr.Size()
	u.scr.ShowCursor(min(len([]rune(s)), w-1), y)
}

// tables draws both tables between the rows from and to.
func (u *ui) tables(from, to int) {
	room := max(to-from-2, 0) // without the headings
	th := min(max(len(u.rows), 1), room/2)
	fh := room - th
	u.lists[funcsPane].h, u.lists[threadsPane].h = fh, th
	y := from
	title := "FUNCTION"
	u.heading(funcsPane, y, fmt.Sprintf("%7s %7s  %s", "SELF", "TOTAL", title), len(u.funcs), len(u.table.Funcs))
	y++
	span := int64(u.table.Span)
	first := top1(u.cursor, fh)
	if len(u.funcs) == 0 && fh > 0 {
		u.put(0, y, u.nothing(), plain)
	}
	for i := 0; i < fh && first+i < len(u.funcs); i++ {
		f := &u.funcs[first+i]
		st := plain
		if u.focus == funcsPane && first+i == u.cursor {
			st = selected
		}
		u.fill(y+i, fmt.Sprintf("%7s %7s  %s", top.Share(u.o.By.Of(f.Self), span), top.Share(u.o.By.Of(f.Total), span),
			u.shifted(top.FuncText(f))), st)
	}
	y += fh
	title = "WAITS FOR, OR IS IN"
	if u.filters[threadsPane] != nil {
		title = "DOES" // the filter needs the space
	}
	width := top.NameWidth(u.rows)
	u.heading(threadsPane, y, u.table.ThreadHead(width, title), len(u.rows), len(u.table.Threads))
	y++
	at := u.row()
	first = top1(at, th)
	for i := 0; i < th && first+i < len(u.rows); i++ {
		r := &u.rows[first+i]
		st := stateStyle(r.State)
		if u.focus == threadsPane && first+i == at {
			st = selected
		}
		x := *r
		if r.Waits != "" {
			x.Waits = u.shifted(r.Waits)
		} else {
			x.Top = u.shifted(r.Top)
		}
		u.fill(y+i, x.Text(span, width), st)
	}
}

func (u *ui) heading(p pane, y int, s string, shown, all int) {
	if f := u.filters[p]; f != nil {
		s += fmt.Sprintf("  (filter %s: %d of %d)", f, shown, all)
	}
	if u.focus == p {
		s = ">" + s[1:]
	}
	u.fill(y, s, heading)
}

// The text explains an empty table of functions.
func (u *ui) nothing() string {
	switch {
	case len(u.table.Funcs) > 0 && u.filters[funcsPane] != nil:
		return "nothing matches the filter"
	case u.table.Span == 0 && u.ended.IsZero():
		return "no samples yet"
	case u.o.By == top.CPU:
		return "no CPU time in this window"
	}
	return "no samples in this window"
}

// top1 returns the first row to show so that row at is among the h that fit.
func top1(at, h int) int {
	if at < h {
		return 0
	}
	return at - h + 1
}

func stateStyle(s stack.State) tcell.Style {
	switch s {
	case stack.StateRunning:
		return running
	case stack.StateRunnable, stack.StateDisk, stack.StateFault:
		return waiting
	case stack.StateStopped, stack.StateTraced:
		return warning
	case stack.StateDead:
		return plain.Dim(true)
	}
	return plain
}

func (u *ui) stackLines(from, to int) {
	s := &u.stack
	line := fmt.Sprintf("TID %d %s  %s", s.TID, s.Name, top.StateText(s.State))
	if u.isGone {
		line = fmt.Sprintf("TID %d %s  has ended; its last stack:", s.TID, s.Name)
	} else if s.Waits != "" {
		line += "  waits for " + s.Waits
	}
	u.fill(from, u.shifted(line), heading)
	u.frames = max(to-from-1, 0)
	u.scroll = max(min(u.scroll, len(s.Frames)-u.frames), 0)
	if len(s.Frames) == 0 && u.frames > 0 {
		u.put(0, from+1, "no stack is known", plain)
	}
	for i := 0; i < u.frames && u.scroll+i < len(s.Frames); i++ {
		u.put(0, from+1+i, fmt.Sprintf("%3d  %s", u.scroll+i, u.shifted(frameText(&s.Frames[u.scroll+i]))), plain)
	}
}

func frameText(f *top.Frame) string {
	s := f.Func
	if f.Inlined {
		s += " (inlined)"
	}
	if f.File != "" && f.Line > 0 {
		s += fmt.Sprintf("  %s:%d", path.Base(f.File), f.Line)
	}
	return s + top.InModule(f.Module)
}

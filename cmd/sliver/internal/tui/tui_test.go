package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/sliverprof/sliver/session/top"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/idle"
)

// source simulates a process.
type source struct {
	mu     sync.Mutex
	table  top.Table
	stacks map[int]top.Stack
	ended  time.Time
	asked  int
	idle   bool // shows idle waits
}

func (s *source) ShowIdle(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = on
}

func (s *source) Table() *top.Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	t := s.table
	if s.idle {
		t.Left = idle.Left{}
	}
	return &t
}

func (s *source) Stack(seq int) (top.Stack, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.stacks[seq]
	return st, ok
}

func (s *source) Stats() stack.ThreadStats { return stack.ThreadStats{Late: 3} }

func (s *source) Ended() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func (s *source) set(f func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *source) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// shown is a screen on which Run draws until the test ends.
type shown struct {
	t     *testing.T
	scr   tcell.SimulationScreen
	on    *sizedScreen
	ended chan struct{} // closed when Run has returned
}

func show(t *testing.T, s Source, cols, rows int) *shown {
	t.Helper()
	scr := tcell.NewSimulationScreen("UTF-8")
	ctx, cancel := context.WithCancel(context.Background())
	x := &shown{t: t, scr: scr, ended: make(chan struct{})}
	x.on = &sizedScreen{SimulationScreen: scr, cols: cols, rows: rows}
	go func() {
		defer close(x.ended)
		if err := Run(ctx, x.on, s, Options{PID: 7, Comm: "prog", Window: time.Second, Suspend: x.on.stopped,
			Losses: func(st *stack.ThreadStats) string { return fmt.Sprintf("%d late", st.Late) }}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-x.ended:
		case <-time.After(time.Minute):
			t.Error("Run does not end")
		}
	})
	x.sees("sliver top 7 prog")
	return x
}

// sizedScreen is created with its final size.
type sizedScreen struct {
	tcell.SimulationScreen
	cols, rows int

	mu    sync.Mutex
	seen  string
	calls []string // of Suspend, Options.Suspend and Resume
}

func (s *sizedScreen) called(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, what)
}

func (s *sizedScreen) Suspend() error {
	s.called("suspend")
	return nil
}

func (s *sizedScreen) stopped() { s.called("stopped") }

func (s *sizedScreen) Resume() error {
	s.called("resume")
	return nil
}

func (s *sizedScreen) Init() error {
	err := s.SimulationScreen.Init()
	s.SimulationScreen.SetSize(s.cols, s.rows)
	return err
}

// Show copies the visible cells: only the drawing goroutine may use the library's own
// ones.
func (s *sizedScreen) Show() {
	s.SimulationScreen.Show()
	cells, w, h := s.GetContents()
	var b strings.Builder
	for i := range min(len(cells), w*h) {
		if r := cells[i].Runes; len(r) > 0 {
			b.WriteString(string(r))
		} else {
			b.WriteByte(' ')
		}
		if i%w == w-1 {
			b.WriteByte('\n')
		}
	}
	s.mu.Lock()
	s.seen = b.String()
	s.mu.Unlock()
}

func (x *shown) text() string {
	x.on.mu.Lock()
	defer x.on.mu.Unlock()
	return x.on.seen
}

func (x *shown) until(what string, ok func() bool) {
	x.t.Helper()
	limit, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			x.t.Fatalf("never %s:\n%s", what, x.text())
		}
	}
}

func (x *shown) sees(text string) string {
	x.t.Helper()
	s := ""
	x.until("seen "+text, func() bool { s = x.text(); return strings.Contains(s, text) })
	return s
}

func (x *shown) press(k tcell.Key) { x.scr.InjectKey(k, 0, 0) }

func (x *shown) types(s string) {
	for _, r := range s {
		x.scr.InjectKey(tcell.KeyRune, r, 0)
	}
}

func rows(n int) (rs []top.Row) {
	for i := range n {
		rs = append(rs, top.Row{Seq: i, TID: stack.TID(100 + i), Name: fmt.Sprintf("w-%d", i), State: stack.StateBlocked,
			Values: top.Values{CPU: int64(1000 - i)}, Waits: "lock"})
	}
	return rs
}

// TestSuspend: the terminal is given back while the program is stopped, also while a filter is typed.
func TestSuspend(t *testing.T) {
	x := show(t, &source{}, 80, 24)
	x.types("/ab")
	x.sees("filter: ab")
	x.press(tcell.KeyCtrlZ)
	x.types("c")
	x.sees("filter: abc")
	x.on.mu.Lock()
	defer x.on.mu.Unlock()
	if got := strings.Join(x.on.calls, " "); got != "suspend stopped resume" {
		t.Errorf("calls: %s", got)
	}
}

func TestEmptyAndEnded(t *testing.T) {
	s := &source{}
	x := show(t, s, 80, 24)
	x.sees("no samples yet")
	x.sees("losses: 3 late")
	x.types("w")
	x.sees("by cpu")
	x.press(tcell.KeyTab)
	x.press(tcell.KeyEnter) // no thread: nothing to show
	x.press(tcell.KeyDown)
	x.sees(">   TID")
	s.set(func(s *source) {
		s.table.Span = time.Second
		s.table.Funcs = []top.Func{{Name: "f", Self: top.Values{Wall: 5}, Total: top.Values{Wall: 5}}}
	})
	x.sees("no CPU time in this window")
	s.set(func(s *source) { s.ended = time.Date(2030, 1, 1, 12, 13, 14, 0, time.Local) })
	x.sees("TARGET ENDED at 12:13:14; q leaves")
	x.types("q")
	<-x.ended
}

// Names of the target cannot write to the terminal, and wide characters do not break the
// table.
func TestHostileNames(t *testing.T) {
	s := &source{stacks: map[int]top.Stack{}}
	s.table = top.Table{Span: time.Second, Funcs: []top.Func{
		{Name: "evil\x1b]0;title\x07\u009b31m\n" + strings.Repeat("x", 500), Self: top.Values{Wall: 9}, Total: top.Values{Wall: 9}},
		{Name: strings.Repeat("名前", 60), Self: top.Values{Wall: 8}, Total: top.Values{Wall: 8}}}, Threads: rows(1)}
	s.table.Threads[0].Name = "a\x1b[2J\t\nb"
	s.stacks[0] = top.Stack{Row: s.table.Threads[0], Frames: []top.Frame{{Func: "g\x1bc", File: "/a/b.c", Line: 5, Module: "/m", Inlined: true}}}
	x := show(t, s, 80, 24)
	text := x.sees("evil?]0;title??31m?xxx")
	if strings.ContainsAny(text, "\x1b\x07\t") || !strings.Contains(text, "a?[2J??b") || !strings.Contains(text, "…") {
		t.Errorf("the screen:\n%q", text)
	}
	x.press(tcell.KeyRight)
	x.sees("FUNCTION") // and the first columns of names are gone
	x.until("shifted", func() bool { return !strings.Contains(x.text(), "evil") && strings.Contains(x.text(), "shifted 16") })
	x.press(tcell.KeyLeft)
	x.sees("evil")
	x.press(tcell.KeyTab)
	x.press(tcell.KeyEnter)
	x.sees("g?c (inlined)  b.c:5 [m]")
}

// More threads than fit: the chosen one stays visible and selected in every order.
func TestScrollAndChoice(t *testing.T) {
	s := &source{stacks: map[int]top.Stack{}}
	s.table = top.Table{Span: time.Second, Threads: rows(50)}
	for _, r := range s.table.Threads {
		st := top.Stack{Row: r}
		for i := range 40 {
			st.Frames = append(st.Frames, top.Frame{Func: fmt.Sprintf("fn%d_of_%d", i, r.TID)})
		}
		s.stacks[r.Seq] = st
	}
	x := show(t, s, 80, 24)
	x.press(tcell.KeyTab)
	x.sees("w-0 ")
	x.press(tcell.KeyEnd)
	if text := x.sees("w-49 "); strings.Contains(text, "w-0 ") {
		t.Errorf("not scrolled:\n%s", text)
	}
	x.press(tcell.KeyUp)
	s.set(func(s *source) { // the chosen one becomes the busiest
		s.table.Threads = rows(50)
		s.table.Threads[48].CPU = 1 << 30
	})
	x.until("at the top", func() bool {
		text := x.text()
		return strings.Contains(text, "w-0 ") && strings.Index(text, "w-48 ") < strings.Index(text, "w-0 ") && strings.Contains(text, "w-48 ")
	})
	x.press(tcell.KeyEnter)
	text := x.sees("fn0_of_148")
	if !strings.Contains(text, "TID 148 w-48  blocked  waits for lock") || strings.Contains(text, "fn39") {
		t.Errorf("the stack:\n%s", text)
	}
	x.press(tcell.KeyPgDn)
	x.press(tcell.KeyPgDn)
	x.sees("fn39_of_148")
	// After it ends, its last stack stays.
	s.set(func(s *source) { delete(s.stacks, 48) })
	if text = x.sees("TID 148 w-48  has ended; its last stack:"); !strings.Contains(text, "fn39_of_148") {
		t.Errorf("the last stack:\n%s", text)
	}
	x.press(tcell.KeyEscape)
	x.types("/W-3")
	x.press(tcell.KeyEnter)
	if text = x.sees("(filter W-3: 11 of 50)"); strings.Contains(text, "w-48 ") || !strings.Contains(text, "w-36 ") {
		t.Errorf("filtered:\n%s", text)
	}
	x.press(tcell.KeyEscape)
	x.sees("w-0 ")
}

// While paused, the source is not read, and stacks belong to the displayed table.
// The key i brings idle threads into the tables, and takes them out again.
func TestIdleKey(t *testing.T) {
	s := &source{table: top.Table{Left: idle.Left{Threads: 4, Wait: 20.1e9}}}
	x := show(t, s, 80, 24)
	x.sees("left out: 4 idle threads, 20.1 s; i shows them")
	x.sees("i idle")
	x.types("i")
	x.sees("with idle")
	if text := x.text(); strings.Contains(text, "left out") {
		t.Errorf("idle threads are still left out:\n%s", text)
	}
	x.types("i")
	x.sees("left out: 4 idle threads")
}

func TestPause(t *testing.T) {
	s := &source{stacks: map[int]top.Stack{0: {Row: rows(1)[0], Frames: []top.Frame{{Func: "then"}}}}}
	s.table = top.Table{Span: time.Second, Threads: rows(1)}
	x := show(t, s, 80, 24)
	x.until("asked twice", func() bool { return s.times() >= 2 })
	x.types(" ")
	x.sees("PAUSED")
	n := s.times()
	s.set(func(s *source) {
		s.stacks[0] = top.Stack{Row: rows(1)[0], Frames: []top.Frame{{Func: "now"}}}
	})
	x.press(tcell.KeyTab)
	x.press(tcell.KeyEnter)
	x.sees("then")
	for range 3 { // each is a redraw
		x.types("?")
		x.sees("hold the picture")
		x.types("?")
		x.sees("TID")
	}
	if got := s.times(); got != n {
		t.Errorf("asked %d times while paused", got-n)
	}
	x.types(" ")
	x.until("asked again", func() bool { return s.times() > n })
	x.press(tcell.KeyEnter)
	x.sees("now")
}

type broken struct{ tcell.SimulationScreen }

func (broken) Init() error { return errors.New("no such terminal") }

func TestTerminalFails(t *testing.T) {
	scr := &sizedScreen{SimulationScreen: tcell.NewSimulationScreen("UTF-8"), cols: 80, rows: 24}
	failed := make(chan error, 1)
	go func() {
		failed <- Run(context.Background(), scr, &source{}, Options{Losses: func(*stack.ThreadStats) string { return "" }})
	}()
	x := &shown{t: t, on: scr}
	x.sees("no samples yet")
	scr.PostEvent(tcell.NewEventError(errors.New("input/output error")))
	if err := <-failed; err == nil || err.Error() != "read the terminal: input/output error" {
		t.Error(err)
	}
}

func TestRunFails(t *testing.T) {
	err := Run(context.Background(), broken{tcell.NewSimulationScreen("")}, &source{}, Options{})
	if err == nil || err.Error() != "no such terminal" {
		t.Error(err)
	}
}

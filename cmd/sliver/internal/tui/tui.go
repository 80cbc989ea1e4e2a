// Package tui draws the tables of package top in a terminal and handles its keys. It does
// not depend on processes or samplers: a Source supplies the data. Run is for one
// goroutine.
package tui

import (
	"context"
	"fmt"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/sliverprof/sliver/session/top"
	"github.com/sliverprof/sliver/stack"
)

// Every is the time between two redraws.
const Every = time.Second

// Source supplies the data. Run calls it from its own goroutine.
type Source interface {
	Table() *top.Table
	// ShowIdle includes idle waits and threads in later tables, or omits them.
	ShowIdle(on bool)
	// Stack returns the stack of the thread with this Row.Seq; ok is false if the thread
	// is gone.
	Stack(seq int) (st top.Stack, ok bool)
	// Stats returns the samplers' statistics since the start.
	Stats() stack.ThreadStats
	// Ended returns when the target ended; the zero time while it runs.
	Ended() time.Time
}

// Options configure Run.
type Options struct {
	PID    int
	Comm   string
	Window time.Duration
	By     top.By
	Idle   bool // the source includes idle waits and threads
	Funcs  top.FuncOrder
	Filter *top.Filter // of functions
	// Losses describes the samplers' losses; "" if there are none.
	Losses func(*stack.ThreadStats) string
	// Suspend stops the program, as Ctrl-Z does to others, and returns when it goes on. nil: Ctrl-Z does nothing.
	Suspend func()
}

// pane is the part of the screen that keys apply to.
type pane uint8

const (
	funcsPane pane = iota
	threadsPane
)

// page is the content of the screen.
type page uint8

const (
	tablesPage page = iota
	stackPage
	helpPage
)

type ui struct {
	o   Options
	scr tcell.Screen
	src Source

	// Data as of the last refresh.
	table  *top.Table
	at     time.Time
	stats  stack.ThreadStats
	rate   float64 // samples per second
	ended  time.Time
	stack  top.Stack
	isGone bool                  // the thread of stack is gone
	stacks map[int]top.Stack     // of all threads, while paused
	funcs  []top.Func            // filtered and sorted
	rows   []top.Row             // filtered and sorted
	lists  [2]struct{ n, h int } // by pane: number of rows, number of rows that fit

	// The user's choices.
	page    page
	focus   pane
	paused  bool
	threads top.ThreadOrder
	filters [2]*top.Filter
	cursor  int // row in funcs
	chosen  int // Row.Seq of a thread; -1: none yet
	scroll  int // first row of the stack
	shift   int // columns to the right
	frames  int // rows of the stack that fit
	edit    *edit
}

// edit is a filter that is being typed.
type edit struct {
	text []rune
	was  *top.Filter
	bad  bool
}

// Run shows src on scr until the user leaves or ctx ends. It initializes scr and restores
// the terminal on return.
func Run(ctx context.Context, scr tcell.Screen, src Source, o Options) error {
	if err := scr.Init(); err != nil {
		return err
	}
	defer scr.Fini()
	u := &ui{o: o, scr: scr, src: src, chosen: -1}
	u.filters[funcsPane] = o.Filter
	events, quit := make(chan tcell.Event, 16), make(chan struct{})
	go scr.ChannelEvents(events, quit)
	defer close(quit)
	tick := time.NewTicker(Every)
	defer tick.Stop()
	u.refresh()
	u.draw()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if !u.paused {
				u.refresh()
			}
		case e, ok := <-events:
			if !ok {
				return nil
			}
			switch e := e.(type) {
			case *tcell.EventError:
				return fmt.Errorf("read the terminal: %w", e)
			case *tcell.EventResize:
				scr.Sync()
			case *tcell.EventKey:
				if e.Key() == tcell.KeyCtrlZ {
					if err := u.suspend(); err != nil {
						return err
					}
				} else if u.key(e) {
					return nil
				}
			}
		}
		u.draw()
	}
}

// refresh reads the source.
func (u *ui) refresh() {
	was, before := u.at, u.stats.Samples
	u.table, u.at, u.stats, u.ended = u.src.Table(), time.Now(), u.src.Stats(), u.src.Ended()
	if d := u.at.Sub(was).Seconds(); !was.IsZero() && d > 0 {
		u.rate = float64(u.stats.Samples-before) / d
	}
	u.arrange()
	u.refreshStack()
}

func (u *ui) refreshStack() {
	if u.page != stackPage {
		return
	}
	var ok bool
	var st top.Stack
	if u.paused {
		st, ok = u.stacks[u.chosen]
	} else {
		st, ok = u.src.Stack(u.chosen)
	}
	if ok && st.State != stack.StateDead {
		u.stack, u.isGone = st, false
		return
	}
	// Keep the last stack of a thread that ended.
	if u.stack.Seq != u.chosen {
		u.stack = top.Stack{Row: top.Row{Seq: u.chosen}}
		if ok {
			u.stack = st
		}
	}
	u.isGone = true
}

// arrange filters and sorts.
func (u *ui) arrange() {
	t := u.table
	u.funcs = top.SortFuncs(u.filters[funcsPane].Funcs(append([]top.Func(nil), t.Funcs...)), u.o.By, u.o.Funcs)
	u.rows = top.SortThreads(u.filters[threadsPane].Threads(append([]top.Row(nil), t.Threads...)), u.threads)
	u.cursor = max(min(u.cursor, len(u.funcs)-1), 0)
	if u.row() < 0 && len(u.rows) > 0 {
		u.chosen = u.rows[0].Seq
	}
}

// row returns the index of the chosen thread; -1 if it is not shown.
func (u *ui) row() int {
	for i := range u.rows {
		if u.rows[i].Seq == u.chosen {
			return i
		}
	}
	return -1
}

func (u *ui) pause() {
	u.paused = !u.paused
	u.stacks = nil
	if !u.paused {
		u.refresh()
		return
	}
	u.stacks = make(map[int]top.Stack, len(u.table.Threads))
	for i := range u.table.Threads {
		if st, ok := u.src.Stack(u.table.Threads[i].Seq); ok {
			u.stacks[st.Seq] = st
		}
	}
}

// shiftBy is how far one key press moves long names.
const shiftBy = 16

// suspend gives the terminal back while the program is stopped.
func (u *ui) suspend() error {
	if u.o.Suspend == nil {
		return nil
	}
	if err := u.scr.Suspend(); err != nil {
		return fmt.Errorf("give the terminal back: %w", err)
	}
	u.o.Suspend()
	if err := u.scr.Resume(); err != nil {
		return fmt.Errorf("take the terminal again: %w", err)
	}
	if !u.paused {
		u.refresh()
	}
	return nil
}

// key handles a key and reports whether to leave.
func (u *ui) key(e *tcell.EventKey) (leave bool) {
	if e.Key() == tcell.KeyCtrlC {
		return true
	}
	if u.edit != nil {
		u.typed(e)
		return false
	}
	switch e.Key() {
	case tcell.KeyUp:
		u.move(-1)
	case tcell.KeyDown:
		u.move(1)
	case tcell.KeyPgUp:
		u.move(-u.fits())
	case tcell.KeyPgDn:
		u.move(u.fits())
	case tcell.KeyHome:
		u.move(-1 << 30)
	case tcell.KeyEnd:
		u.move(1 << 30)
	case tcell.KeyLeft:
		u.shift = max(u.shift-shiftBy, 0)
	case tcell.KeyRight:
		u.shift = min(u.shift+shiftBy, 1<<16)
	case tcell.KeyTab, tcell.KeyBacktab:
		if u.page == tablesPage {
			u.focus = 1 - u.focus
		}
	case tcell.KeyEnter:
		u.enter()
	case tcell.KeyEscape, tcell.KeyBackspace, tcell.KeyBackspace2:
		u.back()
	case tcell.KeyCtrlL:
		u.scr.Sync()
	case tcell.KeyRune:
		return u.letter(e.Rune())
	}
	return false
}

func (u *ui) letter(r rune) (leave bool) {
	switch r {
	case 'q', 'Q':
		return true
	case 'k':
		u.move(-1)
	case 'j':
		u.move(1)
	case ' ':
		u.pause()
	case '?', 'h':
		if u.page == helpPage {
			u.page = tablesPage
		} else {
			u.page = helpPage
		}
	}
	if u.page != tablesPage {
		return false
	}
	switch r {
	case 's':
		if u.focus == funcsPane {
			u.o.Funcs = u.o.Funcs.Next()
		} else {
			u.threads = u.threads.Next()
		}
		u.arrange()
	case 'w':
		u.o.By = 1 - u.o.By
		u.arrange()
	case 'i':
		u.o.Idle = !u.o.Idle
		u.src.ShowIdle(u.o.Idle)
		if !u.paused {
			u.refresh()
		}
	case '/':
		was := u.filters[u.focus]
		u.edit = &edit{text: []rune(was.String()), was: was}
	}
	return false
}

// fits returns the number of rows that the keys move through.
func (u *ui) fits() int {
	if u.page == stackPage {
		return max(u.frames, 1)
	}
	return max(u.lists[u.focus].h, 1)
}

func (u *ui) move(by int) {
	to := func(at, n int) int { return max(min(at+by, n-1), 0) }
	switch {
	case u.page == stackPage:
		u.scroll = max(min(u.scroll+by, len(u.stack.Frames)-u.frames), 0)
	case u.page == helpPage:
	case u.focus == funcsPane:
		u.cursor = to(u.cursor, len(u.funcs))
	case len(u.rows) > 0:
		u.chosen = u.rows[to(max(u.row(), 0), len(u.rows))].Seq
	}
}

// enter shows the stack of the chosen thread.
func (u *ui) enter() {
	switch {
	case u.page != tablesPage:
		u.back()
	case u.focus == funcsPane:
		u.focus = threadsPane // so that the user can choose the thread
	case u.row() >= 0:
		u.page, u.scroll, u.shift = stackPage, 0, 0
		u.refreshStack()
	}
}

// back leaves a page; on the tables it clears the filter.
func (u *ui) back() {
	if u.page != tablesPage {
		u.page, u.shift = tablesPage, 0
		return
	}
	u.filters[u.focus] = nil
	u.arrange()
}

// maxTyped limits a filter in letters.
const maxTyped = 200

// typed edits the filter; each key takes effect at once.
func (u *ui) typed(e *tcell.EventKey) {
	ed := u.edit
	switch e.Key() {
	case tcell.KeyEnter:
		u.edit = nil
	case tcell.KeyEscape:
		u.filters[u.focus] = ed.was
		u.edit = nil
		u.arrange()
		return
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		ed.text = ed.text[:max(len(ed.text)-1, 0)]
	case tcell.KeyCtrlU:
		ed.text = ed.text[:0]
	case tcell.KeyRune:
		if len(ed.text) < maxTyped {
			ed.text = append(ed.text, e.Rune())
		}
	}
	f, err := top.ParseFilter(string(ed.text))
	if ed.bad = err != nil; !ed.bad {
		u.filters[u.focus] = f
		u.arrange()
	}
}

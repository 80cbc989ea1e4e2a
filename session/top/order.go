package top

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// By is the time by which functions are measured.
type By uint8

// Measures.
const (
	Wall By = iota // elapsed
	CPU            // on a CPU
)

// ParseBy parses "wall" or "cpu".
func ParseBy(s string) (By, error) {
	switch s {
	case "wall":
		return Wall, nil
	case "cpu":
		return CPU, nil
	}
	return 0, fmt.Errorf("by: %q is none of wall, cpu", s)
}

func (b By) String() string {
	if b == CPU {
		return "cpu"
	}
	return "wall"
}

// Of returns v's time by this measure, in ns.
func (b By) Of(v Values) int64 {
	if b == CPU {
		return v.CPU
	}
	return v.Wall
}

// FuncOrder is an order of functions.
type FuncOrder uint8

// Orders of functions: times descending, names ascending.
const (
	BySelf FuncOrder = iota
	ByTotal
	ByFunc
	funcOrders
)

var funcOrderNames = [...]string{"self", "total", "name"}

func (o FuncOrder) String() string { return funcOrderNames[o] }

// Next returns the next order, cyclically.
func (o FuncOrder) Next() FuncOrder { return (o + 1) % funcOrders }

// ParseFuncOrder parses "self", "total" or "name".
func ParseFuncOrder(s string) (FuncOrder, error) {
	if i := slices.Index(funcOrderNames[:], s); i >= 0 {
		return FuncOrder(i), nil
	}
	return 0, fmt.Errorf("sort: %q is none of %s", s, strings.Join(funcOrderNames[:], ", "))
}

// SortFuncs sorts fs and drops functions without time by this measure.
func SortFuncs(fs []Func, by By, o FuncOrder) []Func {
	fs = slices.DeleteFunc(fs, func(f Func) bool { return by.Of(f.Total) == 0 })
	slices.SortFunc(fs, func(a, b Func) int {
		self, total := cmp.Compare(by.Of(b.Self), by.Of(a.Self)), cmp.Compare(by.Of(b.Total), by.Of(a.Total))
		name := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Module, b.Module))
		switch o {
		case ByTotal:
			return cmp.Or(total, self, name)
		case ByFunc:
			return cmp.Or(name, self)
		}
		return cmp.Or(self, total, name)
	})
	return fs
}

// ThreadOrder is an order of threads.
type ThreadOrder uint8

// Orders of threads.
const (
	ByCPU ThreadOrder = iota // the busiest first
	ByThread
	ByTID
	ByState // running ones first
	threadOrders
)

var threadOrderNames = [...]string{"cpu", "name", "tid", "state"}

func (o ThreadOrder) String() string { return threadOrderNames[o] }

// Next returns the next order, cyclically.
func (o ThreadOrder) Next() ThreadOrder { return (o + 1) % threadOrders }

// SortThreads sorts rows.
func SortThreads(rows []Row, o ThreadOrder) []Row {
	slices.SortStableFunc(rows, func(a, b Row) int {
		tid := cmp.Compare(a.TID, b.TID)
		switch o {
		case ByThread:
			return cmp.Or(cmp.Compare(a.Name, b.Name), tid)
		case ByTID:
			return tid
		case ByState:
			return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(b.CPU, a.CPU), tid)
		}
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), tid)
	})
	return rows
}

// maxFilter limits the length of a filter in bytes.
const maxFilter = 1000

// SortProcesses sorts by CPU time, then by PID, and returns ps.
func SortProcesses(ps []Process) []Process {
	slices.SortFunc(ps, func(a, b Process) int { return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(a.PID, b.PID)) })
	return ps
}

// Filter selects rows by their text. The nil Filter selects all.
type Filter struct {
	text string
	re   *regexp.Regexp
}

// ParseFilter parses a filter: text to find, ignoring case, or /regexp/. Empty text is
// the nil Filter.
func ParseFilter(s string) (*Filter, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > maxFilter {
		return nil, fmt.Errorf("filter: longer than %d bytes", maxFilter)
	}
	if len(s) > 2 && s[0] == '/' && s[len(s)-1] == '/' {
		re, err := regexp.Compile(s[1 : len(s)-1])
		if err != nil {
			return nil, fmt.Errorf("filter: %w", err)
		}
		return &Filter{s, re}, nil
	}
	return &Filter{s, regexp.MustCompile("(?i)" + regexp.QuoteMeta(s))}, nil
}

func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// Funcs returns those of fs whose name or module path matches.
func (f *Filter) Funcs(fs []Func) []Func {
	if f == nil {
		return fs
	}
	return slices.DeleteFunc(fs, func(x Func) bool { return !f.re.MatchString(x.Name) && !f.re.MatchString(x.Module) })
}

// Threads returns the rows whose name, TID, state, top function or wait matches.
func (f *Filter) Threads(rows []Row) []Row {
	if f == nil {
		return rows
	}
	return slices.DeleteFunc(rows, func(r Row) bool {
		return !f.re.MatchString(r.Name) && !f.re.MatchString(strconv.Itoa(int(r.TID))) &&
			!f.re.MatchString(StateText(r.State)) && !f.re.MatchString(r.Top) && !f.re.MatchString(r.Waits)
	})
}

// StateText returns a state in at most eight letters.
func StateText(s stack.State) string {
	switch s {
	case stack.StateRunnable:
		return "ready"
	case stack.StateDisk:
		return "disk"
	case stack.StateFault:
		return "fault"
	case stack.StateDead:
		return "ended"
	}
	return s.String()
}

// Share formats a time as a share of span: 100% is one thread, or one CPU, all the time.
func Share(ns, span int64) string {
	if span <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(ns)/float64(span))
}

// Plain removes control characters from text of the target: names may contain anything,
// and a terminal would interpret them.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// InModule returns " [name]" as a suffix for a function's name; "" if the module is
// unknown.
func InModule(p string) string {
	switch {
	case p == "":
		return ""
	case strings.HasPrefix(p, "["):
		return " " + p // already in brackets
	}
	return " [" + path.Base(p) + "]"
}

// Doing describes a thread in one line: what it waits for, otherwise its current
// function.
func (r *Row) Doing() string {
	if r.Waits != "" {
		return r.Waits
	}
	if r.State == stack.StateDead {
		return ""
	}
	return r.Top
}

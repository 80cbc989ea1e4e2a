package sampler

import (
	"fmt"
	"path"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Selection says which threads are sampled: see ParseSelection.
type Selection struct {
	text  string
	terms []term
}

type term struct {
	not    bool
	all    bool
	main   bool
	number int // > 0
	re     *regexp.Regexp
	glob   string
	text   string
}

// All reports whether every thread is selected, whatever it is called.
func (s *Selection) All() bool {
	for _, t := range s.terms {
		if t.not || !t.all {
			return false
		}
	}
	return true
}

// ParseSelection reads a comma list of `main`, `all`, a number, a name or glob
// (worker-*), /regexp/, each with `!` in front to exclude. A number is a TID,
// the target's own PID namespace included; where no thread has it, it is the
// position in the list of threads by age, 1 being main. A list of exclusions
// alone starts from all. main is the process's first thread, and one that is called so
// where the first is not: Java's main method runs in a second thread.
func ParseSelection(s string) (*Selection, error) {
	sel := &Selection{text: s}
	rest := s
	for {
		var item string
		item, rest = nextItem(rest)
		t, err := parseTerm(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		sel.terms = append(sel.terms, t)
		if rest == "" {
			return sel, nil
		}
		rest = rest[1:]
	}
}

// nextItem splits at the first comma that is not inside /…/.
func nextItem(s string) (item, rest string) {
	body := strings.TrimLeft(s, " !")
	skip := 0
	if strings.HasPrefix(body, "/") {
		start := len(s) - len(body) + 1
		if end := strings.LastIndex(closing(s[start:]), "/"); end >= 0 {
			skip = start + end
		}
	}
	if i := strings.IndexByte(s[skip:], ','); i >= 0 {
		return s[:skip+i], s[skip+i:]
	}
	return s, ""
}

// closing cuts s behind the first slash that ends a regular expression: one
// before a comma or the end.
func closing(s string) string {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == '/' && (i+1 == len(s) || s[i+1] == ','):
			return s[:i+1]
		}
	}
	return s
}

func parseTerm(s string) (t term, err error) {
	t.text = s
	if strings.HasPrefix(s, "!") {
		t.not, s = true, strings.TrimSpace(s[1:])
	}
	switch {
	case s == "":
		return t, fmt.Errorf("threads: an empty name in the list; write main, all, a number, a name, a glob or /regexp/")
	case s == "all":
		t.all = true
	case s == "main":
		t.main = true
	case len(s) > 1 && s[0] == '/' && s[len(s)-1] == '/':
		if t.re, err = regexp.Compile(s[1 : len(s)-1]); err != nil {
			return t, fmt.Errorf("threads: %s: %v", s, err)
		}
	default:
		if n, err := strconv.Atoi(s); err == nil {
			if n <= 0 {
				return t, fmt.Errorf("threads: %s is no thread: numbers begin at 1", s)
			}
			t.number = n
			return t, nil
		}
		if _, err := path.Match(s, ""); err != nil {
			return t, fmt.Errorf("threads: %q is not a valid glob: %v", s, err)
		}
		t.glob = s
	}
	return t, nil
}

func (s *Selection) String() string { return s.text }

// Pick returns the threads of all that are selected, in the order main, then
// by age. Positions count over all.
func (s *Selection) Pick(all []stack.ThreadInfo) []stack.ThreadInfo {
	sorted := append([]stack.ThreadInfo(nil), all...)
	SortByAge(sorted)
	taken := map[int]bool{} // numbers that are some thread's TID
	// Threads of a program called main have all its name, and one alone is the main one.
	called := true
	for i := range sorted {
		called = called && !(sorted[i].Main && sorted[i].Name == "main")
		taken[int(sorted[i].TID)] = true
		taken[sorted[i].NSTID] = true
	}
	var out []stack.ThreadInfo
	for i := range sorted {
		if s.match(&sorted[i], i+1, taken, called) {
			out = append(out, sorted[i])
		}
	}
	return out
}

func (s *Selection) match(t *stack.ThreadInfo, position int, taken map[int]bool, called bool) bool {
	in := s.terms[0].not // only exclusions so far: from all
	for i := range s.terms {
		if m := &s.terms[i]; m.matches(t, position, taken, called) {
			in = !m.not
		}
	}
	return in
}

func (m *term) matches(t *stack.ThreadInfo, position int, taken map[int]bool, called bool) bool {
	switch {
	case m.all:
		return true
	case m.main:
		return t.Main || called && t.Name == "main"
	case m.number > 0 && taken[m.number]:
		return int(t.TID) == m.number || t.NSTID == m.number
	case m.number > 0:
		return position == m.number
	case m.re != nil:
		return m.re.MatchString(t.Name) || t.Comm != "" && m.re.MatchString(t.Comm)
	}
	ok, _ := path.Match(m.glob, t.Name)
	if !ok && t.Comm != "" {
		ok, _ = path.Match(m.glob, t.Comm)
	}
	return ok
}

// SortByAge orders threads as positions count them: main first, then by age.
func SortByAge(ts []stack.ThreadInfo) {
	sort.SliceStable(ts, func(i, j int) bool {
		a, b := &ts[i], &ts[j]
		if a.Main != b.Main {
			return a.Main
		}
		if a.Born != b.Born {
			return a.Born < b.Born
		}
		return a.TID < b.TID
	})
}

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

// Selection defines which threads are sampled: see ParseSelection.
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

// All reports whether every thread is selected, regardless of its name.
func (s *Selection) All() bool {
	for _, t := range s.terms {
		if t.not || !t.all {
			return false
		}
	}
	return true
}

// ParseSelection parses a comma-separated list of `main`, `all`, a number, a name or glob
// (worker-*), or /regexp/; a leading `!` excludes. A number is a TID, also one of the target's
// own PID namespace. If no thread has that TID, it is the position in the list of threads by age,
// where main is 1. A list of only exclusions starts from all. main is the process's first thread;
// if that is not named main, it is also the thread of that name, because Java's main method runs
// in a second thread.
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

// nextItem splits at the first comma outside /…/.
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

// closing cuts s after the first slash that ends a regular expression: one before a comma or the
// end.
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
				return t, fmt.Errorf("threads: invalid thread number %s: numbers start at 1", s)
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

// Pick returns the selected threads of all: main first, then by age. Positions count over all.
func (s *Selection) Pick(all []stack.ThreadInfo) []stack.ThreadInfo {
	sorted := append([]stack.ThreadInfo(nil), all...)
	SortByAge(sorted)
	taken := map[int]bool{} // numbers that are a thread's TID
	// In a program named main, all threads have that name, so the name identifies none of them.
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
	in := s.terms[0].not // a list that begins with an exclusion starts from all
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

// SortByAge sorts threads in the order of positions: main first, then by age.
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

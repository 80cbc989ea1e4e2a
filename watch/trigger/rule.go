// Package trigger implements the rules that make a flight recorder dump: what each one
// measures, how often and how long the condition must hold, and how long it is silent
// afterwards. All input comes from outside, including the time: the events of each thread
// through a Track, the resource usage of the process through a Look.
//
// The package is not safe for concurrent use: one goroutine drives a Set with its Tracks.
package trigger

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Rule is one trigger. Create it with Parse.
type Rule struct {
	Kind     Kind
	Function string        // Stall, Slow, Call: a name, or a pattern with *
	Limit    time.Duration // Stall, Slow, Blocked, Deadlock
	Slower   time.Duration // Call: all calls are traced, and those that took as long count; 0: every call counts
	Share    float64       // CPU: of one CPU; Memory, FDs, Threads: of the limit, 0: depends on the limit's size
	Path     string        // File
	IO       string        // IO: the value
	Bytes    float64       // JavaGrowth
	Heap     HeapFiles     // JavaHeap, JavaGrowth: additional files of a dump
	Threads  string        // Stall, Slow, Blocked, CPU, Call: main, all, or a pattern of names
	Loop     string        // Stall: the function that is the event loop; "": detected automatically
	Process  bool          // CPU: of the whole process
	Every    time.Duration // CPU, Memory, FDs, Threads: between two checks
	Checks   int           // CPU, Memory, FDs, Threads: consecutive checks
	Times    int           // how often it must happen …
	Within   time.Duration // … in this time
	CoolDown time.Duration // how long it is silent after it fired
	Off      bool          // Crash: never fires, and is not added by default either

	text string
}

func (r *Rule) String() string { return r.text }

// Limits and defaults.
const (
	DefaultCoolDown = time.Minute
	minLimit        = 10 * time.Millisecond
	maxLimit        = 24 * time.Hour
	minEvery        = 100 * time.Millisecond
	maxChecks       = 1000
	mostCPU         = 100 * 8192 // in percent of one CPU; Linux has at most this many (CONFIG_NR_CPUS, arch/x86/Kconfig)
	maxTimes        = 10_000
	// MaxRules limits a Set.
	MaxRules = 64
)

// Parse parses a rule of a kind: its value, and options separated by commas.
//
//	stall     5s | FUNCTION>5s   threads=main|all|NAME* loop=FUNCTION
//	slow      FUNCTION>50ms      threads=
//	blocked   10s                threads=
//	deadlock  5s
//	cpu       90%                of=thread|process checks=3 every=1s threads=
//	memory    auto | 80%         checks=3 every=5s
//	fds, threads                 as memory
//	java-heap auto | 80%         as memory; 3x is checks=3; heap=dump+leaks+koom
//	java-growth 350MB            every=5s heap=dump+leaks+koom
//	call      FUNCTION           slower=200ms threads=
//	file      PATH
//	io        slow=13ms | all | RULE, as sliver io has them
//	crash     yes | no
//
// The CPU share is of one CPU: below 100% for a thread, up to 100% times the number of
// CPUs for a process.
//
// All kinds accept times=3/1m (fire only if it happens that often in that time) and
// cool=5m.
func Parse(kind Kind, text string) (*Rule, error) {
	sub := subjectOf(kind)
	if sub == nil {
		return nil, fmt.Errorf("%s: no such trigger", kind)
	}
	r := &Rule{Kind: kind, Heap: HeapFiles{Dump: sub.Heap}, Threads: "all", Checks: 3, Times: 1, CoolDown: DefaultCoolDown, text: string(kind) + " " + text}
	parts := options(text)
	fail := func(format string, args ...any) (*Rule, error) {
		return nil, fmt.Errorf("%s %q: %s", kind, text, fmt.Sprintf(format, args...))
	}
	if err := r.value(parts[0]); err != nil {
		return fail("%v", err)
	}
	for _, p := range parts[1:] {
		key, val, ok := strings.Cut(p, "=")
		if n, is := strings.CutSuffix(p, "x"); is && !ok && sub.times {
			key, val, ok = "checks", n, true
		}
		if !ok {
			return fail("invalid option %q (write NAME=VALUE)", p)
		}
		if err := r.option(strings.TrimSpace(key), strings.TrimSpace(val)); err != nil {
			return fail("%s: %v", strings.TrimSpace(key), err)
		}
	}
	if sub.whole != nil {
		if err := sub.whole(r); err != nil {
			return fail("%v", err)
		}
	}
	return r, nil
}

// options splits text at commas, except those inside brackets, which belong to names of
// functions, as in std::map<int, int>.
func options(text string) (parts []string) {
	depth, from := 0, 0
	for i, c := range text {
		switch c {
		case '<', '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case '>':
			if depth > 0 {
				depth--
			}
		case ',':
			if depth <= 0 {
				parts = append(parts, strings.TrimSpace(text[from:i]))
				from = i + 1
			}
		}
	}
	return append(parts, strings.TrimSpace(text[from:]))
}

// value parses the rule's value.
func (r *Rule) value(v string) error {
	if err := r.Subject().value(r, v); err != nil {
		return err
	}
	if r.Function != "" {
		if _, err := path.Match(pattern(r.Function), ""); err != nil {
			return fmt.Errorf("the pattern %q cannot be read", r.Function)
		}
	}
	return nil
}

func count(s string, most int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", s, most)
	}
	return n, nil
}

func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	switch {
	case err != nil:
		return 0, fmt.Errorf("invalid time %q (examples: 100ms, 5s)", s)
	case d < minLimit || d > maxLimit:
		return 0, fmt.Errorf("%v is out of range; use %v to %v", d, minLimit, maxLimit)
	}
	return d, nil
}

// Percent parses 80% or 0.8 as a share; most is the largest percentage.
func Percent(s string, most float64) (float64, error) {
	num, isPercent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	if err != nil || v != v {
		return 0, fmt.Errorf("invalid percentage %q (example: 80%%)", s)
	}
	if isPercent {
		v /= 100
	} else if v > 1 {
		return 0, fmt.Errorf("%q is over 1; write %s%% for percent", s, num)
	}
	if v <= 0 || v*100 > most {
		return 0, fmt.Errorf("%s is out of range; use up to %g%%", s, most)
	}
	return v, nil
}

// pattern converts a user's pattern to one of package path, with literal brackets and a *
// that matches slashes.
func pattern(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch c {
		case '[', ']', '\\':
			b.WriteByte('\\')
		}
		if c == '/' {
			c = '\x00'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Names reports whether want names a function: its whole name, a pattern of it, or its
// last part after :: or a dot.
func Names(want, name string) bool {
	if want == name {
		return true
	}
	if strings.ContainsAny(want, "*?") {
		ok, _ := path.Match(pattern(want), strings.ReplaceAll(name, "/", "\x00"))
		return ok
	}
	// handle_request matches server::handle_request(int) and main.(*T).handle_request
	// too.
	if i := strings.IndexByte(name, '('); i > 0 && !strings.HasPrefix(name[i:], "(*") {
		name = name[:i]
	}
	rest, ok := strings.CutSuffix(name, want)
	if !ok || rest == "" {
		return ok
	}
	last := rune(rest[len(rest)-1])
	return last != '_' && last != '$' && !unicode.IsLetter(last) && !unicode.IsDigit(last)
}

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

// Kind is the subject of a Rule.
type Kind string

// Kinds of rules.
const (
	Stall    Kind = "stall"    // a thread is out of its event loop, or in one call of a function, for too long
	Slow     Kind = "slow"     // a call of a function takes too long, in any thread
	Blocked  Kind = "blocked"  // a thread waits for one lock for too long
	Deadlock Kind = "deadlock" // threads wait for each other in a circle
	CPU      Kind = "cpu"      // a thread or the process uses too much of the CPUs
	Memory   Kind = "memory"   // memory near its limit
	FDs      Kind = "fds"      // descriptors near their limit
	Threads  Kind = "threads"  // threads near their limit
	Call     Kind = "call"     // the target calls a function, or a call of it took too long
	File     Kind = "file"     // the target, or anyone, writes a file
	Crash    Kind = "crash"    // the target dies of a signal
	IO       Kind = "io"       // a slow or wasteful use of a file

	JavaHeap   Kind = "java-heap"   // the Java heap near its limit
	JavaGrowth Kind = "java-growth" // the Java heap grows by too much between two checks
)

// Kinds returns all kinds, in the order in which they are documented.
func Kinds() []Kind {
	return []Kind{Stall, Slow, Blocked, Deadlock, CPU, Memory, FDs, Threads, Call, File, IO, Crash, JavaHeap, JavaGrowth}
}

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
//	java-heap auto | 80%         as memory; 3x is checks=3
//	java-growth 350MB            every=5s
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
	r := &Rule{Kind: kind, Threads: "all", Checks: 3, Times: 1, CoolDown: DefaultCoolDown, text: string(kind) + " " + text}
	parts := options(text)
	fail := func(format string, args ...any) (*Rule, error) {
		return nil, fmt.Errorf("%s %q: %s", kind, text, fmt.Sprintf(format, args...))
	}
	if err := r.value(parts[0]); err != nil {
		return fail("%v", err)
	}
	for _, p := range parts[1:] {
		key, val, ok := strings.Cut(p, "=")
		if n, is := strings.CutSuffix(p, "x"); is && !ok && kind == JavaHeap {
			key, val, ok = "checks", n, true
		}
		if !ok {
			return fail("invalid option %q (write NAME=VALUE)", p)
		}
		if err := r.option(strings.TrimSpace(key), strings.TrimSpace(val)); err != nil {
			return fail("%s: %v", strings.TrimSpace(key), err)
		}
	}
	if kind == CPU && !r.Process && r.Share >= 1 {
		return fail("no thread uses more than 100%% of a CPU; use less, or add of=process for all threads together")
	}
	if err := r.traceable(); err != nil {
		return fail("%v", err)
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

func (r *Rule) value(v string) (err error) {
	switch r.Kind {
	case Stall:
		r.Threads = "main"
		if fn, limit, ok := cutFunction(v); ok {
			r.Function, v = fn, limit
		}
		r.Limit, err = duration(v)
	case Slow:
		fn, limit, ok := cutFunction(v)
		if !ok || fn == "" {
			return fmt.Errorf("write FUNCTION>TIME, such as 'handle_request>50ms'")
		}
		r.Function = fn
		r.Limit, err = duration(limit)
	case Blocked, Deadlock:
		r.Limit, err = duration(v)
	case CPU:
		r.Every = time.Second
		r.Share, err = Percent(v, mostCPU)
	case JavaGrowth:
		r.Every, r.Checks = 5*time.Second, 1
		r.Bytes, err = amount(v)
	case Memory, FDs, Threads, JavaHeap:
		r.Every = 5 * time.Second
		if v != "auto" {
			r.Share, err = Percent(v, 100)
		}
	case Call:
		fn, limit, slow := cutSlower(v)
		if r.Function = fn; slow {
			err = r.slower(limit)
		}
		if fn == "" {
			err = fmt.Errorf("write the name of a function")
		}
	case File:
		if r.Path = v; v == "" {
			err = fmt.Errorf("write the path of a file")
		}
	case IO:
		err = r.ioValue(v)
	case Crash:
		if r.Off = v == "no"; !r.Off && v != "yes" {
			err = fmt.Errorf("write yes or no")
		}
	default:
		err = fmt.Errorf("no such trigger")
	}
	if err == nil && r.Function != "" {
		_, err = path.Match(pattern(r.Function), "")
		if err != nil {
			err = fmt.Errorf("the pattern %q cannot be read", r.Function)
		}
	}
	return err
}

// cutFunction splits FUNCTION>TIME at its last ">".
func cutFunction(v string) (fn, limit string, ok bool) {
	i := strings.LastIndexByte(v, '>')
	if i < 0 {
		return "", v, false
	}
	return strings.TrimSpace(v[:i]), strings.TrimSpace(v[i+1:]), true
}

func (r *Rule) option(key, v string) (err error) {
	has := func(kinds ...Kind) bool {
		for _, k := range kinds {
			if k == r.Kind {
				return true
			}
		}
		return false
	}
	switch {
	case key == "cool" || key == "cool-down":
		r.CoolDown, err = time.ParseDuration(v)
		if err != nil || r.CoolDown < 0 {
			err = fmt.Errorf("invalid time %q (example: 5m)", v)
		}
	case key == "times":
		n, within, ok := strings.Cut(v, "/")
		r.Times, err = count(n, maxTimes)
		if err == nil && ok {
			r.Within, err = duration(within)
		} else if err == nil {
			err = fmt.Errorf("%q lacks a time; write for example 3/1m", v)
		}
	case key == "threads" && has(Stall, Slow, Blocked, CPU, Call):
		if r.Threads = v; v == "" {
			return fmt.Errorf("write main, all, or a name with *")
		}
		if _, err := path.Match(v, ""); err != nil {
			return fmt.Errorf("the pattern %q cannot be read", v)
		}
	case key == "slower" && r.Kind == Call:
		err = r.slower(v)
	case key == "loop" && r.Kind == Stall && r.Function == "":
		r.Loop = v
	case key == "of" && r.Kind == CPU:
		switch v {
		case "process":
			r.Process = true
		case "thread":
		default:
			err = fmt.Errorf("%q is none of thread, process", v)
		}
	case key == "checks" && has(CPU, Memory, FDs, Threads, JavaHeap):
		r.Checks, err = count(v, maxChecks)
	case key == "every" && has(CPU, Memory, FDs, Threads, JavaHeap, JavaGrowth):
		if r.Every, err = duration(v); err == nil && r.Every < minEvery {
			err = fmt.Errorf("%v is too short; use %v or more", r.Every, minEvery)
		}
	default:
		err = fmt.Errorf("%s has no such option; it has %s", r.Kind, strings.Join(Options(r.Kind), ", "))
	}
	return err
}

// Options returns the option names of a kind of rule.
func Options(k Kind) []string {
	var out []string
	switch k {
	case Stall:
		out = []string{"threads", "loop"}
	case Slow, Blocked:
		out = []string{"threads"}
	case Call:
		out = []string{"slower", "threads"}
	case CPU:
		out = []string{"of", "threads", "checks", "every"}
	case Memory, FDs, Threads, JavaHeap:
		out = []string{"checks", "every"}
	case JavaGrowth:
		out = []string{"every"}
	}
	return append(out, "times", "cool")
}

// amount reads bytes as 350MB or 1GiB.
func amount(s string) (float64, error) {
	for _, u := range []struct {
		name string
		size float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}} {
		if n, ok := strings.CutSuffix(s, u.name); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
			if err == nil && v > 0 && v*u.size <= 1<<50 {
				return v * u.size, nil
			}
		}
	}
	return 0, fmt.Errorf("invalid size %q (example: 350MB)", s)
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

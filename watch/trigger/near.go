package trigger

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/internal/plural"
)

// Memory, FDs, Threads: memory, descriptors, threads near their limit. JavaHeap: the Java heap near its
// maximum.
const (
	Memory   Kind = "memory"
	FDs      Kind = "fds"
	Threads  Kind = "threads"
	JavaHeap Kind = "java-heap"
)

var (
	memory = Subject{
		Kind: Memory, Flag: "memory", Help: "memory is near its limit: auto, or a share such as 80%",
		options: checkOptions, value: (*Rule).nearValue,
		check: near(func(u *Usage) gauge { return gauge{u.Memory, u.MemoryMax, "memory", u.MemoryOf, true} }),
	}
	fds = Subject{
		Kind: FDs, Flag: "fds", Help: "file descriptors are near their limit: auto, or a share",
		options: checkOptions, value: (*Rule).nearValue,
		check: near(func(u *Usage) gauge { return gauge{u.FDs, u.FDsMax, "descriptors", "limit", false} }),
	}
	threads = Subject{
		Kind: Threads, Flag: "thread-limit", Help: "threads are near their limit: auto, or a share",
		options: checkOptions, value: (*Rule).nearValue,
		check: near(func(u *Usage) gauge {
			return gauge{u.Threads, u.ThreadsMax, "threads", u.ThreadsOf + "'s limit", false}
		}),
	}
	javaHeap = Subject{
		Kind: JavaHeap, Flag: "java-heap", Help: "the Java heap is near its maximum: auto, or a share such as 80%,3x; heap=dump+leaks+koom selects additional files: heap dump (default), report of leaks, KOOM's report",
		Heap: true, times: true,
		options: []string{"checks", "every", "heap"}, value: (*Rule).nearValue,
		check: near(func(u *Usage) gauge { return gauge{u.JavaHeap, u.JavaHeapMax, "Java heap", "maximum", true} }),
	}
)

var checkOptions = []string{"checks", "every"}

// A gauge is a value with a limit. used is negative, or limit 0, if it is unknown.
type gauge struct {
	used, limit float64
	what, of    string
	bytes       bool
}

// amount is a value of the gauge as text.
func (g *gauge) amount(v float64) string {
	if g.bytes {
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	}
	return fmt.Sprintf("%.0f", v)
}

// unit is the unit of threshold.
func (g *gauge) unit() float64 {
	if g.bytes {
		return 1 << 20
	}
	return 1
}

// nearValue parses a share of a limit, or auto.
func (r *Rule) nearValue(v string) (err error) {
	r.Every = 5 * time.Second
	if v != "auto" {
		r.Share, err = Percent(v, 100)
	}
	return err
}

// threshold returns the share of a limit that counts as near: a small limit leaves less
// margin to a healthy program. The steps are KOOM's (KwaiAppTeam/KOOM, koom-java-leak,
// OOMMonitorConfig).
func threshold(limit float64, unit float64) float64 {
	switch {
	case limit >= 512*unit:
		return .80
	case limit >= 256*unit:
		return .85
	}
	return .90
}

// gap is how much the share may fall between two checks without counting as falling, the
// same as in KOOM.
const gap = .05

// near returns the check of rules about a gauge: above a threshold at several consecutive checks, and not
// falling.
func near(read func(*Usage) gauge) func(*Set, *state, *Look) []Fired {
	return func(_ *Set, r *state, l *Look) []Fired {
		if _, ok := r.due(l.Now); !ok {
			return nil
		}
		u, ok := l.usage(r.Kind)
		if !ok {
			return nil
		}
		g := read(&u)
		if g.used < 0 || g.limit <= 0 {
			return nil
		}
		out := r.near(l, &g)
		if r.Kind == FDs && u.Kinds != nil {
			r.byKind(u.Kinds, out)
		}
		return out
	}
}

// near evaluates one check of a gauge.
func (r *state) near(l *Look, g *gauge) []Fired {
	most := r.Share
	if most == 0 {
		most = threshold(g.limit, g.unit())
	}
	k := key{}
	share, before := g.used/g.limit, r.previous[k]
	r.previous[k] = share
	if share > most && share >= before-gap {
		r.inRow[k]++
	} else {
		r.inRow[k] = 0
	}
	if !r.edge(k, r.inRow[k] >= r.Checks) {
		return nil
	}
	return []Fired{{At: l.Now, Text: fmt.Sprintf("%s: %s of %s in use (%.0f%% of the %s), over %.0f%% at %s in a row", g.what,
		g.amount(g.used), g.amount(g.limit), share*100, g.of, most*100, plural.Of(r.Checks, "check")),
		Values: []Value{{"used", g.amount(g.used)}, {"limit", g.amount(g.limit)}, {"of", g.of}, {"share", fmt.Sprintf("%.1f%%", share*100)},
			{"threshold", fmt.Sprintf("%.0f%%", most*100)}, {"checks", strconv.Itoa(r.Checks)}}}}
}

// maxKinds bounds the kinds of descriptors that a text names.
const maxKinds = 4

// byKind notes the kinds of descriptors at the first check of a rule, and adds those that grew since then to what
// fired.
func (r *state) byKind(kinds func() map[string]int, out []Fired) {
	if r.kinds == nil {
		r.kinds = kinds()
	}
	if len(out) == 0 {
		return
	}
	now := kinds()
	grown := slices.DeleteFunc(slices.Sorted(maps.Keys(now)), func(k string) bool { return now[k] <= r.kinds[k] })
	slices.SortStableFunc(grown, func(a, b string) int { return (now[b] - r.kinds[b]) - (now[a] - r.kinds[a]) })
	if len(grown) > maxKinds {
		grown = grown[:maxKinds]
	}
	var list []string
	for _, k := range grown {
		list = append(list, fmt.Sprintf("%s %d (+%d)", k, now[k], now[k]-r.kinds[k]))
	}
	if len(list) == 0 {
		return
	}
	text := strings.Join(list, ", ")
	for i := range out {
		out[i].Text += "; more than at the first check: " + text
		out[i].Values = append(out[i].Values, Value{"grown", text})
	}
}

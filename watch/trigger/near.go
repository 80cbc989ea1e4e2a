package trigger

import (
	"fmt"
	"strconv"
)

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

// grows checks the rules about the growth of a Java heap from one check to the next, which
// KOOM has too.
func (s *Set) grows(r *state, l *Look) (out []Fired) {
	if _, ok := r.due(l.Now); !ok {
		return nil
	}
	u, ok := l.usage(r.Kind)
	if !ok || u.JavaHeap < 0 {
		return nil
	}
	k := key{}
	before, seen := r.previous[k]
	r.previous[k] = u.JavaHeap
	if !r.edge(k, seen && u.JavaHeap-before >= r.Bytes) {
		return nil
	}
	mib := func(v float64) string { return fmt.Sprintf("%.1f MiB", v/(1<<20)) }
	return []Fired{{At: l.Now, Text: fmt.Sprintf("Java heap: grew by %s to %s within %v, %s or more", mib(u.JavaHeap-before), mib(u.JavaHeap), r.Every, mib(r.Bytes)),
		Values: []Value{{"used", mib(u.JavaHeap)}, {"before", mib(before)}, {"limit", mib(u.JavaHeapMax)}}}}
}

// near evaluates the rules about limits: above a threshold at several consecutive checks,
// and not falling.
func (s *Set) near(r *state, l *Look) (out []Fired) {
	if _, ok := r.due(l.Now); !ok {
		return nil
	}
	u, ok := l.usage(r.Kind)
	if !ok {
		return nil
	}
	used, limit, unit, what, of := u.Memory, u.MemoryMax, float64(1<<20), "memory", u.MemoryOf
	amount := func(v float64) string { return fmt.Sprintf("%.1f MiB", v/(1<<20)) }
	switch r.Kind {
	case FDs:
		used, limit, unit, what, of = u.FDs, u.FDsMax, 1, "descriptors", "limit"
	case Threads:
		used, limit, unit, what, of = u.Threads, u.ThreadsMax, 1, "threads", u.ThreadsOf+"'s limit"
	case JavaHeap:
		used, limit, what, of = u.JavaHeap, u.JavaHeapMax, "Java heap", "maximum"
	}
	if r.Kind != Memory && r.Kind != JavaHeap {
		amount = func(v float64) string { return fmt.Sprintf("%.0f", v) }
	}
	if used < 0 || limit <= 0 {
		return nil
	}
	most := r.Share
	if most == 0 {
		most = threshold(limit, unit)
	}
	k := key{}
	share, before := used/limit, r.previous[k]
	r.previous[k] = share
	if share > most && share >= before-gap {
		r.inRow[k]++
	} else {
		r.inRow[k] = 0
	}
	if !r.edge(k, r.inRow[k] >= r.Checks) {
		return nil
	}
	return []Fired{{At: l.Now, Text: fmt.Sprintf("%s: %s of %s in use (%.0f%% of the %s), over %.0f%% at %d checks in a row", what,
		amount(used), amount(limit), share*100, of, most*100, r.Checks),
		Values: []Value{{"used", amount(used)}, {"limit", amount(limit)}, {"of", of}, {"share", fmt.Sprintf("%.1f%%", share*100)},
			{"threshold", fmt.Sprintf("%.0f%%", most*100)}, {"checks", strconv.Itoa(r.Checks)}}}}
}

package trigger

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// JavaGrowth: the Java heap grows by too much between two checks.
const JavaGrowth Kind = "java-growth"

var javaGrowth = Subject{
	Kind: JavaGrowth, Flag: "java-growth", Help: "the Java heap grows by this much between two checks: 350MB; heap= as for --java-heap",
	Heap:    true,
	options: []string{"every", "heap"},
	value: func(r *Rule, v string) (err error) {
		r.Every, r.Checks = 5*time.Second, 1
		r.Bytes, err = amount(v)
		return err
	},
	check: (*Set).grows,
}

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

// HeapFiles says what a rule about the Java heap writes beside the recording.
type HeapFiles struct {
	Dump  bool // the heap, packed
	Leaks bool // what holds the memory, as text
	KOOM  bool // KOOM's report, as JSON
}

// Any reports whether there is something to write.
func (h HeapFiles) Any() bool { return h != HeapFiles{} }

// With returns what either writes.
func (h HeapFiles) With(x HeapFiles) HeapFiles {
	return HeapFiles{h.Dump || x.Dump, h.Leaks || x.Leaks, h.KOOM || x.KOOM}
}

// heapOption parses dump+leaks+koom, or none.
func (r *Rule) heapOption(v string) error {
	r.Heap = HeapFiles{}
	if v == "none" {
		return nil
	}
	for name := range strings.SplitSeq(v, "+") {
		switch name {
		case "dump":
			r.Heap.Dump = true
		case "leaks":
			r.Heap.Leaks = true
		case "koom":
			r.Heap.KOOM = true
		default:
			return fmt.Errorf("unknown file %q; use dump, leaks, koom, several as dump+koom, or none", name)
		}
	}
	return nil
}

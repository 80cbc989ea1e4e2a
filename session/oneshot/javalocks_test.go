package oneshot

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// javaWays are flags for the collectors, and for the layouts of references and object headers.
func javaWays(version string) [][]string {
	ways := [][]string{nil, {"-XX:+UseZGC"}}
	if version == "java21" {
		ways = append(ways, []string{"-XX:+UseZGC", "-XX:+ZGenerational"})
	}
	if version == "java25" {
		ways = append(ways, []string{"-XX:+UseCompactObjectHeaders"})
	}
	if os.Getenv("SLIVER_LONG") != "" {
		ways = append(ways, []string{"-XX:+UseSerialGC"}, []string{"-XX:+UseParallelGC"}, []string{"-XX:+UseShenandoahGC"},
			[]string{"-XX:-UseCompressedOops"}, []string{"-XX:-UseCompressedClassPointers"}, []string{"-Xmx40g"})
		if version == "java25" {
			for _, gc := range []string{"Serial", "Parallel", "Shenandoah", "Z"} {
				ways = append(ways, []string{"-XX:+UseCompactObjectHeaders", "-XX:+Use" + gc + "GC"})
			}
		}
	}
	return ways
}

// TestJavaLocks: the objects of threads that parked, slept or wait to be notified, and
// their holders, must match the program's output with each collector. Cycles over such
// locks must be deadlocks.
func TestJavaLocks(t *testing.T) {
	for _, v := range versions(javas) {
		for _, flags := range javaWays(v) {
			t.Run(v+strings.Join(flags, ""), func(t *testing.T) {
				p := startJava(t, v, "Locks", "ready", append([]string{"-Xmx64m"}, flags...)...)
				// References whose targets ZGC may have moved cannot be followed.
				stale := slices.Contains(flags, "-XX:+UseZGC")
				s := take(t, Options{}, open1(t, p.PID))[0]
				names := map[stack.TID]string{}
				for i := range s.Threads {
					names[s.Threads[i].TID] = s.Threads[i].OwnName
				}
				seen, unknown := 0, 0
				for _, line := range p.Output() {
					f := strings.Fields(line)
					if len(f) != 5 || f[0] != "wait" {
						continue
					}
					i := slices.IndexFunc(s.Threads, func(th stacks.Thread) bool { return th.OwnName == f[1] })
					if i < 0 {
						t.Errorf("no thread %s", f[1])
						continue
					}
					seen++
					w := s.Threads[i].Wait
					got := waitOf(w, names)
					if got == strings.Join(f[2:], " ") {
						continue
					}
					if stale && w != nil && w.Lock != nil && (w.Lock.Basis == lock.ByNothing || w.Lock.Kind == kind.LockMonitor) && w.Lock.Holder.TID == 0 {
						unknown++
						continue
					}
					t.Errorf("%s: %s, not %s: %+v", f[1], got, strings.Join(f[2:], " "), w)
				}
				if seen != 19 {
					t.Errorf("%d of 19 threads", seen)
				}
				if unknown > 0 {
					t.Logf("of %d threads it is not known what they wait for", unknown)
				}
				if len(s.Deadlocks) != 2 && unknown == 0 {
					t.Errorf("%d deadlocks: %+v", len(s.Deadlocks), s.Deadlocks)
				}
				for _, d := range s.Deadlocks {
					var in []string
					for _, x := range d.Threads {
						in = append(in, names[x.TID])
					}
					if slices.Sort(in); !slices.Equal(in, []string{"cross-a", "cross-b"}) && !slices.Equal(in, []string{"mixed-a", "mixed-b"}) {
						t.Errorf("a deadlock of %v", in)
					}
				}
			})
		}
	}
}

// waitOf formats a wait like Locks: "KIND CLASS HOLDER".
func waitOf(w *wait.Info, names map[stack.TID]string) string {
	if w == nil {
		return "nothing"
	}
	if w.Kind == kind.WaitSleep {
		return "sleep - -"
	}
	if w.Lock == nil {
		return string(w.Kind)
	}
	l := w.Lock
	sort, class, holder := string(l.Kind), "-", "-"
	if l.Kind == kind.LockCond {
		sort = "condition"
	}
	if l.Type != "" {
		class = l.Type
	}
	switch {
	case l.Holder.TID != 0 && l.Holder.By == event.KnownByRuntime:
		holder = names[l.Holder.TID]
	case l.Holder.Readers != 0:
		holder = strconv.Itoa(l.Holder.Readers)
	case strings.Contains(l.Holder.Why, "held by a writer"):
		holder = "writer"
	}
	return sort + " " + class + " " + holder
}

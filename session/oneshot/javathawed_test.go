package oneshot

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
)

// TestJavaThawed: a virtual thread that has parked and runs again must have all its frames, those in the
// heap too, in the order and with the lines that Java itself says.
func TestJavaThawed(t *testing.T) {
	warm := []string{"60", "3000"}
	ways := []struct{ flags, args []string }{
		{nil, warm},
		{[]string{"-Xint"}, []string{"40", "0"}},
	}
	if os.Getenv("SLIVER_LONG") != "" {
		for _, f := range []string{"-XX:-TieredCompilation", "-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseShenandoahGC", "-XX:-UseCompressedClassPointers", "-XX:+UseZGC"} {
			ways = append(ways, struct{ flags, args []string }{[]string{f}, warm})
		}
		ways = append(ways, []struct{ flags, args []string }{{[]string{"-Xint", "-XX:+UseZGC"}, []string{"40", "0"}},
			{[]string{"-XX:-UseCompressedOops"}, []string{"300", "300"}}}...)
	}
	for _, v := range []string{"java21", "java25"} {
		for _, way := range ways {
			t.Run(v+strings.Join(way.flags, ""), func(t *testing.T) {
				if v == "java21" {
					testprog.Whole(t, "Java 25")
				}
				flags := append([]string{"-Djdk.virtualThreadScheduler.parallelism=2", "-Djdk.virtualThreadScheduler.maxPoolSize=2"}, way.flags...)
				p := startJavaWith(t, v, "Thawed", "ready", flags, way.args...)
				want := map[string]string{}
				for _, line := range p.Output() {
					if f := strings.Fields(line); len(f) == 3 && f[0] == "stack" {
						_, outer, _ := strings.Cut(f[2], ",") // without spin itself, which has moved on
						want[f[1]] = outer
					}
				}
				if len(want) != 2 {
					t.Fatalf("not the stacks of two threads: %q", p.Output())
				}
				target := open1(t, p.PID)
				for name, frames := range want {
					var found *stacks.Thread
					until(t, Options{}, "the stack of "+name, func(s []*stacks.Snapshot) bool {
						found = nil
						for i := range s[0].Threads {
							if th := &s[0].Threads[i]; strings.HasSuffix(th.Carries, ` "`+name+`"`) && len(th.Frames) > 0 && th.Truncated == stack.ReasonNone {
								found = th
							}
						}
						return found != nil
					}, target)
					for _, f := range found.Frames {
						if f.Kind == stack.KindError {
							t.Errorf("%s: a gap: %s", name, f.Func)
						}
					}
					got := javaOf(slices.DeleteFunc(slices.Clone(found.Frames), func(f stacks.Frame) bool { // hidden from StackWalker
						return strings.Contains(f.Func, "$$Lambda/") || f.Func == "java.lang.Thread.runWith"
					}))
					leaf, outer, _ := strings.Cut(got, ",")
					if rest, ok := strings.CutPrefix(outer, frames); !ok || !strings.HasPrefix(leaf, "Thawed.spin:") || !strings.HasPrefix(rest, "java.lang.VirtualThread$VThreadContinuation") {
						t.Errorf("%s:\n%s\nnot\n%s", name, strings.ReplaceAll(got, ",", "\n"), strings.ReplaceAll(frames, ",", "\n"))
					}
					if strings.Count(frames, ",") < 10 || found.Truncated != stack.ReasonNone {
						t.Errorf("%s: %d frames, %v", name, strings.Count(frames, ","), found.Truncated)
					}
				}
			})
		}
	}
}

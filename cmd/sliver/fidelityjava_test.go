package main

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// TestFidelityInitializers: threads that wait for the initialization of a class by another thread are
// part of deadlocks, and those behind them have that thread as holder.
func TestFidelityInitializers(t *testing.T) {
	testprog.Need(t, "ptrace")
	for _, tool := range []string{"java17", "java21", "java25"} {
		t.Run(tool, func(t *testing.T) {
			p := testprog.Start(t, testprog.Tool(t, tool), "-Xmx64m", "-cp", testprog.JavaClasses(t, "Initializers"), "Initializers")
			p.Ready()
			var r result
			waitFor(t, func() bool {
				r = sliver(t, t.TempDir(), "stack", "--fail-on-deadlock", pidOf(p))
				return strings.Count(r.out, "DEADLOCK of 2 threads") == 2 && strings.Count(r.out, "waits for Initializers$A class initialization") >= 3
			})
			if r.status != 3 {
				t.Errorf("status %d", r.status)
			}
			for _, c := range []struct{ thread, class, holder string }{
				{"init-A", "Initializers$B class initialization", "init-B"},
				{"init-B", "Initializers$A class initialization", "init-A"},
				{"waits-A", "Initializers$A class initialization", "init-A"},
				{"holds-monitor", "Initializers$C class initialization", "init-C"},
				{"init-C", "java.lang.Object monitor", "holds-monitor"},
			} {
				_, part, _ := strings.Cut(r.out, `"`+c.thread+`" TID `)
				part, _, _ = strings.Cut(part, "\n\n")
				if !strings.Contains(part, "waits for "+c.class) || !strings.Contains(part, `"`+c.holder+`" (known by: runtime)`) {
					t.Errorf("%s: no %s, held by %s:\n%s", c.thread, c.class, c.holder, part)
				}
			}
		})
	}
}

// TestFidelityUpcalls: the stack of a Java method that C code calls goes on through the stub between
// them (Foreign Function and Memory API), compiled and interpreted. The comparator is not inlined: C2 has
// places for inlined code at safepoints only, so that its loop may count for its caller.
func TestFidelityUpcalls(t *testing.T) {
	testprog.Whole(t, "TestJavaBusy of package session has upcalls of other kinds")
	testprog.Need(t, "ptrace")
	for _, mode := range []string{"-Xmixed", "-Xint"} {
		t.Run(mode, func(t *testing.T) {
			p := testprog.Start(t, testprog.Tool(t, "java25"), "-Xmx64m", mode, "--enable-native-access=ALL-UNNAMED",
				"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Upcall::order", "-cp", testprog.JavaClasses(t, "Upcall"), "Upcall")
			p.Line("ready")
			stacks := recordFolded(t, p, 60, "-t", "main")
			var all, whole int64
			for s, n := range stacks {
				if !has(s, "[upcall_stub]") {
					continue
				}
				all += n
				// qsort calls itself, or functions of its own.
				before, _, _ := strings.Cut(s, ";[upcall_stub]")
				if has(before, "Upcall.main") && has(before, "Upcall.sort") && strings.Contains(before, ";qsort") && !strings.Contains(s, ";[stack") {
					whole += n
				}
			}
			order, _ := timeOf(stacks, "Upcall.order")
			if order == 0 || all < order || whole < all*98/100 {
				t.Errorf("%d of %d ns are whole; %d in the comparator: %v", whole, all, order, stacks)
			}
		})
	}
}

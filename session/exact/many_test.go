package exact

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/target"
)

const manyFunctions = 5000

// many builds a program with manyFunctions functions, which waits for a line and then calls each of them once.
func many(tb testing.TB) string {
	tb.Helper()
	var code strings.Builder
	code.WriteString("#include <stdio.h>\n#include <unistd.h>\n")
	for i := range manyFunctions {
		fmt.Fprintf(&code, "int many_%d(int n) { return n + %d; }\n", i, i)
	}
	code.WriteString("int (*const all[])(int) = {\n")
	for i := range manyFunctions {
		fmt.Fprintf(&code, "\tmany_%d,\n", i)
	}
	code.WriteString(`};
int main(void) {
	printf("ready %d\n", getpid());
	fflush(stdout);
	if (getchar() < 0) return 1;
	for (int i = 0; i < sizeof all / sizeof *all; i++) all[i](i);
	puts("done");
	fflush(stdout);
	getchar();
}
`)
	return testprog.GCC(tb, "many", code.String(), "-O0")
}

// TestManyFunctions: each of 5,000 functions that a process calls once has one call.
func TestManyFunctions(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	p := testprog.Start(t, many(t))
	p.Ready()
	tr := trace(t, p.PID, Kernel, "/^many_[0-9]+$/")
	if len(tr.Functions) != manyFunctions {
		t.Fatalf("%d functions", len(tr.Functions))
	}
	times := make([]int, manyFunctions)
	for _, c := range run(t, tr, p) {
		times[c.Fn]++
		if c.How != calls.Returned && c.How != calls.Jumped {
			t.Errorf("%s: %+v", tr.Functions[c.Fn].Name, c)
		}
	}
	for fn, n := range times {
		if n != 1 {
			t.Errorf("%s: %d calls", tr.Functions[fn].Name, n)
		}
	}
	if st := tr.Stats(); st.Lost > 0 || st.Dropped > 0 {
		t.Errorf("%d hits lost, %d dropped", st.Lost, st.Dropped)
	}
	p.Finish()
}

// BenchmarkManyFunctions measures how long it takes to begin and to end the tracing of 5,000 functions: on-ms from the
// functions that were found to their tracing, off-ms for its end, find-ms for finding them before.
func BenchmarkManyFunctions(b *testing.B) {
	cmd := exec.Command(many(b))
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	if _, err := fmt.Fscanf(out, "ready %d\n", new(int)); err != nil {
		b.Fatal(err)
	}
	p, err := target.Open(cmd.Process.Pid)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	pattern, err := calls.ParsePattern("/^many_[0-9]+$/")
	if err != nil {
		b.Fatal(err)
	}
	var find, on, off time.Duration
	n := 0
	for b.Loop() {
		begin := time.Now()
		names, err := Find(p, []calls.Pattern{pattern}, FindOptions{})
		if err != nil {
			b.Fatal(err)
		}
		found := time.Now()
		tr, err := Start(p, names.Functions, Options{Engine: Kernel})
		if err != nil {
			b.Skip(err)
		}
		started := time.Now()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := tr.Run(ctx, func([]calls.Call) {}); err != nil {
			b.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			b.Fatal(err)
		}
		find, on, off, n = find+found.Sub(begin), on+started.Sub(found), off+time.Since(started), n+1
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 / float64(n) }
	b.ReportMetric(ms(find), "find-ms")
	b.ReportMetric(ms(on), "on-ms")
	b.ReportMetric(ms(off), "off-ms")
	b.ReportMetric(0, "ns/op")
}

package trace_test

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// TestSharpMethods: calls of methods, whose frames and callers are unknown, belong to sampled frames by name and order.
func TestSharpMethods(t *testing.T) {
	type b = exporttest.Builder
	for _, c := range []sharpCase{
		{
			name:  "the edges of a frame",
			looks: []look{{0, "main"}, {10, "main app.run app.total app.add"}, {20, "main app.run app.total app.add"}, {30, "main"}},
			calls: func(b *b) { b.Exact(1, "app.total", "", 3*ms, 24*ms, calls.Returned) },
			want:  "0 main 0..30000|1 app.run 3000..30000|2 app.total 3000..24000 ended|3 app.add 10000..24000", placed: 1,
		},
		{
			name:  "short calls are on what both samples have",
			looks: []look{{0, "main app.run app.add"}, {10, "main app.run app.sub"}},
			calls: func(b *b) {
				b.Exact(1, "app.total", "", 3*ms, 4*ms, calls.Returned)
				b.Exact(1, "app.never", "", 5*ms, 6*ms, calls.Returned)
			},
			want: "0 main 0..10000|1 app.run 0..10000|2 app.add 0..3000|2 app.total 3000..4000 ended orphan|2 app.add 4000..5000|" +
				"2 app.never 5000..6000 ended orphan|2 app.add 6000..10000|2 app.sub 10000..10000", placed: 3,
		},
		{
			name:  "recursion, and calls in calls",
			looks: []look{{0, "main app.run"}, {10, "main app.run app.deep app.deep"}, {20, "main app.run"}},
			calls: func(b *b) {
				b.Exact(1, "app.deep", "", 6*ms, 12*ms, calls.Returned)
				b.Exact(1, "app.deep", "", 5*ms, 13*ms, calls.Returned)
				b.Exact(1, "app.total", "", 15*ms, 16*ms, calls.Returned)
				b.Exact(1, "app.deep", "", 14*ms, 17*ms, calls.Returned)
			},
			want: "0 main 0..20000|1 app.run 0..20000|2 app.deep 5000..13000 ended|3 app.deep 6000..12000 ended|" +
				"2 app.deep 14000..17000 ended|3 app.total 15000..16000 ended orphan", placed: 15,
		},
		{
			name:  "a frame below the code that records a call is not in it",
			looks: []look{{0, "main app.run"}, {10, "main app.run app.total jdk.jfr.record"}, {20, "main app.run"}},
			calls: func(b *b) { b.Exact(1, "app.total", "", 3*ms, 9*ms, calls.Returned) },
			want:  "0 main 0..20000|1 app.run 0..20000|2 app.total 3000..9000 ended orphan", placed: 1,
		},
		{
			name:  "a call of a method that began before tracing is not known",
			looks: []look{{0, "main app.total app.add"}, {10, "main app.total app.add"}, {20, "main"}},
			calls: func(b *b) { b.Exact(1, "app.total", "", 15*ms, 16*ms, calls.Returned) },
			want:  "0 main 0..20000|1 app.total 0..15000|2 app.add 0..15000|1 app.total 15000..16000 ended", placed: 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := c.check(t)
			lines, placed := sharp(t, rec.Only(trace.AllKinds.Without(stack.KindJava)), 0)
			if got := strings.Join(lines, "|"); strings.Contains(got, "app.") || len(placed) > 0 {
				t.Errorf("without frames of Java: %s, placed %b", got, placed)
			}
		})
	}
}

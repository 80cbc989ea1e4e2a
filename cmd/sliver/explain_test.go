package main

import (
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// TestExplain: each reason and state that an output can show has an explanation, found by the word as shown.
func TestExplain(t *testing.T) {
	var words []string
	for r := stack.ReasonNone + 1; r < stack.MaxReason; r++ {
		if s := r.String(); !strings.HasPrefix(s, "reason") {
			words = append(words, "["+s+"]")
		}
	}
	for w := stack.WhyLate; ; w++ {
		s := w.String()
		if strings.HasPrefix(s, "why") {
			break
		}
		words = append(words, "[gap: "+s+"]")
	}
	for s := stack.StateRunning; s <= stack.StateDead; s++ {
		words = append(words, s.String())
	}
	if len(words) < 30 {
		t.Fatalf("words %q", words)
	}
	dir := t.TempDir()
	for _, w := range words {
		if got := topicsOf(w); len(got) != 1 || len(got[0].about) < 15 {
			t.Errorf("%s: %v", w, got)
		}
	}
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 0, "no unwind rule"},
		{[]string{"no", "unwind", "rule"}, 0, "-fno-omit-frame-pointer"},
		{[]string{"(not sampled)"}, 0, "no sample found it on a CPU"},
		{[]string{"samples"}, 0, "read while blocked"},
		{[]string{"gap"}, 0, "stop timed out"},
		{[]string{"disk", "sleep"}, 0, "uninterruptible"},
		{[]string{"nonsense"}, 2, `no topic matches "nonsense"`},
		{[]string{"[]"}, 2, "no topic matches"},
	} {
		r := sliver(t, dir, append([]string{"explain"}, c.args...)...)
		if r.status != c.status || !strings.Contains(r.out+r.errors, c.want) {
			t.Errorf("explain %q: status %d\n%s%s", c.args, r.status, r.out, r.errors)
		}
		for line := range strings.Lines(r.out) {
			if len([]rune(line)) > 81 {
				t.Errorf("a line of %d columns: %s", len(line), line)
			}
		}
	}
}

package report

import (
	"strings"
	"testing"
)

// TestAllIdle: a table of threads without rows says why, and has no head.
func TestAllIdle(t *testing.T) {
	r := &Report{}
	r.Idle.Add(100, 100)
	var b strings.Builder
	r.textThreads(&b)
	if want := "\nThreads\n  all were idle; --idle shows them\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

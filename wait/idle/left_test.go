package idle_test

import (
	"testing"

	"github.com/sliverprof/sliver/wait/idle"
)

func TestLeft(t *testing.T) {
	var l idle.Left
	if l.Any() || l.String() != "" {
		t.Errorf("nothing is %q", l.String())
	}
	for range 4 {
		l.Add(5_025_000_000, 5_026_000_000)
	}
	l.Add(0, 7)
	if got, want := l.String(), "4 idle threads, 20.1 s; --idle shows them"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	l.Add(1_300_000_000, 5_000_000_000)
	if got, want := l.String(), "4 idle threads, 20.1 s, and idle waits of 1 other thread, 1.30 s; --idle shows them"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	l = idle.Left{}
	l.Add(250_000, 5_000_000_000)
	if got, want := l.String(), "idle waits of 1 thread, 250 µs; --idle shows them"; got != want || !l.Any() {
		t.Errorf("%q, want %q", got, want)
	}
}

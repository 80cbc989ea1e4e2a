package session

import (
	"testing"
	"time"
)

// Statistics of hundreds of processes are written less often than those of one.
func TestStatsEvery(t *testing.T) {
	for n, want := range map[int]time.Duration{0: statsEvery, statsCrowd - 1: statsEvery, 200: 7 * statsEvery} {
		f := &family{live: map[*Session]bool{}}
		for range n {
			f.live[&Session{}] = true
		}
		if got := f.statsEvery(); got != want {
			t.Errorf("%d processes: %v, want %v", n, got, want)
		}
	}
	if got := (*family)(nil).statsEvery(); got != statsEvery {
		t.Errorf("one process: %v", got)
	}
}

package trigger

import (
	"maps"
	"strings"
	"testing"
)

// TestDescriptorKinds: what fires about descriptors names the kinds that grew since the first check, those that
// grew most first. Kinds are counted then alone, since each descriptor takes a system call.
func TestDescriptorKinds(t *testing.T) {
	w := newWorld(t, 1, "fds 50%,checks=2,every=1s")
	kinds := map[string]int{"file": 20, "socket": 20, "pipe": 10}
	calls := 0
	w.usage.Kinds = func() map[string]int {
		calls++
		return maps.Clone(kinds)
	}
	w.usage.FDs, w.usage.FDsMax = 50, 1000
	for range 100 {
		w.tick()
	}
	if calls != 1 {
		t.Errorf("kinds were counted %d times, not once", calls)
	}
	kinds["socket"], kinds["file"], kinds["eventpoll"], kinds["pipe"] = 570, 50, 2, 8
	w.usage.FDs = 630
	for range 200 {
		w.tick()
	}
	w.want(1, "descriptors: 630 of 1000", "more than at the first check: socket 570 (+550), file 50 (+30), eventpoll 2 (+2)")
	if strings.Contains(w.fired[0].Text, "pipe") || calls != 2 {
		t.Errorf("%s; %d calls", w.fired[0].Text, calls)
	}
}

package jvm

import "testing"

// TestMeetNameLater: a virtual thread with an empty name gets the first name that a later read
// finds, and keeps it.
func TestMeetNameLater(t *testing.T) {
	h := &hotspot{}
	for _, x := range []struct{ name, want string }{{"", ""}, {"named-21", "named-21"}, {"", "named-21"}, {"other", "named-21"}} {
		if !h.meet(21, x.name) {
			t.Fatalf("%q: no room", x.name)
		}
		if got := h.virtual[21]; got != x.want || len(h.virtual) != 1 {
			t.Errorf("after %q it is %q of %d, want %q", x.name, got, len(h.virtual), x.want)
		}
	}
	if !h.meet(0, "none") || h.meet(maxTaskID+1, "big") || len(h.virtual) != 1 {
		t.Errorf("numbers that are none: %v", h.virtual)
	}
}

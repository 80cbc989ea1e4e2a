package target

import "testing"

// TestTickDelay: the delay of a tick is measured, and is within the limits.
func TestTickDelay(t *testing.T) {
	d := TickDelay()
	t.Log(d, "ns")
	if d <= 0 || d > mostDelay {
		t.Errorf("a tick takes effect after %d ns", d)
	}
}

package methods

import (
	"math"
	"testing"
	"time"

	"github.com/sliverprof/sliver/lang/jvm/jfr"
)

// TestClock: readings that came too late do not count, and the rate of a CPU's counter follows from them.
func TestClock(t *testing.T) {
	const second = int64(time.Second)
	late := []int64{999_000, 300, 0, 250_000, 40, 2_000_000, 10, 0}
	for _, c := range []struct {
		name     string
		nominal  int64   // ticks per second by JFR
		per      float64 // ns that a tick takes
		readings int
		within   int64 // ns
		says     time.Duration
	}{
		{"nanoseconds", second, 1, len(late), 0, 0},
		{"two readings", second, 1, 2, 300, 998_700},
		{"counter", 2_100_000_000, 1e9 / 2_099_800_000, len(late), 20, 10},
		{"wrong rate", 2_100_000_000, 1, len(late), 2_000_000, 3 * time.Second},
		{"one", second, 1, 1, 999_000, unknownError},
	} {
		x := clock{nanos: -1_700_000_000 * second}
		x.before = x.nanos
		for i := range c.readings {
			ticks := int64(float64(int64(i)*5*second) / c.per)
			at := 100*second + int64(math.Round(float64(ticks)*c.per))
			x.add(&jfr.Header{StartTicks: 1000 + ticks, Start: at + late[i] - x.nanos, TicksPerSec: c.nominal})
		}
		if c.name == "wrong rate" { // not believed
			if x.line.per != 1e9/float64(c.nominal) {
				t.Errorf("%s: %v ns a tick", c.name, x.line.per)
			}
			continue
		}
		for _, at := range []int64{0, second, 17 * second, 36 * second} {
			got := x.line.time(1000+int64(float64(at)/c.per)) - 100*second
			if off := abs(got - at); off > c.within+1 || x.error != c.says {
				t.Errorf("%s: off by %d ns at %d, want %d; says %v, want %v", c.name, off, at, c.within, x.error, c.says)
			}
		}
	}

	// The system's clock is set by an hour between two looks: a chunk before and one after that.
	x := clock{nanos: -1000 * second, before: -1000 * second}
	x.add(&jfr.Header{StartTicks: 0, Start: 2000 * second, TicksPerSec: second})
	x.nanos, x.before = -4600*second, x.nanos
	x.add(&jfr.Header{StartTicks: second, Start: 2001 * second, TicksPerSec: second})
	x.add(&jfr.Header{StartTicks: 2 * second, Start: 5602 * second, TicksPerSec: second})
	if got := x.line.time(3 * second); got != 1003*second || x.error != 0 {
		t.Errorf("set: %d, error %v", got, x.error)
	}
	for _, ticks := range []int64{math.MinInt64, -1, math.MaxInt64} { // hostile
		if at := x.line.time(ticks); at < 0 || at > maxTime {
			t.Errorf("tick %d is at %d", ticks, at)
		}
	}
}

package stack

import "testing"

// Percentiles of two processes together are those of their stops, and few long stops of one do not become those of all.
func TestPausesAdd(t *testing.T) {
	many := Pauses{Count: 1000, Mean: 12_000, P50: 10_000, P90: 20_000, P99: 50_000, P999: 80_000, P9999: 100_000, Max: 100_000, Under: 980}
	few := Pauses{Count: 2, Mean: 60_000_000, P50: 60_000_000, P90: 62_000_000, P99: 62_000_000, P999: 62_000_000, P9999: 62_000_000, Max: 62_000_000}
	for _, both := range [][2]Pauses{{many, few}, {few, many}} {
		p := both[0]
		p.Add(&both[1])
		if p.Count != 1002 || p.Max != 62_000_000 || p.Under != 980 || p.Mean != 131_736 || p.P50 < 10_000 || p.P50 > 10_100 || p.P90 < 20_000 || p.P90 > 21_000 ||
			p.P99 < 50_000 || p.P99 > 80_000 || p.P999 < 100_000 || p.P9999 != p.Max {
			t.Errorf("%+v", p)
		}
	}
	near := func(a, b int64) bool { return a >= b-1 && a <= b+1 }
	same := many
	same.Add(&many)
	if same.Count != 2000 || !near(same.P50, many.P50) || !near(same.P90, many.P90) || !near(same.P99, many.P99) || !near(same.P999, many.P999) || same.Mean != many.Mean {
		t.Errorf("twice the same: %+v", same)
	}
	var none Pauses
	if none.Add(&many); none != many {
		t.Errorf("none and %+v: %+v", many, none)
	}
	if none.Add(&Pauses{}); none != many {
		t.Errorf("%+v and none: %+v", many, none)
	}
	one := Pauses{Count: 1, Mean: 5, P50: 5, P90: 5, P99: 5, P999: 5, P9999: 5, Max: 5}
	other := Pauses{Count: 1, Mean: 9, P50: 9, P90: 9, P99: 9, P999: 9, P9999: 9, Max: 9}
	if one.Add(&other); one.Count != 2 || one.P50 < 4 || one.P50 > 6 || one.P99 != 9 || one.Max != 9 {
		t.Errorf("two stops: %+v", one)
	}
}

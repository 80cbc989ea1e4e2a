package trace

import (
	"math"
	"testing"
)

func TestLostTasks(t *testing.T) {
	look := func(what string, lost int) Tasks { return Tasks{What: what, Lost: lost} }
	for _, c := range []struct {
		looks []Tasks
		want  string
		n     int
	}{
		{nil, "", 0},
		{[]Tasks{look("goroutine", 0), look("goroutine", 0)}, "", 0},
		{[]Tasks{look("goroutine", 1)}, "1 goroutine missing in 1 of 1 look at all of them", 1},
		{[]Tasks{look("goroutine", 2), look("goroutine", 0), look("goroutine", 3)}, "5 goroutines missing in 2 of 3 looks at all of them", 5},
		{[]Tasks{look("asyncio", 2)}, "2 asyncio tasks missing in 1 of 1 look at all of them", 2},
		{[]Tasks{look("goroutine", 2), look("goroutine", -7)}, "2 goroutines missing in 1 of 2 looks at all of them", 2}, // hostile value
		{[]Tasks{look("\x1b[2J", math.MaxInt), look("\x1b[2J", math.MaxInt)}, "2199023255552 tasks missing in 2 of 2 looks at all of them", 1 << 41},
	} {
		r := &Recording{Tasks: c.looks}
		if l := r.LostTasks(); l.String() != c.want || l.N != c.n {
			t.Errorf("%+v: %q, want %q", c.looks, l, c.want)
		}
	}
}

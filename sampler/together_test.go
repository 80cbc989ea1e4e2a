package sampler

import (
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// The first threads share main's group, so that a program with few threads wakes up only one
// goroutine. Further threads go to other groups; another group begins when the previous ones are
// full, and once all are full, threads are spread evenly. Threads that hardly ran in their lives need fewer groups.
func TestTogether(t *testing.T) {
	const life = 10_000_000_000
	const busy, idle = life / calmShare * 2, life / calmShare / 2
	for _, c := range []struct {
		together, threads int
		want              []int32
		interval          time.Duration // 0: the default
		ran               int64         // CPU time of each thread in a life of 10 s, in ns
	}{
		{0, 11, []int32{1, 10, 0}, 0, busy},
		{0, 12, []int32{1, 10, 1}, 0, busy},
		{0, 25, []int32{1, 12, 12}, 0, busy},
		{4, 3, []int32{3, 0, 0}, 0, busy},
		{4, 4, []int32{4, 0, 0}, 0, busy},
		{4, 14, []int32{4, 10, 0}, 0, busy},
		{1, 3, []int32{1, 2, 0}, 0, busy},
		{0, 5, []int32{1, 2, 2}, time.Millisecond, busy},
		{0, 5, []int32{1, 4, 0}, time.Millisecond, idle},
		{0, 2 + fewSleep, []int32{1, fewSleep, 1}, time.Millisecond, idle},
		{4, 5, []int32{4, 1, 0}, 0, idle},
	} {
		f := &fakeTarget{}
		for tid := range stack.TID(c.threads) {
			f.threads = append(f.threads, &fakeThread{tid: tid + 1})
		}
		s, err := New(f, Config{Interval: c.interval, Groups: 2, Together: c.together, Start: func(in stack.ThreadInfo) Sink { return f.sink(in) }})
		if err != nil {
			t.Fatal(err)
		}
		for tid := range stack.TID(c.threads) {
			s.add(stack.ThreadInfo{TID: tid + 1, Main: tid == 0, Born: -life, CPU: c.ran})
		}
		var got []int32
		for _, g := range s.groups {
			got = append(got, g.tally.size.Load())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d threads, %d together: %d, want %d", c.threads, c.together, got, c.want)
		}
	}
}

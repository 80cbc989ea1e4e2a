package sampler

//sliver:layer live

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

func TestHistogram(t *testing.T) {
	for v := range uint64(100_000) {
		b := bucket(v)
		if v < lower(b) || v >= lower(b+1) {
			t.Fatalf("%d is in bucket %d: [%d, %d)", v, b, lower(b), lower(b+1))
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var a, b Histogram
	var all []int64
	for i := range 20_000 {
		v := int64(rnd.ExpFloat64() * 40_000)
		all = append(all, v)
		if i%2 == 0 {
			a.Add(v)
		} else {
			b.Add(v)
		}
	}
	slices.Sort(all)
	p := pauses([]*Histogram{&a, &b})
	for _, c := range []struct {
		q   float64
		got int64
	}{{.5, p.P50}, {.9, p.P90}, {.99, p.P99}, {.999, p.P999}} {
		want := all[int(math.Ceil(c.q*float64(len(all))))-1]
		if d := float64(c.got-want) / float64(want); d > .07 || d < -.07 {
			t.Errorf("quantile %v: %d, want %d", c.q, c.got, want)
		}
	}
	if p.P9999 < p.P999 || p.P9999 > p.Max {
		t.Errorf("the worst of 10,000 is %d, between %d and %d", p.P9999, p.P999, p.Max)
	}
	var few Histogram
	few.Add(100)
	few.Add(9000)
	if p := pauses([]*Histogram{&few}); p.P50 > 110 || p.P99 < 8500 || p.P99 > p.Max {
		t.Errorf("of two, the median is %d and the worst of a hundred %d", p.P50, p.P99)
	}
	d := distribution([]*Histogram{&a, &b})
	var sum int64
	want := make([]uint64, len(d.Bounds)+1)
	for _, v := range all {
		sum += v
		i, _ := slices.BinarySearch(d.Bounds, v+1) // bounds[i-1] <= v < bounds[i]
		want[i]++
	}
	if !slices.Equal(d.Counts, want) || d.Sum != sum || d.Count != 20_000 || d.Max != p.Max {
		t.Errorf("distribution %v, want %v; sum %d of %d, count %d, max %d", d.Counts, want, d.Sum, sum, d.Count, d.Max)
	}
	if p.Count != 20_000 || p.Max != all[len(all)-1] {
		t.Errorf("%+v", p)
	}
}

// TestRoles: threads are grouped by the pattern of their names, and the number of roles is
// bounded for a target that names its threads at random.
func TestRoles(t *testing.T) {
	for _, c := range []struct {
		in   stack.ThreadInfo
		want string
	}{
		{stack.ThreadInfo{Name: "x", Main: true}, "main"}, {stack.ThreadInfo{Name: "worker-12"}, "worker-*"},
		{stack.ThreadInfo{Name: "3a45b"}, "*a*b"}, {stack.ThreadInfo{Name: "main"}, "main*"},
		{stack.ThreadInfo{Name: "other"}, "other*"}, {stack.ThreadInfo{}, ""},
	} {
		if got := RoleOf(&c.in); got != c.want {
			t.Errorf("%+v: %q, want %q", c.in, got, c.want)
		}
	}
	f := &fakeTarget{until: 100 * ms}
	for i := range stack.TID(80) {
		th := running(1000)
		th.tid = 10 + i
		f.threads = append(f.threads, th)
	}
	f.name = func(tid stack.TID) string {
		if tid < 30 {
			return fmt.Sprintf("pool-%d", tid)
		}
		return strings.Repeat("z", int(tid))
	}
	s, _, acc := sampleAll(t, f, Config{Interval: 10 * time.Millisecond})
	roles := s.Roles()
	if len(roles) != maxRoles+1 {
		t.Errorf("%d roles", len(roles))
	}
	var stops, threads int
	for _, r := range roles {
		stops += int(r.Stats.Stops)
		threads += r.Threads
		if r.Role == "pool-*" && r.Threads != 20 || r.Role == RoleOther && r.Threads != 60-maxRoles+1 {
			t.Errorf("%d threads of role %q", r.Threads, r.Role)
		}
		if r.Pauses.Count != r.Stats.Stops || r.Pauses.Sum != r.Stats.PauseNS {
			t.Errorf("role %q: %d pauses of %d ns for %d stops of %d ns", r.Role, r.Pauses.Count, r.Pauses.Sum, r.Stats.Stops, r.Stats.PauseNS)
		}
	}
	want := 0
	for _, a := range acc {
		want += int(a.Stops)
	}
	if stops != want || stops == 0 || threads != 80 {
		t.Errorf("%d stops of %d threads by role, %d of 80 by thread", stops, threads, want)
	}
	if first := s.First(); first <= 0 || first > 10*ms {
		t.Errorf("the first sample was at %d", first)
	}
}

// TestAccountsHold: a reader of the accounts never sees more samples of a kind than samples in
// total, while samples arrive.
func TestAccountsHold(t *testing.T) {
	f := &fakeTarget{threads: []*fakeThread{blocked(1)}, until: 200_000 * ms}
	var once sync.Once
	stop, ended := make(chan struct{}), make(chan int)
	f.steer = func(s *Sampler, _ stack.Time) {
		once.Do(func() {
			go func() {
				n := 0
				defer func() { ended <- n }()
				for ; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					all, _ := s.Accounts()
					for _, a := range all {
						if a.Unrun+a.Read > a.Samples {
							t.Errorf("%d had not run and %d were read, of %d samples", a.Unrun, a.Read, a.Samples)
							return
						}
					}
				}
			}()
		})
	}
	sample(t, f, Config{Interval: 10 * time.Millisecond})
	close(stop)
	if n := <-ended; n < 100 && !t.Failed() {
		t.Errorf("they were read %d times only", n)
	}
}

package sampler

import (
	"slices"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// The list of threads of a process that does not run is read less often the more processes there are.
func TestIdleFollow(t *testing.T) {
	hosts := func(n int) *Hosts { return &Hosts{all: []*host{{guests: n / 2}, {guests: n - n/2}}} }
	for _, c := range []struct {
		hosts *Hosts
		want  time.Duration
	}{
		{nil, 0}, {hosts(2), 5 * time.Millisecond}, {hosts(40), 100 * time.Millisecond}, {hosts(500), mostFollow},
	} {
		s := &Sampler{cfg: Config{Hosts: c.hosts}}
		if got := s.idleFollow(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The list of a target whose changes are reported is read for full checks alone, and when a change is reported.
func TestFollowReported(t *testing.T) {
	f := newFollowed(t)
	f.born = -10_000_000_000 // its threads have had their names for long
	var at, then time.Time   // of the report, and when the next wait ended
	f.between = func(f *followed) bool {
		switch f.waits {
		case 4:
			f.s.Changed(false)
			at = f.clock
		case 5:
			then = f.clock
			f.threads = append(f.threads, blocked(3))
			f.s.Changed(false)
		}
		return f.clock.Before(followStart.Add(time.Minute))
	}
	f.reported = true
	f.run()
	if slept := then.Sub(at); slept < 0 || slept > 10*time.Millisecond || f.s.Threads() != 3 {
		t.Errorf("the wait after a report took %v; %d threads in the end", slept, f.s.Threads())
	}
	if f.stamps > len(f.lists) {
		t.Errorf("the stamp was read %d times for %d lists", f.stamps, len(f.lists))
	}
	if most := int(time.Minute/restList) + 2*youth + 2; len(f.lists) > most {
		t.Errorf("%d lists in a minute of a target that does not run, more than %d", len(f.lists), most)
	}
}

// A reported name is read with the next list, and many reports in a row lead to one list per period.
func TestFollowReportedName(t *testing.T) {
	f := newFollowed(t)
	f.reported = true
	name := "t"
	f.name = func(tid stack.TID) string {
		if tid == 2 {
			return name
		}
		return "t"
	}
	f.between = func(f *followed) bool {
		if f.waits == 20 {
			name = "new"
			for range 100 {
				f.s.Changed(true)
			}
		}
		return f.waits < 22
	}
	f.run()
	if !slices.Equal(f.named, []string{"new"}) {
		t.Errorf("new names %v", f.named)
	}
	s := f.s
	s.list.looked.Store(int64(s.target.Now())) // a list was just read
	for range 100 {
		s.Changed(false)
	}
	if !s.list.soon.Load() || len(s.list.poke) > 0 {
		t.Error("a report that follows a list is not put off")
	}
}

package sampler

import (
	"testing"
	"time"
)

// The list of threads of a process that does not run is read less often the more processes there are, but only if its end
// and execs are reported.
func TestIdleFollow(t *testing.T) {
	hosts := func(n int) *Hosts { return &Hosts{all: []*host{{guests: n / 2}, {guests: n - n/2}}} }
	for _, c := range []struct {
		hosts    *Hosts
		reported bool
		want     time.Duration
	}{
		{nil, true, 0}, {hosts(200), false, 0}, {hosts(2), true, 5 * time.Millisecond}, {hosts(40), true, 100 * time.Millisecond}, {hosts(500), true, mostFollow},
	} {
		s := &Sampler{cfg: Config{Hosts: c.hosts}}
		if c.reported {
			s.LivesReported()
		}
		if got := s.idleFollow(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

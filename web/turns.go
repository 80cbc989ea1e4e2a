package web

import (
	"encoding/json"
	"sync"
	"time"
)

// turns waits until work for a page may be done, and reports whether it may:
// stop ends the wait. Half of the CPUs at most do such work at one time, so that
// many pages at once leave the others, and the Go runtime's places to run, to the
// samplers in this program. Who has a turn must not wait for a client.
func (s *Server) turns(stop <-chan struct{}) bool {
	select {
	case s.build <- struct{}{}:
		return true
	case <-stop:
		return false
	}
}

func (s *Server) turned() { <-s.build }

// told is the status as it was last written out.
type told struct {
	mu sync.Mutex
	at time.Time
	b  []byte
}

// toldFor is how long a status serves other pages too.
const toldFor = 100 * time.Millisecond

// toldStatus is the status as JSON.
func (s *Server) toldStatus() []byte {
	s.told.mu.Lock()
	defer s.told.mu.Unlock()
	if s.told.b == nil || time.Since(s.told.at) > toldFor {
		s.turns(nil)
		b, err := json.Marshal(s.status())
		s.turned()
		if err != nil {
			s.o.Logf("encode the status: %v", err)
			return []byte("{}")
		}
		s.told.at, s.told.b = time.Now(), b
	}
	return s.told.b
}

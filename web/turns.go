package web

import (
	"encoding/json"
	"sync"
	"time"
)

// turns waits until work for a page may be done, and reports whether it may; stop ends
// the wait. At most half of the CPUs do such work at one time, so that many pages leave
// the other CPUs, and the Go scheduler's Ps, to the samplers in this program. The holder
// of a turn must not wait for a client.
func (s *Server) turns(stop <-chan struct{}) bool {
	select {
	case s.build <- struct{}{}:
		return true
	case <-stop:
		return false
	}
}

func (s *Server) turned() { <-s.build }

// This type caches the encoded status.
type told struct {
	mu sync.Mutex
	at time.Time
	b  []byte
}

// toldFor is how long a cached status is valid for other pages.
const toldFor = 100 * time.Millisecond

// toldStatus returns the status as JSON.
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

package target

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// sharedClock is a clock of many threads, whose copies are in a buffer for each CPU.
type sharedClock struct {
	perfRings
	done chan struct{}

	mu  sync.Mutex // guards what follows
	by  map[stack.TID]*Clock
	at  stack.Time // last reading of the buffers
	rec perfCopy
}

func newSharedClock() sharedClock {
	return sharedClock{by: map[stack.TID]*Clock{}, done: make(chan struct{})}
}

// follow empties the buffers before they are full. drain is called with mu held.
func (m *sharedClock) follow(drain func()) {
	defer close(m.done)
	fds := m.pollFDs()
	for {
		n, errno := sleep(&fds[0], len(fds), nil)
		if errno != 0 && errno != unix.EINTR || n > 0 && fds[0].Revents != 0 {
			return
		}
		forgetGone(fds)
		m.mu.Lock()
		drain()
		m.mu.Unlock()
	}
}

// lost reports whether a record says that a buffer was full, and counts what it had no room for.
func (m *sharedClock) lost(b []byte) bool {
	n := lostIn(b)
	if n == 0 {
		return false
	}
	for _, c := range m.by { // of which threads is unknown
		c.missed += n
	}
	return true
}

// receive keeps a copy until it is taken.
func (c *Clock) receive(rec *perfCopy) {
	if len(c.pending) >= mostPending {
		c.missed++
		return
	}
	x := c.pending.add()
	x.fill(rec)
	x.Ran = 0
	// The buffers are read one after the other, and the thread may have changed its CPU.
	for i := len(c.pending) - 1; i > 0 && c.pending[i].At < c.pending[i-1].At; i-- {
		c.pending[i], c.pending[i-1] = c.pending[i-1], c.pending[i]
	}
}

// give hands over the copies of c's thread. drain is called with mu held.
func (m *sharedClock) give(c *Clock, drain func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if monotonic()-m.at >= machineFresh {
		drain()
	}
	c.copies, c.pending = c.pending, c.copies[:0]
	c.lost += c.missed
	c.missed = 0
}

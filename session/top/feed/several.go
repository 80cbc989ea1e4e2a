package feed

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/top"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// Several observes several processes. Its tables hold the functions and threads of all of them. A
// process that ended stays in the tables for one window. Methods may be called from any goroutine;
// Close is the last one.
type Several struct {
	o Options

	runs sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	members []*member
	next    int               // number of the next member
	stats   stack.ThreadStats // of members that are gone
	idle    bool
	ended   time.Time // when the last process ended; valid while no process runs
	err     error     // of the first sampler that failed
	closed  bool
}

// member is one process.
type member struct {
	number int
	proc   *target.Process
	comm   string
	feed   *Feed
	over   bool // Run has returned
}

// seqBits is the part of a Row.Seq that is the thread's own; the rest is the member's number.
const seqBits = 24

// NewSeveral returns a Several without processes. It sets Hosts, Limit and Shared of o.
func NewSeveral(o Options) *Several {
	o.Shared = live.NewShared()
	o.Hosts = o.Shared.NewHosts(o.Interval)
	o.Limit = sampler.NewLimit(o.MaxCPU)
	return &Several{o: o, idle: o.Idle}
}

// Add observes p until it or ctx ends, and closes it. done is called then, unless there is an
// error.
func (s *Several) Add(ctx context.Context, p *target.Process, done func()) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		p.Close()
		return errors.New("closed")
	}
	s.runs.Add(1)
	o := s.o
	o.Idle = s.idle
	s.mu.Unlock()
	f, err := New(p, o)
	if err != nil {
		s.runs.Done()
		p.Close()
		return err
	}
	s.mu.Lock()
	m := &member{number: s.next, proc: p, comm: p.Facts().Comm, feed: f}
	s.next++
	s.members = append(s.members, m)
	s.mu.Unlock()
	go func() {
		defer s.runs.Done()
		err := f.Run(ctx)
		s.mu.Lock()
		m.over = true
		if err != nil && s.err == nil && p.Alive() {
			s.err = err
		}
		s.ended = time.Now()
		s.mu.Unlock()
		done()
	}()
	return nil
}

// Wait returns when all processes have ended or their contexts have. The error is of the first
// sampler that failed.
func (s *Several) Wait() error {
	s.runs.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// drop closes the processes that ended before the window. The caller holds mu.
func (s *Several) drop() {
	kept := s.members[:0]
	for _, m := range s.members {
		if at := m.feed.Ended(); m.over && !at.IsZero() && time.Since(at) > s.o.Window && len(s.members) > 1 {
			st := m.feed.Stats()
			s.stats.Add(&st)
			m.close()
			continue
		}
		kept = append(kept, m)
	}
	clear(s.members[len(kept):])
	s.members = kept
}

func (m *member) close() {
	m.feed.Close()
	m.proc.Close()
}

// Table returns the last window of all processes.
func (s *Several) Table() *top.Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	t := &top.Table{Processes: []top.Process{}}
	for _, m := range s.members {
		if name, err := m.proc.Comm(); err == nil {
			m.comm = name
		}
		t.Merge(m.feed.Table(), top.Process{PID: m.proc.PID(), Comm: m.comm, Ended: !m.feed.Ended().IsZero()},
			func(seq int) int { return m.number<<seqBits | seq&(1<<seqBits-1) })
	}
	return t
}

// Span returns how much of the window has passed so far, for the process observed longest.
func (s *Several) Span() (span time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		span = max(span, m.feed.Span())
	}
	return span
}

// ShowIdle includes idle waits and threads in later tables, or omits them.
func (s *Several) ShowIdle(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = on
	for _, m := range s.members {
		m.feed.ShowIdle(on)
	}
}

// Stack returns the stack of the thread with this Row.Seq; ok is false if the thread is gone.
func (s *Several) Stack(seq int) (st top.Stack, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.number == seq>>seqBits {
			return m.feed.Stack(seq & (1<<seqBits - 1))
		}
	}
	return st, false
}

// Ended returns when the last process ended; the zero time while one runs.
func (s *Several) Ended() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.feed.Ended().IsZero() {
			return time.Time{}
		}
	}
	return s.ended
}

// Stats returns the statistics of all threads so far.
func (s *Several) Stats() stack.ThreadStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.stats
	for _, m := range s.members {
		st := m.feed.Stats()
		sum.Add(&st)
	}
	return sum
}

// Unrecorded returns the threads that are not sampled, by reason.
func (s *Several) Unrecorded() (out []trace.Unrecorded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		out = append(out, m.feed.Unrecorded()...)
	}
	return out
}

// Settle waits until the names requested so far are resolved, or ctx ends.
func (s *Several) Settle(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		m.feed.Settle(ctx)
	}
}

// Close releases all resources. The contexts of Add have ended.
func (s *Several) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.runs.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		m.close()
	}
	s.members = nil
	s.o.Shared.Close()
}

package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/trace"
)

// tasks records all tasks of the target's runtime: when sampling begins, when it ends,
// from time to time in between, and on request. A program without tasks costs almost nothing.
type tasks struct {
	t    *live.Target
	note func(*trace.Tasks)
	mu   sync.Mutex // one look at a time
	over bool       // the recorder takes no more
	lost trace.LostTasks
	last *trace.Tasks // what the last look took
}

// ErrNoTasks reports that the program has no runtime with readable tasks.
var ErrNoTasks = errors.New("the program has no goroutines, and ran no task of asyncio and no virtual thread of Java")

// look records the current state of all tasks. It stops no thread.
func (x *tasks) look() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return nil
	}
	r := x.t.Routines()
	if r == nil {
		if all := x.t.MetTasks(); all != nil {
			x.take(all)
			return nil
		}
		return ErrNoTasks
	}
	all, err := r.Tasks()
	if err != nil {
		return err
	}
	x.take(all)
	return nil
}

// met records the tasks that walks found in a program that has ended: tasks of asyncio
// and virtual threads are then known with their names.
func (x *tasks) met() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if all := x.t.MetTasks(); all != nil {
		x.take(all)
	}
}

// end makes all later looks do nothing.
func (x *tasks) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
}

func (x *tasks) take(all *trace.Tasks) {
	x.lost.Add(all)
	x.last = all
	x.note(all)
}

// left returns what the looks omitted so far.
func (x *tasks) left() trace.LostTasks {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost
}

// A program that has just started has no goroutines yet: it is read again after
// taskWait, then after twice the time up to taskMost.
const (
	taskWait = 10 * time.Millisecond
	taskMost = time.Second
)

// Looks at goroutines during a recording. One that waits for a short time, such as for a mutex, is seen where it waits only
// then. They are as far apart as 1/taskShare of the time so far and as looks cost in 1/taskCost of the time, at least lookEach,
// and there are none of more than mostLooked goroutines.
const (
	lookEach   = 500 * time.Millisecond
	taskShare  = 8
	taskCost   = 500
	mostLooked = 1000
)

// follow looks at goroutines until ctx ends.
func (x *tasks) follow(ctx context.Context) {
	for begin := time.Now(); ; {
		x.mu.Lock()
		last := x.last
		x.mu.Unlock()
		if last == nil || len(last.List) > mostLooked || last.What != "goroutine" {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(lookEach, time.Since(begin)/taskShare, taskCost*time.Duration(last.Took))):
		}
		if err := x.look(); err != nil {
			return
		}
	}
}

// begin records the tasks that exist at the beginning, and follows them. It gives up when ctx ends.
func (x *tasks) begin(ctx context.Context) {
	for wait := taskWait; wait <= taskMost; wait *= 2 {
		if err := x.look(); err == nil || errors.Is(err, ErrNoTasks) && wait > taskWait {
			x.follow(ctx)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// LookAtTasks records what all goroutines do now, including those that no thread runs, of each process of the recording.
// It stops no thread, and fails with ErrNoTasks if there are none. It may be called
// from any goroutine during Run.
func (s *Session) LookAtTasks() error {
	err := s.tasks.look()
	if s.family == nil {
		return err
	}
	for _, one := range s.family.running() {
		if other := one.tasks.look(); other == nil && errors.Is(err, ErrNoTasks) {
			err = other
		}
	}
	return err
}

package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sliverprof/sliver/live"
	"github.com/sliverprof/sliver/trace"
)

// tasks has all tasks of the target's runtime looked at: when sampling begins, when
// it ends, and when somebody asks. A program without any costs next to nothing.
type tasks struct {
	t    *live.Target
	note func(*trace.Tasks)
	mu   sync.Mutex // one look at a time
	lost trace.LostTasks
}

// ErrNoTasks says that the program has no runtime whose tasks can be looked at.
var ErrNoTasks = errors.New("the program has no goroutines, and ran no task of asyncio and no virtual thread of Java")

// look takes in all tasks as they are now. It stops nobody.
func (x *tasks) look() error {
	x.mu.Lock()
	defer x.mu.Unlock()
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

// met takes in what walks met of a program that has ended: tasks of asyncio and virtual
// threads are known by then, with their names.
func (x *tasks) met() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if all := x.t.MetTasks(); all != nil {
		x.take(all)
	}
}

func (x *tasks) take(all *trace.Tasks) {
	x.lost.Add(all)
	x.note(all)
}

// left is what the looks left out so far.
func (x *tasks) left() trace.LostTasks {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost
}

// A program that has just begun has no goroutines yet: it is looked at again after
// taskWait, twice as long each time up to taskMost.
const (
	taskWait = 10 * time.Millisecond
	taskMost = time.Second
)

// begin looks at the tasks that there are at the beginning, until ctx ends.
func (x *tasks) begin(ctx context.Context) {
	for wait := taskWait; wait <= taskMost; wait *= 2 {
		if err := x.look(); err == nil || errors.Is(err, ErrNoTasks) && wait > taskWait {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// LookAtTasks notes in the recording what all goroutines do now, also those that
// no thread runs. It stops nobody, and fails with ErrNoTasks where there are none. It
// may be called from any goroutine while Run is at work.
func (s *Session) LookAtTasks() error { return s.tasks.look() }

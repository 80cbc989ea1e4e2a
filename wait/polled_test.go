package wait_test

import (
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
)

// countDir counts reads of a directory.
type countDir struct {
	files.Dir
	reads int
}

func (d *countDir) ReadFile(name string, limit int) ([]byte, error) {
	d.reads++
	return d.Dir.ReadFile(name, limit)
}

func (d *countDir) ReadLink(name string) (string, error) {
	d.reads++
	return d.Dir.ReadLink(name)
}

// A thread that goes back to epoll_wait is resolved without a read, for a while: no other descriptor can be waited in
// so. Another call on the same descriptor number, and any other call, is read each time.
func TestEpollNeedsNoRead(t *testing.T) {
	p := testprog.Start(t, build(t, "gcc", "fds.c"), t.TempDir())
	var s struct {
		Threads []struct {
			Name string
			TID  stack.TID
		}
	}
	say(t, p, &s)
	now := int64(1)
	var dir countDir
	v := lookAs(t, p.PID, func(c *wait.Config) {
		dir.Dir = c.Proc
		c.Proc = &dir
		c.Monotonic = func() int64 { return now }
	})
	for _, th := range s.Threads {
		if th.Name != "epoll_wait" && th.Name != "pipe-read" {
			continue
		}
		l := v.blocked(th.TID, "epoll_wait", "epoll_pwait", "read")
		proofs := 0
		l.Still = func() bool { proofs++; return true }
		var state wait.Thread
		first, _ := v.r.Resolve(&state, &l)
		want := *first
		for i := range 3 {
			dir.reads, proofs = 0, 0
			l.Switches++
			info, res := v.r.Resolve(&state, &l)
			if res != wait.Changed || *info != want || info.Call == "" {
				t.Fatalf("%s: %v %+v, was %+v", th.Name, res, info, want)
			}
			if none := dir.reads == 0 && proofs == 0; none != (info.Kind == kind.WaitPoll && i < 2) {
				t.Errorf("%s, look %d: %d reads, %d proofs that the thread has not run", th.Name, i, dir.reads, proofs)
			}
			if i == 1 {
				now += 1e9
			}
		}
		dir.reads = 0
		l.Call.Nr = number(t, "close")
		if info, _ := v.r.Resolve(&state, &l); dir.reads == 0 || info.File == "" {
			t.Errorf("%s: close: %d reads, %+v", th.Name, dir.reads, info)
		}
	}
}

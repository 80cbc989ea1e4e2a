package watch

import (
	"context"
	"runtime"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/session/canary"
	"github.com/sliverprof/sliver/session/oneshot"
	"github.com/sliverprof/sliver/watch/trigger"
)

// inputs watches the I/O of a process for rules of kind io. Without such a rule it does nothing. It
// belongs to the watching goroutine, except found.
type inputs struct {
	t    *watched
	stop context.CancelFunc // nil: it is not watched
	done chan struct{}

	found inbox[trigger.IOFinding]
}

// begin ends watching, and starts it again with the thresholds of these rules.
func (x *inputs) begin(rules []*trigger.Rule) {
	x.end()
	c, ok := trigger.WatchIO(rules)
	if !ok {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	x.stop, x.done = stop, make(chan struct{})
	so := &x.t.w.o.Session
	names := oneshot.Options{DebugDirs: so.DebugDirs, FullNames: so.FullNames, Finder: so.Finder, Cache: so.Cache}
	opened := make(chan struct{})
	x.t.w.governor.began() // loading the programs costs as much as many samples, which no interval changes
	go func() {
		defer close(x.done)
		runtime.LockOSThread() // the canary belongs to this thread, which ends here
		cn, err := canary.Open(x.t.proc, canary.Options{Rules: c, Names: names})
		close(opened)
		if err != nil {
			x.t.w.log.Warn("I/O triggers are off", "pid", x.t.pid, "why", err)
			return
		}
		defer cn.Close()
		cn.Engine.Slow, cn.Engine.Found = x.take, func(f *iowatch.Finding) {
			// Slow has single operations, at once and each time.
			if (f.Rule != iowatch.MainIO && f.Rule != iowatch.LoopIO) || f.Count&1 == 0 {
				x.take(f)
			}
		}
		x.t.w.log.Info("watches I/O", "pid", x.t.pid, "rules", c.Enabled())
		err = cn.Run(ctx, nil)
		for _, l := range cn.Losses() {
			x.t.w.log.Warn("I/O triggers", "pid", x.t.pid, "lost", l)
		}
		if err != nil {
			x.t.w.log.Warn("I/O triggers", "pid", x.t.pid, "error", err)
		}
	}()
	<-opened
	x.t.w.governor.began()
}

func (x *inputs) take(f *iowatch.Finding) {
	x.found.put(trigger.IOFinding{Rule: f.Rule, At: f.At, TID: f.TID, Path: f.Path, Longest: f.Longer, Text: f.Advice()})
}

// look returns the findings since the last look.
func (x *inputs) look() []trigger.IOFinding {
	if x.stop == nil {
		return nil
	}
	out, lost := x.found.take()
	if lost > 0 {
		x.t.w.log.Warn("I/O triggers", "pid", x.t.pid, "lost_findings", lost)
	}
	return out
}

// end stops watching.
func (x *inputs) end() {
	if x.stop != nil {
		x.stop()
		<-x.done
		x.stop = nil
	}
}

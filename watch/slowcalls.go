package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	exactcalls "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/watch/trigger"
)

// slowCalls traces the functions of rules about slow calls, and keeps these calls for dumps. Without such
// a rule it does nothing. It belongs to the watching goroutine, except take and dumped.
type slowCalls struct {
	t       *watched
	stop    context.CancelFunc // nil: no rule needs it
	done    chan struct{}
	changed chan struct{} // the address space has changed
	found   inbox[trigger.SlowCall]

	mu    sync.Mutex // guards the fields below
	tr    *exact.Tracer
	of    [][]*trigger.Rule // the rules of each function of tr
	on    map[*trigger.Rule]int
	hot   int // functions of tr that were detached
	least time.Duration
	kept  []exactcalls.Call // by end
	since stack.Time        // the calls in kept are complete after this time
}

const (
	// maxHits is how many entries and exits of traced functions a second are allowed. At 10 µs each, as
	// in virtual machines, they take 3 % of a CPU.
	maxHits = 3000
	// maxSlow is how many calls are kept for a dump.
	maxSlow = 1 << 14
	// findFirst is how long after a search for functions their names are searched for again, if the
	// address space has changed. That time doubles with each search.
	findFirst = 5 * time.Second
)

// begin ends tracing, and starts it for these rules.
func (x *slowCalls) begin(rules []*trigger.Rule) {
	x.end()
	mine, least := trigger.Slower(rules)
	if len(mine) == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	x.stop, x.done, x.changed, x.least = stop, make(chan struct{}), make(chan struct{}, 1), least
	go func() {
		defer close(x.done)
		if fell := background.Contain(func() { x.run(ctx, mine) }); fell != nil {
			x.t.w.log.Error("slow calls are no longer traced", "pid", x.t.pid, "error", fell)
		}
		x.untraced()
	}()
}

// untraced leaves all rules to samples.
func (x *slowCalls) untraced() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.on = nil
}

// run traces until ctx or the process ends. Functions that are not there yet may come with a library.
func (x *slowCalls) run(ctx context.Context, rules []*trigger.Rule) {
	traced, wait := -1, findFirst
	end := func() {}
	defer func() { end() }()
	for {
		fns, of, lacking, err := x.find(rules)
		switch {
		case err != nil:
			x.t.w.log.Warn("cannot find functions to trace", "pid", x.t.pid, "error", err)
			lacking = rules
		case len(fns) != traced:
			end()
			traced, end = len(fns), x.start(ctx, fns, of, lacking)
		}
		again := x.changed
		if len(lacking) == 0 {
			again = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait *= 2
	}
}

// find returns the functions of rules with the rules of each, and the rules without a function that can be
// traced.
func (x *slowCalls) find(rules []*trigger.Rule) (fns []exact.Function, of [][]*trigger.Rule, lacking []*trigger.Rule, err error) {
	patterns := make([]exactcalls.Pattern, len(rules))
	for i, r := range rules {
		if patterns[i], err = exactcalls.ParsePattern(r.Function); err != nil {
			return nil, nil, nil, err
		}
	}
	names, err := exact.Find(x.t.proc, patterns, exact.FindOptions{Debug: x.t.w.o.Session.DebugDirs})
	if err != nil {
		return nil, nil, nil, err
	}
	has := map[*trigger.Rule]bool{}
	for i := range names.Functions {
		f := &names.Functions[i]
		if f.Why != "" {
			x.t.w.log.Info("not traced", "pid", x.t.pid, "function", f.Name, "why", f.Why)
			continue
		}
		var mine []*trigger.Rule
		for k, r := range rules {
			if p := &patterns[k]; (p.Match(f.Name) || p.Match(f.Linkage)) && p.MatchFile(f.File) {
				mine, has[r] = append(mine, r), true
			}
		}
		fns, of = append(fns, *f), append(of, mine)
	}
	for _, r := range rules {
		if !has[r] {
			lacking = append(lacking, r)
		}
	}
	return fns, of, lacking, nil
}

// start traces functions in the background until ctx ends, or the function that it returns is called.
func (x *slowCalls) start(ctx context.Context, fns []exact.Function, of [][]*trigger.Rule, lacking []*trigger.Rule) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if fell := background.Contain(func() { x.trace(ctx, fns, of, lacking) }); fell != nil {
			x.t.w.log.Error("slow calls are no longer traced", "pid", x.t.pid, "error", fell)
			x.untraced()
		}
	}()
	return func() { stop(); <-ended }
}

// trace traces functions until ctx or the process ends.
func (x *slowCalls) trace(ctx context.Context, fns []exact.Function, of [][]*trigger.Rule, lacking []*trigger.Rule) {
	log := x.t.w.log
	for _, r := range lacking {
		log.Warn("slow calls are met by samples alone", "pid", x.t.pid, "function", r.Function, "why", "no function of this name can be traced")
	}
	if len(fns) == 0 {
		return
	}
	tr, err := exact.Start(x.t.proc, fns, exact.Options{Engine: exact.Auto, Limit: maxHits})
	if err != nil {
		log.Warn("slow calls are met by samples alone", "pid", x.t.pid, "why", err)
		return
	}
	defer tr.Close()
	x.mu.Lock()
	x.tr, x.of, x.hot, x.on, x.kept, x.since = tr, of, 0, map[*trigger.Rule]int{}, nil, tr.Began
	for _, rules := range of {
		for _, r := range rules {
			x.on[r]++
		}
	}
	x.mu.Unlock()
	log.Info("traces calls", "pid", x.t.pid, "functions", len(fns), "engine", tr.Engine, "slower", x.least)
	if err := tr.Run(ctx, x.take); err != nil {
		log.Warn("traced calls", "pid", x.t.pid, "error", err)
	}
	if lost := tr.Stats().Lost; lost > 0 {
		log.Warn("traced calls", "pid", x.t.pid, "lost_hits", lost)
	}
	x.untraced()
}

// take keeps slow calls.
func (x *slowCalls) take(cs []exactcalls.Call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range cs {
		c := &cs[i]
		if c.Duration() < int64(x.least) {
			continue
		}
		x.kept = append(x.kept, *c)
		if c.How == exactcalls.Left {
			continue // it was over earlier
		}
		how := ""
		if c.How != exactcalls.Returned {
			how = c.How.String()
		}
		for _, r := range x.of[c.Fn] {
			if c.Duration() < int64(r.Slower) {
				continue
			}
			x.found.put(trigger.SlowCall{Rule: r, Function: x.tr.Functions[c.Fn].Name, TID: c.TID, Enter: c.Enter, Took: c.Duration(), How: how})
		}
	}
	x.forget(target.Now())
}

// forget drops calls that are too old or too many; mu is held.
func (x *slowCalls) forget(now stack.Time) {
	n := max(len(x.kept)-maxSlow, 0)
	if keep := x.t.w.o.Keep; keep > 0 {
		for n < len(x.kept) && x.kept[n].Exit < now-stack.Time(keep) {
			n++
		}
	}
	if n > 0 {
		x.since = max(x.since, x.kept[n-1].Exit)
		x.kept = slices.Delete(x.kept, 0, n)
	}
}

// look returns the slow calls that ended since the last look.
func (x *slowCalls) look() []trigger.SlowCall {
	if x.stop == nil {
		return nil
	}
	out, lost := x.found.take()
	if lost > 0 {
		x.t.w.log.Warn("slow calls", "pid", x.t.pid, "lost", lost)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.on == nil {
		return out
	}
	hot := x.tr.Hot()
	for _, h := range hot[x.hot:] {
		x.t.w.log.Warn("called too often to be traced, left to samples", "pid", x.t.pid, "function", x.tr.Functions[h.Fn].Name, "hits_per_second", int(h.Rate), "limit", maxHits)
		for _, r := range x.of[h.Fn] {
			x.on[r] = 0
		}
	}
	x.hot = len(hot)
	return out
}

// traced reports whether all functions of a rule are traced.
func (x *slowCalls) traced(r *trigger.Rule) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.on[r] > 0
}

// dumped returns what a dump has of the traced calls; nil: nothing was traced.
func (x *slowCalls) dumped() (*trace.Traced, []exactcalls.Call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.tr == nil {
		return nil, nil
	}
	tr := session.TracedOf(x.tr, x.least)
	tr.Began = max(tr.Began, x.since)
	return tr, slices.Clone(x.kept)
}

// end stops tracing.
func (x *slowCalls) end() {
	if x.stop == nil {
		return
	}
	x.stop()
	<-x.done
	x.stop = nil
	x.mu.Lock()
	defer x.mu.Unlock()
	x.found.take()
	x.tr, x.of, x.kept = nil, nil, nil
}

// remapped reports that the address space has changed.
func (x *slowCalls) remapped() {
	if x.stop == nil {
		return
	}
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

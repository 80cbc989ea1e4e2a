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
	t     *watched
	stop  context.CancelFunc // nil: no rule needs it
	done  chan struct{}
	found inbox[trigger.SlowCall]

	rules    []*trigger.Rule
	patterns []exactcalls.Pattern // of the rules

	mu    sync.Mutex // guards the fields below
	tr    *exact.Tracer
	of    [][]*trigger.Rule // the rules of each function of tr
	on    map[*trigger.Rule]int
	hot   int // functions of tr that were detached
	why   int // reasons of Stats.Untraced that were logged
	least time.Duration
	kept  []exactcalls.Call // by end
	since stack.Time        // the calls in kept are complete after this time
}

const (
	// maxCost is the share of a CPU that entries and exits of traced functions may take.
	maxCost = .03
	// maxSlow is how many calls are kept for a dump.
	maxSlow = 1 << 14
	// librariesEvery is how often functions are looked for in files that were mapped since.
	librariesEvery = time.Second
)

// begin ends tracing, and starts it for these rules.
func (x *slowCalls) begin(rules []*trigger.Rule) {
	x.end()
	mine, least := trigger.Slower(rules)
	if len(mine) == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	x.stop, x.done, x.rules, x.least = stop, make(chan struct{}), mine, least
	go func() {
		defer close(x.done)
		if fell := background.Contain(func() { x.run(ctx) }); fell != nil {
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
func (x *slowCalls) run(ctx context.Context) {
	log := x.t.w.log
	x.patterns = make([]exactcalls.Pattern, len(x.rules))
	var err error
	for i, r := range x.rules {
		if x.patterns[i], err = exactcalls.ParsePattern(r.Function); err != nil {
			log.Warn("cannot find functions to trace", "pid", x.t.pid, "error", err)
			return
		}
	}
	names, err := exact.Find(x.t.proc, x.patterns, exact.FindOptions{Debug: x.t.w.o.Session.DebugDirs})
	if err != nil {
		log.Warn("cannot find functions to trace", "pid", x.t.pid, "error", err)
		return
	}
	var fns []exact.Function
	for _, f := range names.Functions {
		if f.Why != "" {
			log.Info("not traced", "pid", x.t.pid, "function", f.Name, "why", f.Why)
			continue
		}
		fns = append(fns, f)
	}
	tr, err := exact.Start(x.t.proc, fns, exact.Options{Engine: exact.Auto, Limit: exact.Limit{Share: maxCost}, Later: names, Added: x.added, Every: librariesEvery})
	if err != nil {
		log.Warn("slow calls are met by samples alone", "pid", x.t.pid, "why", err)
		return
	}
	defer tr.Close()
	x.mu.Lock()
	x.tr, x.of, x.hot, x.why, x.on, x.kept, x.since = tr, nil, 0, 0, map[*trigger.Rule]int{}, nil, tr.Began
	x.known()
	for _, r := range x.rules {
		if x.on[r] == 0 {
			log.Warn("slow calls are met by samples alone", "pid", x.t.pid, "function", r.Function, "why", "no function of this name can be traced so far")
		}
	}
	x.mu.Unlock()
	if len(fns) > 0 {
		log.Info("traces calls", "pid", x.t.pid, "functions", len(fns), "engine", tr.Engine, "slower", x.least)
	}
	if err := tr.Run(ctx, x.take); err != nil {
		log.Warn("traced calls", "pid", x.t.pid, "error", err)
	}
	if lost := tr.Stats().Lost; lost > 0 {
		log.Warn("traced calls", "pid", x.t.pid, "lost_hits", lost)
	}
}

// added notes functions of files that were mapped since. It is called by the goroutine of run.
func (x *slowCalls) added(fns []exact.Function) {
	x.mu.Lock()
	x.known()
	x.mu.Unlock()
	x.t.w.log.Info("traces calls", "pid", x.t.pid, "functions", len(fns), "engine", x.tr.Engine, "of", fns[0].Module, "slower", x.least)
}

// known finds the rules of functions that are new; mu is held.
func (x *slowCalls) known() {
	all := x.tr.Known()
	for i := len(x.of); i < len(all); i++ {
		f := &all[i]
		var mine []*trigger.Rule
		for k, r := range x.rules {
			if p := &x.patterns[k]; (p.Match(f.Name) || p.Match(f.Linkage)) && p.MatchFile(f.File) {
				mine = append(mine, r)
				x.on[r]++
			}
		}
		x.of = append(x.of, mine)
	}
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
	whys := x.tr.Untraced()
	for _, why := range whys[x.why:] {
		x.t.w.log.Warn("not traced", "pid", x.t.pid, "why", why)
	}
	x.why = len(whys)
	hot := x.tr.Hot()
	for _, h := range hot[x.hot:] {
		all := x.tr.Known()
		x.t.w.log.Warn("called too often to be traced, left to samples", "pid", x.t.pid, "function", all[h.Fn].Name, "calls_per_second", int(h.Calls), "cpu_share", h.Share, "limit", maxCost)
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

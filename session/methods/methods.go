// Package methods traces all calls of chosen Java methods of a live process, by JFR's method tracing (JEP 520, Java 25).
// It asks the virtual machine for recordings over the attach protocol, reads their files with package jfr, and delivers
// the calls as package session/exact does those of native functions. What JFR's file format is, package jfr knows;
// who prints is not its business.
//
// A recording lasts a few seconds. The next one begins before one ends, so that no call is missed, and each has a
// lifetime of its own: after a kill -9 of this program tracing ends by itself. Recordings of other users of JFR go on;
// JFR writes all events to all recordings, so they contain these calls, too.
//
// A Tracer is for one goroutine; Stats, Known, Silent and Abandon may be called from others.
package methods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// Engine is the name of this way to trace.
const Engine = "jfr"

// CallCost is what a call is assumed to cost its thread: both events of JEP 520's method tracing in one (docs/performance.md).
const CallCost = 600 * time.Nanosecond

// DefaultLimit is 200,000 calls a second.
var DefaultLimit = exact.Limit{Share: .12}

// Options of a Tracer.
type Options struct {
	Limit exact.Limit // above which tracing of the busiest method's filter stops; a call is two hits
}

// Times of Run.
const (
	firstPart = time.Second // of the first recording, so that a method that is called too often is found soon
	part      = 5 * time.Second
	lookEvery = 100 * time.Millisecond // whether the process is alive

	// closeLimit is how long a virtual machine may take for a command after an error.
	closeLimit = 5 * time.Second
	// exitLimit is how long a virtual machine that ends may take for that after it has ended JFR.
	exitLimit = 5 * time.Second
	// chunkSlack is the time within which chunks follow each other.
	chunkSlack = 100 * time.Millisecond
)

// Stats are the accounts of a Tracer.
type Stats struct {
	exact.Stats
	LostBytes uint64        // that JFR dropped because its buffers were full
	Missing   time.Duration // time whose calls are not known
	// ClockError is how far, as far as JFR's readings of its clock show it, the times of calls are off. Durations are
	// not: a clock that is off is so by the same for both ends.
	ClockError time.Duration
}

// Tracer traces methods of one process.
type Tracer struct {
	Functions []exact.Function // methods by number: those that were called, and those that were asked for by their whole name
	Began     stack.Time
	Notes     []string // what else a user should know

	o        Options
	proc     *target.Process
	f        *flight   // nil: not yet, or not any more
	now      recording // the one that runs
	patterns []pattern
	filters  []filter       // that are traced
	asked    []filter       // all, also those that are not traced any more
	numbers  map[string]int // of Functions, by name
	of       []filter       // by function: the filter that chose it
	calls    reader
	covered  int64 // ns since 1970 up to which calls are known
	part     span
	wrote    bool // the virtual machine wrote the last file by itself: it was ending

	mu    sync.Mutex // guards f, stats and what begun says, and Functions while they are added to
	stats Stats
	begun begun
}

// begun lists what ends with tracing. Tracer.mu guards all but starting.
type begun struct {
	starting  sync.Mutex // held while a recording, or the folder for it, is begun
	live      []recording
	halt      context.CancelFunc // ends the wait of the last start; nil: there was none
	abandoned bool
}

// span are the calls since the rate was last looked at.
type span struct {
	since stack.Time
	calls []uint64 // by function
}

// New returns a Tracer of the methods that the patterns choose. Nothing is asked of the process yet.
func New(p *target.Process, patterns []calls.Pattern, o Options) (*Tracer, error) {
	t := &Tracer{o: o, proc: p, numbers: map[string]int{}}
	for i := range patterns {
		x, err := parse(&patterns[i])
		if err != nil {
			return nil, err
		}
		t.patterns = append(t.patterns, x)
	}
	return t, nil
}

// Start begins to trace. The virtual machine answers within seconds. ctx ends the wait for it. After an error nothing
// is left in the process.
func (t *Tracer) Start(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := t.start(limited); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("the virtual machine of process %d does not answer within %v", t.proc.PID(), startLimit)
		}
		return joined(err, t.Close())
	}
	return nil
}

// start begins the first recording.
func (t *Tracer) start(ctx context.Context) error {
	err := Check(ctx, t.proc)
	if err == nil {
		err = t.choose(ctx, t.patterns)
	}
	if err == nil {
		err = t.open()
	}
	if err != nil {
		return err
	}
	if t.f.others(ctx) {
		t.Notes = append(t.Notes, "another JFR recording of the process is running; it will contain the traced calls, too")
	}
	t.Began = target.Now()
	if t.now, err = t.begin(ctx); err != nil {
		return err
	}
	t.covered = time.Now().UnixNano()
	t.part.since = target.Now()
	t.calls = reader{proc: t.proc, last: -1, methods: map[methodKey]int{}}
	t.calls.clock.look()
	return nil
}

// choose sets the filters.
func (t *Tracer) choose(ctx context.Context, patterns []pattern) error {
	answer := ""
	var err error
	if slices.ContainsFunc(patterns, func(p pattern) bool { return p.lookup() }) { // it takes a safepoint
		if answer, err = t.proc.JavaCommand(ctx, "VM.classes"); err != nil {
			return fmt.Errorf("list classes: %w", err)
		}
	}
	var missing []string
	if t.asked, missing, err = filters(patterns, classes(answer)); err != nil {
		return err
	}
	t.filters = slices.Clone(t.asked)
	for _, m := range missing {
		t.Notes = append(t.Notes, fmt.Sprintf("no class of %s is loaded so far; one that is loaded later is found by its whole name only", m))
	}
	for _, x := range t.filters {
		if x.class != "" && x.method != "" {
			t.number(x, x.class, x.method)
		}
	}
	return nil
}

// number returns the number of a method; -1: there are too many.
func (t *Tracer) number(of filter, class, method string) int {
	name := class + "." + method
	if i, ok := t.numbers[name]; ok {
		return i
	}
	if len(t.Functions) == exact.MaxFunctions {
		return -1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Functions = append(t.Functions, exact.Function{Name: name})
	t.stats.Funcs = append(t.stats.Funcs, exact.FuncStats{})
	t.of = append(t.of, of)
	t.part.calls = append(t.part.calls, 0)
	i := len(t.of) - 1
	t.numbers[name] = i
	return i
}

// Run delivers calls, a few seconds after they ended, until ctx or the process ends, or until no method is left to
// trace. deliver's argument is valid until it returns.
func (t *Tracer) Run(ctx context.Context, deliver func([]calls.Call)) error {
	for wait := firstPart; ; wait = part {
		alive := t.sleep(ctx, wait)
		if !alive || ctx.Err() != nil {
			return t.end(alive, deliver)
		}
		before := t.now
		if err := t.renew(); err != nil {
			if !t.proc.Alive() {
				return t.end(false, deliver)
			}
			return joined(err, t.end(true, deliver))
		}
		if err := t.finish(before, deliver); err != nil {
			return joined(err, t.end(t.proc.Alive(), deliver))
		}
		if t.cool(); len(t.filters) == 0 {
			return t.end(true, deliver)
		}
	}
}

// sleep waits, and reports whether the process is alive.
func (t *Tracer) sleep(ctx context.Context, d time.Duration) bool {
	end := time.NewTimer(d)
	defer end.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return t.proc.Alive()
		case <-end.C:
			return t.proc.Alive()
		case <-look.C:
			if !t.proc.Alive() {
				return false
			}
		}
	}
}

// renew begins the next recording.
func (t *Tracer) renew() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	next, err := t.begin(ctx)
	if err == nil {
		t.now = next
	}
	return err
}

// finish stops a recording and delivers its calls.
func (t *Tracer) finish(r recording, deliver func([]calls.Call)) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	stopped := t.f.stop(ctx, r)
	if stopped == nil {
		t.ended(r)
	} else if errors.Is(stopped, context.DeadlineExceeded) {
		return fmt.Errorf("the virtual machine of process %d does not answer within %v; its recording ends by itself", t.proc.PID(), answerLimit)
	}
	for end := time.Now().Add(exitLimit); stopped != nil && t.proc.Alive() && time.Now().Before(end); {
		time.Sleep(lookEvery) // it ends, and writes the file before
	}
	// A recording whose lifetime was over wrote its file then.
	err := t.take(r, deliver)
	t.wrote = err == nil && stopped != nil
	if err != nil && stopped != nil {
		return fmt.Errorf("end JFR's recording: %w", stopped)
	}
	return err
}

// end delivers the last calls and removes all files.
func (t *Tracer) end(alive bool, deliver func([]calls.Call)) error {
	var err error
	if before := t.now; alive && len(t.calls.clock.pairs) < leastPairs && t.renew() == nil { // which reads the clock
		err = t.finish(before, deliver)
	}
	if alive {
		err = joined(err, t.finish(t.now, deliver))
	} else {
		err = t.take(t.now, deliver)
	}
	if !t.proc.Alive() {
		slack := exitLimit
		if err != nil && !t.wrote { // killed, it wrote nothing
			slack = chunkSlack
		}
		t.gap(time.Now().UnixNano(), slack)
		err = nil
	}
	return joined(err, t.Close())
}

// gap accounts for time without known calls up to a moment.
func (t *Tracer) gap(until int64, slack time.Duration) {
	if d := time.Duration(until - t.covered); d > slack {
		t.mu.Lock()
		t.stats.Missing += d
		t.mu.Unlock()
	}
	t.covered = max(t.covered, until)
}

// joined is errors.Join in one line.
func joined(a, b error) error {
	if a != nil && b != nil {
		return fmt.Errorf("%w; %w", a, b)
	}
	return cmp.Or(a, b)
}

// above reports whether that many calls a second are more than the limit allows.
func (o *Options) above(calls float64) bool {
	l := o.Limit
	return l.Hits > 0 && 2*calls > l.Hits || l.Share > 0 && calls*CallCost.Seconds() > l.Share
}

// cool ends the tracing of the busiest method if calls are more than the limit allows.
func (t *Tracer) cool() {
	now := target.Now()
	var sum uint64
	most := -1
	for i, n := range t.part.calls {
		if sum += n; n > 0 && (most < 0 || n > t.part.calls[most]) {
			most = i
		}
	}
	seconds := max(float64(now-t.part.since)/1e9, 1e-9)
	all, busiest := float64(sum)/seconds, 0.0
	if most >= 0 {
		busiest = float64(t.part.calls[most]) / seconds
	}
	t.part.since = now
	clear(t.part.calls)
	if most < 0 || !t.o.above(all) {
		return
	}
	of := t.of[most]
	t.filters = slices.DeleteFunc(t.filters, func(f filter) bool { return f == of })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Hot = append(t.stats.Hot, exact.Hot{Fn: most, At: now, Rate: 2 * busiest, Calls: busiest, Share: busiest * CallCost.Seconds()})
	if of.class == "" || of.method == "" {
		t.stats.Untraced = append(t.stats.Untraced, fmt.Sprintf("since then, all methods of %s", strings.TrimPrefix(of.String(), "::")))
	}
}

// Stats are the accounts so far.
func (t *Tracer) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Funcs = slices.Clone(s.Funcs)
	for i := range s.Funcs {
		f := &s.Funcs[i]
		f.Times = f.Times.Clone()
		f.Hits, f.Cost = 2*f.Calls, time.Duration(f.Calls)*CallCost
		s.Cost += f.Cost
	}
	s.Hit = exact.Cost{Enter: CallCost / 2, Exit: CallCost / 2, Assumed: true}
	if t.Began > 0 {
		s.Traced = time.Duration(target.Now() - t.Began)
	}
	s.Hot, s.Untraced = slices.Clone(s.Hot), slices.Clone(s.Untraced)
	return s
}

// Known returns the methods by number, as Functions has them. It may be called from any goroutine.
func (t *Tracer) Known() []exact.Function {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.Functions)
}

// Silent returns the names of methods and classes that were asked for, and of which no call was seen.
func (t *Tracer) Silent() (out []string) {
	called := map[filter]bool{}
	t.mu.Lock()
	for i, f := range t.of {
		called[f] = called[f] || t.stats.Funcs[i].Calls > 0
	}
	t.mu.Unlock()
	for _, f := range t.asked {
		if !called[f] {
			out = append(out, strings.TrimPrefix(f.String(), "::"))
		}
	}
	return out
}

// AbandonLimit bounds how long Abandon waits.
const AbandonLimit = 2 * time.Second

// Abandon stops JFR's recordings without their calls, and removes all files, at any moment from New on: for an exit
// that does not wait. Tracing must not go on. It returns a note for the user if the virtual machine does not answer; the
// commands are sent then, too.
func (t *Tracer) Abandon() string {
	t.mu.Lock()
	t.begun.abandoned = true
	if t.begun.halt != nil {
		t.begun.halt() // a start is sent before the stop, or not at all
	}
	t.mu.Unlock()
	t.begun.starting.Lock()
	defer t.begun.starting.Unlock()
	t.mu.Lock()
	f, live := t.f, slices.Clone(t.begun.live)
	t.mu.Unlock()
	if f == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), AbandonLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, r := range live {
		all.Go(func() { _ = f.drop(ctx, r) })
	}
	_ = f.close() // before the answers, which may come too late
	if all.Wait(); ctx.Err() != nil {
		return fmt.Sprintf("the virtual machine does not answer; JFR's recording ends by itself within %v", lifetime)
	}
	return ""
}

// Close ends tracing: recordings that an error left are stopped. It may be called again.
func (t *Tracer) Close() error {
	t.mu.Lock()
	f, live := t.f, slices.Clone(t.begun.live)
	t.mu.Unlock()
	if f == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	for _, r := range live {
		if t.proc.Alive() {
			_ = f.drop(ctx, r)
		}
	}
	err := f.close()
	t.mu.Lock()
	t.f, t.begun.live = nil, nil // not before: Abandon has to find them
	t.mu.Unlock()
	return err
}

// errAbandoned ends a start after Abandon.
var errAbandoned = errors.New("tracing was abandoned")

// open makes the folder for JFR's files.
func (t *Tracer) open() error {
	t.begun.starting.Lock()
	defer t.begun.starting.Unlock()
	t.mu.Lock()
	abandoned := t.begun.abandoned
	t.mu.Unlock()
	if abandoned {
		return errAbandoned
	}
	f, err := openFlight(t.proc)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.f = f
	t.mu.Unlock()
	return nil
}

// begin starts a recording, which is live until ended.
func (t *Tracer) begin(ctx context.Context) (recording, error) {
	t.begun.starting.Lock()
	defer t.begun.starting.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	if t.begun.abandoned {
		t.mu.Unlock()
		return recording{}, errAbandoned
	}
	r := t.f.next()
	t.begun.live = append(t.begun.live, r) // an answer that does not come does not say that it has not begun
	t.begun.halt = cancel
	t.mu.Unlock()
	return r, t.f.start(ctx, r, t.filters)
}

// ended says that a recording does not run any more.
func (t *Tracer) ended(r recording) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun.live = slices.DeleteFunc(t.begun.live, func(x recording) bool { return x == r })
}

// Package watch implements the flight recorder: it finds its targets, waits for missing ones,
// keeps the last seconds of each, checks the rules, and writes dumps when one fires or a
// client requests it. cmd/sliver handles command lines and signals, package session samples,
// and watch/trigger implements the rules.
//
// A Watcher's methods may be called from any goroutine; Run is called once.
package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/watch/dumps"
	"github.com/sliverprof/sliver/watch/notify"
	"github.com/sliverprof/sliver/watch/trigger"
)

// Options configure a Watcher.
type Options struct {
	Name    string          // of this recorder
	Named   bool            // the user chose the name
	Session session.Options // Outputs, Duration and RingCap are not used
	// Keep is how much of each thread is kept, KeepBytes the memory limit of the rings of one
	// target. Keep 0 keeps what fits in KeepBytes.
	Keep      time.Duration
	KeepBytes int64
	RingDir   string // folder of ring files; "": none
	Rules     []*trigger.Rule
	// MaxCPU limits the recorder's cost, as a share of one CPU: its own CPU time and the time
	// for which it stops threads. If Session.Interval costs more, the interval is increased.
	// 0: no limit. RestCPU is the limit while some of the machine's CPUs are idle; a value
	// below MaxCPU means the same limit.
	MaxCPU   float64
	RestCPU  float64
	MemLimit int64 // limit in bytes if no control group sets one; 0: the machine's memory
	Store    *dumps.Store
	Formats  []string // extensions of additional files of each dump, such as ".pb.gz"
	Notify   Notify
	Log      *slog.Logger
}

// Notify lists the recipients of notifications about dumps.
type Notify struct {
	Exec    string // shell command
	Webhook string // URL
	Journal string // socket
}

func (n *Notify) check() error {
	if n.Webhook == "" {
		return nil
	}
	if err := notify.CheckWebhook(n.Webhook); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	return nil
}

// Source gives the targets.
type Source struct {
	// Fixed are watched until all of them have ended; if empty, Find selects the targets.
	Fixed   []*target.Process
	Release func() // lets a command started by sliver run; may be nil
	Find    func(known func(pid int) bool) ([]target.Found, error)
	What    string // description for messages: "a process named nginx"
}

// Limits of a Watcher.
const (
	// MaxTargets is how many processes are watched at once.
	MaxTargets = 16
	findEvery  = 500 * time.Millisecond
	maxHistory = 64 // dumps listed by Status
	// DefaultKeepBytes is the default memory for rings.
	DefaultKeepBytes = 64 << 20
)

// Watcher is a running flight recorder.
type Watcher struct {
	started time.Time
	source  Source

	rulesMu sync.Mutex
	rules   []*trigger.Rule // replaced by Reload
	notify  Notify
	version int

	mu      sync.Mutex
	targets []*watched
	refused map[refusedKey]bool // processes that cannot be watched, reported once
	history []control.Dump
	making  []control.Dump // unfinished dumps, with the data known so far
	latest  time.Time      // time of the last dump, as in its name
	fired   int
	failed  int
	broken  int // checks of triggers that ended in a panic
	trouble string
	past    ended
	shared  target.Shared
	shrunk  time.Time // when memory was last returned
	// settling returns memory after targets were added.
	settling *time.Timer

	o       Options
	log     *slog.Logger
	telling sync.WaitGroup
	self    int64 // CPU time of this program before Run, ns

	governor governor
}

type refusedKey struct {
	pid   int
	start uint64
}

// New returns a Watcher after all checks that need no target.
func New(o Options) (*Watcher, error) {
	if _, err := trigger.NewSet(o.Rules, nil, nil); err != nil {
		return nil, err
	}
	if err := o.Notify.check(); err != nil {
		return nil, err
	}
	if o.KeepBytes == 0 {
		o.KeepBytes = DefaultKeepBytes
	}
	for _, ending := range o.Formats {
		if _, err := export.ParseOutput("x"+ending, ""); err != nil {
			return nil, err
		}
	}
	// An unwritable folder must fail now, not when a dump is due.
	probe, err := export.ParseOutput(o.Store.Stem(o.Name, time.Now(), "check")+".sliver", "")
	if err != nil {
		return nil, err
	}
	if err := probe.Check(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if _, err := os.Stat(o.Notify.Journal); o.Notify.Journal != "" && err != nil {
		o.Log.Warn("cannot notify", "by", "journal", "error", notify.ErrNoJournal)
	}
	o.Session.Hosts = session.NewHosts(o.Session.Interval)
	return &Watcher{o: o, rules: o.Rules, notify: o.Notify, log: o.Log, started: time.Now(),
		refused: map[refusedKey]bool{}, past: ended{fired: map[string]uint64{}, dumps: map[string]uint64{}}, self: target.SelfCPU(),
		governor: governor{base: o.Session.Interval, now: o.Session.Interval, budget: o.MaxCPU, rest: o.RestCPU}}, nil
}

// Reload replaces the rules and recipients; the recording continues.
func (w *Watcher) Reload(rules []*trigger.Rule, n Notify) error {
	if _, err := trigger.NewSet(rules, nil, nil); err != nil {
		return err
	}
	if err := n.check(); err != nil {
		return err
	}
	w.rulesMu.Lock()
	w.rules, w.notify = rules, n
	w.version++
	w.rulesMu.Unlock()
	w.log.Info("reloaded", "triggers", len(rules))
	return nil
}

func (w *Watcher) current() ([]*trigger.Rule, int) {
	w.rulesMu.Lock()
	defer w.rulesMu.Unlock()
	return w.rules, w.version
}

// Run watches until ctx ends or, with fixed targets, until they end.
func (w *Watcher) Run(ctx context.Context, s Source) error {
	w.mu.Lock()
	w.source = s
	w.mu.Unlock()
	w.recoverLeft()
	if d, err := target.OpenDeaths(); err == nil {
		w.o.Session.Deaths = d
		defer d.Close()
	} else {
		w.log.Info("a crash shows the last sample or the stack of a core dump: the exact place needs CAP_PERFMON and tracefs", "error", err)
	}
	var wg sync.WaitGroup
	defer w.telling.Wait()
	defer w.settled()
	defer wg.Wait()
	if w.o.MaxCPU > 0 {
		governed, stop := context.WithCancel(ctx)
		wg.Go(func() { w.govern(governed) })
		defer stop()
	}
	if len(s.Fixed) > 0 {
		return w.watchAll(ctx, s)
	}
	tick := time.NewTicker(findEvery)
	defer tick.Stop()
	waiting := false
	for {
		if known := w.known(); len(known) < MaxTargets {
			found, err := s.Find(func(pid int) bool { return known[pid] })
			if err != nil {
				return fmt.Errorf("look for %s: %w", s.What, err)
			}
			for _, f := range found {
				w.take(ctx, &wg, f)
			}
		}
		if n := w.count(); n == 0 && !waiting {
			w.log.Info("waiting", "for", s.What)
			waiting = true
		} else if n > 0 {
			waiting = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// known returns the watched processes.
func (w *Watcher) known() map[int]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := make(map[int]bool, len(w.targets))
	for _, t := range w.targets {
		known[t.pid] = true
	}
	return known
}

func (w *Watcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.targets)
}

// take starts to watch a process that was found, unless it is watched already.
func (w *Watcher) take(ctx context.Context, wg *sync.WaitGroup, f target.Found) {
	k := refusedKey{f.PID, f.Start}
	w.mu.Lock()
	known := w.refused[k] || len(w.targets) >= MaxTargets ||
		slices.ContainsFunc(w.targets, func(t *watched) bool { return t.pid == f.PID })
	w.mu.Unlock()
	if known {
		return
	}
	p, err := target.Open(f.PID)
	if err != nil {
		var r *target.Refusal
		if errors.As(err, &r) && r.Reason == target.NoProcess {
			return // it has ended
		}
		w.refuse(k, f, err)
		return
	}
	t := w.add(p)
	wg.Add(1)
	go func() {
		defer wg.Done()
		defer p.Close()
		if err := w.run(ctx, t, nil); err != nil && !errors.Is(err, sampler.ErrNoThreads) && p.Alive() {
			w.refuse(k, f, err)
		}
	}()
}

func (w *Watcher) refuse(k refusedKey, f target.Found, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refused) > 1<<12 {
		clear(w.refused)
	}
	w.refused[k] = true
	w.trouble = err.Error()
	w.log.Error("cannot watch", "pid", f.PID, "name", f.Comm, "error", err)
}

// watchAll watches the processes of s until they end, and returns an error if one of them
// could not be watched.
func (w *Watcher) watchAll(ctx context.Context, s Source) error {
	errs := make([]error, len(s.Fixed))
	var wg sync.WaitGroup
	for i, p := range s.Fixed {
		t := w.add(p)
		wg.Go(func() { errs[i] = w.run(ctx, t, s.Release) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (w *Watcher) add(p *target.Process) *watched {
	t := &watched{w: w, proc: p, pid: p.PID(), name: p.Facts().Comm, since: time.Now(), asked: make(chan ask, 16)}
	w.mu.Lock()
	w.targets = append(w.targets, t)
	w.past.taken++
	w.mu.Unlock()
	return t
}

func (w *Watcher) remove(t *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.targets = slices.DeleteFunc(w.targets, func(x *watched) bool { return x == t })
}

// Status implements control.Recorder.
func (w *Watcher) Status() control.Status {
	rules, _ := w.current()
	w.mu.Lock()
	targets := slices.Clone(w.targets)
	s := control.Status{Name: w.o.Name, PID: os.Getpid(), Version: w.o.Session.Version, Started: w.started, Dir: w.o.Store.Dir,
		Keep: w.o.Keep.String(), Interval: w.governor.interval().String(), Asked: w.governor.base.String(), Takes: w.governor.share(), MaxCPU: w.governor.bound(),
		Dumps: slices.Concat(w.history, w.making), Fired: w.fired, Failed: w.failed, Broken: w.broken, Trouble: w.trouble}
	if len(targets) == 0 {
		s.Waiting = w.source.What
	}
	w.mu.Unlock()
	s.Dumps = w.inFolder(s.Dumps)
	if w.o.Keep == 0 {
		s.Keep = fmt.Sprintf("%d bytes", w.o.KeepBytes)
	}
	for _, r := range rules {
		s.Triggers = append(s.Triggers, r.String())
	}
	for _, t := range targets {
		s.Targets = append(s.Targets, t.status())
	}
	return s
}

// inFolder returns the dumps in the folder, oldest first: complete data for those made by
// this Watcher, and the information in their names for others.
func (w *Watcher) inFolder(made []control.Dump) []control.Dump {
	all, err := w.o.Store.List()
	if err != nil {
		return made
	}
	by := map[string]*control.Dump{}
	for i := range made {
		by[made[i].Files[0]] = &made[i]
	}
	out := make([]control.Dump, 0, len(all))
	for i := range all {
		d := &all[i]
		if x := by[d.Stem+".sliver"]; x != nil {
			if x.Bytes == 0 { // it is unfinished
				x.Bytes = d.Bytes
			}
			out = append(out, *x)
			continue
		}
		files := slices.DeleteFunc(slices.Clone(d.Files), func(f string) bool { return f == d.Stem+".sliver" })
		out = append(out, control.Dump{Target: d.Target, At: d.At, Reason: d.Reason, Bytes: d.Bytes,
			Files: append([]string{d.Stem + ".sliver"}, files...)})
	}
	return out[max(len(out)-maxHistory, 0):]
}

// pick returns the targets that who names.
func (w *Watcher) pick(who string) ([]*watched, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*watched
	for _, t := range w.targets {
		if who == "" || who == t.name || who == fmt.Sprint(t.pid) {
			out = append(out, t)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if len(w.targets) == 0 {
		return nil, fmt.Errorf("nothing to dump: waiting for %s", w.source.What)
	}
	var names []string
	for _, t := range w.targets {
		names = append(names, fmt.Sprintf("%s (%d)", t.name, t.pid))
	}
	return nil, fmt.Errorf("no target is called %q; there are: %s", who, strings.Join(names, ", "))
}

// RingFile returns the path of a target's ring file in dir.
func RingFile(dir, name string, pid int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d%s", dumps.Clean(name), pid, ringEnding))
}

const ringEnding = ".ring"

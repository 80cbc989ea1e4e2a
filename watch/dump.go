package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/background"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/watch/control"
	"github.com/sliverprof/sliver/watch/notify"
	"github.com/sliverprof/sliver/watch/trigger"
)

// ask is a dump to make, for fired rules or a request.
type ask struct {
	at     stack.Time
	fired  []trigger.Fired
	req    *control.Request
	stream io.Writer
	answer chan<- answer // nil: no caller waits
}

type answer struct {
	dump control.Dump
	err  error
}

// put queues a dump without waiting. If the queue is full, the dump counts as failed.
func (t *watched) put(a ask) {
	if a.at == 0 {
		a.at = target.Now()
	}
	t.w.mu.Lock()
	t.w.fired += len(a.fired)
	for _, f := range a.fired {
		t.w.past.fired[string(f.Kind)]++
	}
	t.w.mu.Unlock()
	for _, f := range a.fired {
		t.w.log.Warn("trigger", "pid", t.pid, "name", t.name, "kind", string(f.Kind), "rule", f.Rule.String(), "tid", int(f.TID), "what", f.Text)
	}
	select {
	case t.asked <- a:
	default:
		t.w.lost(errors.New("dumps are asked for faster than they can be written: one was left out"))
	}
}

func (w *Watcher) lost(err error) {
	w.mu.Lock()
	w.failed++
	w.trouble = err.Error()
	w.mu.Unlock()
	w.log.Error("no dump", "error", err)
}

// dumper makes the dumps of a target, one after another.
func (t *watched) dumper(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	for a := range t.asked {
		var d control.Dump
		var err error
		// A panic costs this dump, not the recording.
		if fell := background.Contain(func() { d, err = t.dump(ctx, a) }); fell != nil {
			err = fmt.Errorf("make a dump for %s of process %d: %w", a.reason(), t.pid, fell)
		}
		if err != nil {
			t.w.lost(err)
		}
		if a.answer != nil {
			a.answer <- answer{d, err}
		}
		t.w.shrink()
		t.w.governor.disturbed()
	}
}

// shrinkEvery limits how often memory is returned after dumps, which needs a collection.
const shrinkEvery = 5 * time.Second

// shrink returns a dump's memory to the system when the dump is done, so that a recorder
// does not stay larger after its first dump.
func (w *Watcher) shrink() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shrunk.IsZero() || time.Since(w.shrunk) > shrinkEvery {
		w.shrunk = time.Now()
		w.giveBackLater()
	}
}

// giveBack runs a garbage collection, which stops the whole program for a moment. It runs
// at high priority, as it must not wait for a CPU during that time.
func giveBack() { background.Urgent(debug.FreeOSMemory) }

// settleAfter is the time after the last new target until memory is returned: the tables
// and symbols of its files have been read by then. After a dump, the delay keeps the
// collection away from the events of interest.
const settleAfter = 3 * time.Second

// settle returns the memory used to add targets, once they are set up.
func (w *Watcher) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.giveBackLater()
}

// giveBackLater schedules giveBack settleAfter from now. The caller holds w.mu.
func (w *Watcher) giveBackLater() {
	if w.settling == nil {
		w.settling = time.AfterFunc(settleAfter, giveBack)
		return
	}
	w.settling.Reset(settleAfter)
}

// settled cancels the schedule when no targets remain.
func (w *Watcher) settled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settling != nil {
		w.settling.Stop()
	}
}

// Dump implements control.Recorder.
func (w *Watcher) Dump(ctx context.Context, r control.Request, stream io.Writer) ([]control.Dump, error) {
	ts, err := w.pick(r.Target)
	if err != nil {
		return nil, err
	}
	if stream != nil && len(ts) > 1 {
		return nil, fmt.Errorf("there are %d targets: say which one", len(ts))
	}
	var out []control.Dump
	var gone, failed error
	for _, t := range ts {
		d, err := t.dumped(ctx, ask{at: target.Now(), req: &r, stream: stream})
		switch {
		case err == nil:
			out = append(out, d)
		case ctx.Err() != nil:
			return out, err
		case errors.Is(err, errNotWatched): // with many targets, some end in the meantime
			gone = err
		case failed == nil:
			failed = err
		}
	}
	if len(out) == 0 && failed == nil {
		failed = gone
	}
	return out, failed
}

// dumped requests a dump and waits for it.
func (t *watched) dumped(ctx context.Context, a ask) (control.Dump, error) {
	c := make(chan answer, 1)
	a.answer = c
	if err := t.offer(a); err != nil {
		return control.Dump{}, err
	}
	select {
	case x := <-c:
		return x.dump, x.err
	case <-ctx.Done():
		return control.Dump{}, ctx.Err()
	}
}

// errNotWatched reports that a process has no rings.
var errNotWatched = errors.New("is not watched yet, or has just ended")

// offer is put for callers that wait for an answer.
func (t *watched) offer(a ask) error {
	t.askMu.Lock()
	defer t.askMu.Unlock()
	if t.over || t.flight.Load() == nil {
		return fmt.Errorf("process %d %w", t.pid, errNotWatched)
	}
	select {
	case t.asked <- a:
		return nil
	default:
		return fmt.Errorf("%d dumps of process %d are waiting already", len(t.asked), t.pid)
	}
}

// reason returns the reason of a dump for its file name.
func (a *ask) reason() string {
	if len(a.fired) > 0 {
		return string(a.fired[0].Kind)
	}
	return a.req.Kind
}

func (a *ask) triggers() (out []trace.Trigger) {
	for _, f := range a.fired {
		x := trace.Trigger{At: a.at, Rule: f.Rule.String(), Kind: string(f.Kind), Text: f.Text, TID: f.TID}
		for _, v := range f.Values {
			x.Values = append(x.Values, trace.Value(v))
		}
		if f.At != 0 && f.At < a.at {
			x.Values = append(x.Values, trace.Value{Name: "since", Value: strconv.FormatInt(int64(f.At), 10) + " ns of CLOCK_MONOTONIC"})
		}
		out = append(out, x)
	}
	if a.req != nil {
		text := a.req.Text
		if text == "" {
			text = "requested"
		}
		out = append(out, trace.Trigger{At: a.at, Rule: a.req.Kind, Kind: a.req.Kind, Text: text})
	}
	return out
}

// moment returns the time of a dump: now, but different for each dump, as it is part of
// the file name. Processes with the same name may dump at the same time.
func (w *Watcher) moment() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().Truncate(time.Millisecond)
	if !now.After(w.latest) {
		now = w.latest.Add(time.Millisecond)
	}
	w.latest = now
	return now
}

// dump makes one dump.
func (t *watched) dump(ctx context.Context, a ask) (d control.Dump, err error) {
	w := t.w
	now := w.moment()
	stem := w.o.Store.Stem(t.name, now, a.reason())
	if a.stream != nil {
		return t.send(a, stem)
	}
	removed, err := w.o.Store.Trim(1, 0)
	if err != nil {
		return d, err
	}
	outs := []string{stem + ".sliver"}
	for _, ending := range w.o.Formats {
		outs = append(outs, stem+ending)
	}
	begun := t.report(a, now, &session.Dumped{})
	begun.Files = outs[:1]
	w.mu.Lock()
	w.making = append(w.making, begun)
	w.mu.Unlock()
	defer w.made(outs[0], nil) // on a panic too
	res, err := t.write(a, outs)
	if err != nil {
		return d, err
	}
	d = t.report(a, now, res)
	if want, why := a.heapFiles(); want.Any() {
		paths, err := t.heapDump(ctx, stem, want, why)
		if err != nil {
			w.log.Error("no heap dump", "pid", t.pid, "error", err)
		}
		for _, path := range paths {
			d.Files = append(d.Files, path)
			if info, err := os.Stat(path); err == nil {
				d.Bytes += info.Size()
			}
		}
	}
	w.made(outs[0], &d)
	more, err := w.o.Store.Trim(0, 0)
	if err != nil {
		w.log.Error("cannot remove old dumps", "error", err)
	}
	for _, r := range append(removed, more...) {
		w.log.Info("removed", "dump", r.Stem, "bytes", r.Bytes)
	}
	w.log.Info("dumped", "pid", t.pid, "file", outs[0], "reason", d.Reason, "bytes", d.Bytes, "seconds", d.Seconds,
		"threads", d.Threads, "written_ms", d.Written, "named_ms", d.Named)
	w.tell(ctx, d, a.triggers())
	return d, nil
}

// made records that the dump in a file is finished; d is the dump, nil if it failed.
func (w *Watcher) made(file string, d *control.Dump) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.making = slices.DeleteFunc(w.making, func(d control.Dump) bool { return d.Files[0] == file })
	if d != nil {
		w.history = append(w.history, *d)
		w.history = w.history[max(len(w.history)-maxHistory, 0):]
		w.past.dumps[d.Reason]++
		w.past.bytes += d.Bytes
	}
}

func (t *watched) write(a ask, paths []string) (*session.Dumped, error) {
	var outs []export.Output
	for _, p := range paths {
		o, err := export.ParseOutput(p, "")
		if err != nil {
			return nil, err
		}
		outs = append(outs, o)
	}
	f := t.flight.Load()
	if f == nil {
		return nil, fmt.Errorf("process %d has just ended", t.pid)
	}
	tr, calls := t.slow.dumped()
	return f.Dump(session.Dump{Outputs: outs, Triggers: a.triggers(), Reason: "dump: " + a.reason(), Traced: tr, Calls: calls})
}

// send makes a dump for a client and keeps none.
func (t *watched) send(a ask, stem string) (d control.Dump, err error) {
	// The name is hidden, so that it is not listed as a dump.
	path := filepath.Join(filepath.Dir(stem), "."+filepath.Base(stem)+".sliver")
	res, err := t.write(a, []string{path})
	if err != nil {
		return d, err
	}
	defer os.Remove(path)
	f, err := safefile.Named(path)
	if err != nil {
		return d, err
	}
	defer f.Close()
	_, err = io.Copy(a.stream, f)
	return t.report(a, time.Now(), res), err
}

func (t *watched) report(a ask, at time.Time, res *session.Dumped) control.Dump {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	d := control.Dump{Target: t.name, PID: t.pid, At: at, Reason: a.reason(), Threads: res.Threads,
		Seconds: float64((res.To-res.From)/1e6) / 1e3, Frozen: ms(res.Frozen), Written: ms(res.Written), Named: ms(res.Named)}
	for _, x := range a.triggers() {
		if d.Text != "" {
			d.Text += "; "
		}
		d.Text += x.Text
	}
	for _, f := range res.Files {
		d.Files = append(d.Files, f.Path)
		d.Bytes += f.Bytes
	}
	return d
}

// message is the body of a web hook.
type message struct {
	Recorder string `json:"recorder"`
	Host     string `json:"host"`
	control.Dump
	Triggers []trace.Trigger `json:"triggers"`
}

// This runs in the background, so that a slow recipient does not delay dumps.
func (w *Watcher) tell(ctx context.Context, d control.Dump, ts []trace.Trigger) {
	w.rulesMu.Lock()
	n := w.notify
	w.rulesMu.Unlock()
	if n == (Notify{}) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	say := func(how string, err error) {
		if err != nil {
			w.log.Error("cannot notify", "by", how, "error", err)
		}
	}
	fields := []notify.Field{{Name: "SLIVER_DUMP", Value: d.Files[0]}, {Name: "SLIVER_REASON", Value: d.Reason}, {Name: "SLIVER_TEXT", Value: d.Text},
		{Name: "SLIVER_TARGET", Value: d.Target}, {Name: "SLIVER_PID", Value: strconv.Itoa(d.PID)},
		{Name: "SLIVER_TIME", Value: d.At.Format(time.RFC3339Nano)}, {Name: "SLIVER_FILES", Value: strings.Join(d.Files, "\n")}}
	if n.Journal != "" {
		const warning = "4"
		say("journal", notify.Journal(n.Journal, append([]notify.Field{{Name: "MESSAGE", Value: fmt.Sprintf("%s (%d): %s; kept in %s", d.Target, d.PID, d.Text, d.Files[0])},
			{Name: "PRIORITY", Value: warning}, {Name: "SYSLOG_IDENTIFIER", Value: "sliver"}}, fields...)))
	}
	w.telling.Go(func() {
		if n.Exec != "" {
			say("command", notify.Exec(ctx, n.Exec, fields))
		}
		if n.Webhook != "" {
			host, _ := os.Hostname()
			body, err := json.Marshal(message{w.o.Name, host, d, ts})
			if err == nil {
				err = notify.Webhook(ctx, n.Webhook, body)
			}
			say("web hook", err)
		}
	})
}

// letGo limits how long the start waits, in total, for ring files whose recorders may
// just have been killed: their remaining processes hold these files for a moment.
const letGo = 300 * time.Millisecond

// recoverLeft converts the ring files of killed recorders of this kind to dumps and
// removes them.
func (w *Watcher) recoverLeft() {
	if w.o.RingDir == "" {
		return
	}
	paths, err := filepath.Glob(filepath.Join(w.o.RingDir, "*"+ringEnding))
	if err != nil {
		return
	}
	until := time.Now().Add(letGo)
	for _, path := range paths {
		if w.mine(path) {
			w.recoverRing(path, until)
		}
	}
}

// recoverRing is recoverLeft for one file. If several recorders start at once, only one
// claims it.
func (w *Watcher) recoverRing(path string, until time.Time) {
	f, err := ringfile.Claim(path, until)
	if err != nil {
		if !errors.Is(err, ringfile.ErrInUse) && !errors.Is(err, fs.ErrNotExist) {
			w.log.Warn("cannot recover", "ring_file", path, "error", err)
		}
		return
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() == 0 { // killed right after creating it
		ForgetRing(path)
		os.Remove(path)
		return
	}
	name, _, _ := strings.Cut(filepath.Base(path), ringEnding)
	out, err := export.ParseOutput(w.o.Store.Stem(name, w.moment(), "recovered")+".sliver", "")
	if err != nil {
		return
	}
	d := session.Dump{Outputs: []export.Output{out}, Reason: "recovered: the recorder was killed"}
	var res *session.Dumped
	if fell := background.Contain(func() { res, _, err = w.o.Session.Recover(f, d) }); fell != nil {
		w.log.Error("cannot recover", "ring_file", path, "error", fell)
		return // keep it, as it may help to find the problem
	}
	if err != nil {
		w.log.Warn("cannot recover", "ring_file", path, "error", err)
		if errors.Is(err, syscall.ENOSPC) {
			return // another recorder may recover it later
		}
	} else {
		w.log.Info("recovered", "ring_file", path, "file", res.Files[0].Path, "threads", res.Threads)
	}
	ForgetRing(path)
	os.Remove(path)
}

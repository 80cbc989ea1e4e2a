package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
)

// liveView is the page of a recording in progress. The page outlives the recording, and
// can start another one of the same process.
type liveView struct {
	e     *env
	f     *webFlags
	p     *target.Process
	again bool // another recording can follow
	srv   *web.Server
	begin chan struct{} // requests the next recording
	held  *held         // between two recordings; nil during the first

	several bool // processes
	traced  bool // calls come to calls

	mu     sync.Mutex
	s      *session.Session // nil: no session to ask
	src    liveSource
	set    *web.LiveSet                          // src, of several processes
	parts  map[*session.Session]*web.LiveProcess // of set, those that are sampled
	over   bool                                  // s has ended
	status web.Status
	asked  time.Time // when status was computed
}

// liveSource is the source of a recording in progress.
type liveSource interface {
	web.Source
	End(reason string)
}

func newLiveView(e *env, f *webFlags, p *target.Process, outs []export.Output, several bool) *liveView {
	// The processes of a set are followed once: the set of a further recording would miss those that came since.
	v := &liveView{e: e, f: f, p: p, begin: make(chan struct{}, 1), again: !several, several: several}
	for _, o := range outs {
		v.again = v.again && o.Path != "-"
	}
	return v
}

// renamed is session.Options.Renamed.
func (v *liveView) renamed(tid stack.TID, name string) {
	if p := v.first(); p != nil {
		p.Renamed(tid, name)
	}
}

// livePart is what the page shows of one process.
type livePart interface {
	Renamed(tid stack.TID, name string)
	Calls(b *trace.CallBatch)
}

// first returns what the page shows of the session's own process; nil: nothing yet.
func (v *liveView) first() livePart {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch src := v.src.(type) {
	case *web.Live:
		return src
	case *web.LiveSet:
		if own := v.parts[v.s]; own != nil {
			return own
		}
	}
	return nil
}

// trace lets traced calls come to the page. v may be nil, and so may o.
func (v *liveView) trace(o *session.TraceOptions) {
	if v != nil && o != nil && o.Methods == nil { // calls of Java come seconds later
		v.traced, o.Live = true, v.calls
	}
}

// calls is session.TraceOptions.Live.
func (v *liveView) calls(b *trace.CallBatch) {
	if p := v.first(); p != nil {
		p.Calls(b)
	}
}

// Joined implements session.Follower.
func (v *liveView) Joined(s *session.Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.parts[s] = v.set.Join(s.Recorder(), liveOptions(s))
}

// Ended implements session.Follower.
func (v *liveView) Ended(s *session.Session, gone bool) {
	v.mu.Lock()
	p := v.parts[s]
	delete(v.parts, s)
	v.mu.Unlock()
	if p != nil {
		p.End(gone, s.Exit())
	}
}

// Renamed implements session.Follower.
func (v *liveView) Renamed(s *session.Session, tid stack.TID, name string) {
	v.mu.Lock()
	p := v.parts[s]
	v.mu.Unlock()
	if p != nil {
		p.Renamed(tid, name)
	}
}

func liveOptions(s *session.Session) web.LiveOptions {
	return web.LiveOptions{Namer: liveNames{s.Names()}, Wait: s.Wait, Window: s.Window}
}

// source returns a new source of a session.
func (v *liveView) source(s *session.Session) (src liveSource) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.s, v.over, v.asked = s, false, time.Time{}
	o := liveOptions(s)
	o.Traced = v.traced
	if v.several {
		v.set = web.NewLiveSet(web.LiveSetOptions{Window: s.Window, Left: s.Left})
		v.parts = map[*session.Session]*web.LiveProcess{s: v.set.Join(s.Recorder(), o)}
		v.src = v.set
	} else {
		v.src = web.NewLive(s.Recorder(), o)
	}
	return v.src
}

// show shows a session on the page; the first one starts the server.
func (v *liveView) show(s *session.Session) error {
	src := v.source(s)
	if v.srv != nil {
		v.srv.Replace(src)
		return nil
	}
	o := v.f.options(v.e)
	o.Source, o.Export, o.Control = src, v.export, v.control()
	o.Status = v.statusNow
	var err error
	if v.srv, err = web.Serve(context.Background(), o); err != nil {
		return err
	}
	v.f.announce(v.e, v.srv)
	return nil
}

// ended reports the end of sampling to the page.
func (v *liveView) ended(reason string) {
	v.mu.Lock()
	v.over = true
	v.asked = time.Time{}
	src := v.src
	v.mu.Unlock()
	src.End(reason)
}

// hide detaches the session before it is closed.
func (v *liveView) hide() {
	v.mu.Lock()
	v.s = nil
	v.mu.Unlock()
}

// stay keeps the page up after the end and reports whether to record again. In a terminal
// it stays until Ctrl-C, otherwise until no page is open. A later signal is left to the
// caller, which starts the next recording.
func (v *liveView) stay() (again bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var idle <-chan struct{}
		if !isTerminal(v.e.stderr) {
			idle = noPages(ctx, v.srv)
		}
		select {
		case <-v.begin:
			again = true
		case <-idle:
		case <-ctx.Done():
		}
	}()
	if isTerminal(v.e.stderr) {
		fmt.Fprintf(v.e.stderr, "  page     stays at %s until Ctrl-C\n", v.srv.URL())
		if l := forwardLine(v.srv); l != "" {
			fmt.Fprintf(v.e.stderr, "           from your own machine: %s\n", l)
		}
	}
	v.held.wait(done)
	cancel()
	<-done
	return again && !v.held.got
}

func (v *liveView) close() {
	if v.srv != nil {
		v.srv.Close()
	}
}

var errOver = errors.New("the recording has ended")

// running returns the session in progress.
func (v *liveView) running() (*session.Session, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.s == nil || v.over {
		return nil, errOver
	}
	return v.s, nil
}

func (v *liveView) control() web.Control {
	with := func(do func(*session.Session) error) error {
		s, err := v.running()
		if err != nil {
			return err
		}
		v.mu.Lock()
		v.asked = time.Time{}
		v.mu.Unlock()
		return do(s)
	}
	c := web.Control{
		Pause:       func() error { return with(func(s *session.Session) error { s.Pause(); return nil }) },
		Resume:      func() error { return with(func(s *session.Session) error { s.Resume(); return nil }) },
		Stop:        func() error { return with(func(s *session.Session) error { s.Stop(); return nil }) },
		SetInterval: func(d time.Duration) error { return with(func(s *session.Session) error { return s.SetInterval(d) }) },
		SetThreads: func(spec string) error {
			return with(func(s *session.Session) error {
				sel, err := sampler.ParseSelection(spec)
				if err != nil {
					return err
				}
				return s.SetSelection(sel)
			})
		},
		KeepLast: v.keep,
	}
	if v.again {
		c.Start = v.start
	}
	return c
}

// start requests another recording after the end of the last.
func (v *liveView) start() error {
	if _, err := v.running(); err == nil {
		return errors.New("a recording is under way")
	}
	if !v.p.Alive() {
		return fmt.Errorf("process %d has ended: nothing to record", v.p.PID())
	}
	select {
	case v.begin <- struct{}{}:
	default: // already requested
	}
	return nil
}

// statusEvery limits how often statistics are summed, however many pages ask.
const statusEvery = 300 * time.Millisecond

// pageStatus converts a recording's statistics for the page.
func pageStatus(t stack.ThreadStats, tasks trace.LostTasks, missing []trace.Unrecorded, p stack.Pauses) web.Status {
	return web.Status{Samples: t.Samples, Lost: t.Lost(), Losses: allLosses(&t, tasks, missing),
		PauseP50: p.P50, PauseP99: p.P99, Overhead: session.Share(t)}
}

func (v *liveView) statusNow() web.Status {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.s != nil && time.Since(v.asked) > statusEvery {
		paused := v.s.Paused() // read first, so that every pause is of a sample in the statistics
		st := v.s.Status()
		v.status = pageStatus(st.Total, st.Tasks, st.Unrecorded, st.Pauses)
		lines := append([]string{v.status.Losses}, v.s.Left().Lines()...)
		if v.set != nil && v.set.Forgotten() > 0 {
			lines = append(lines, fmt.Sprintf("%s ended early and left the page; the recording has them", plural.Either(v.set.Forgotten(), "process", "processes")))
		}
		v.status.Losses = strings.Join(slices.DeleteFunc(lines, func(s string) bool { return s == "" }), "; ")
		v.status.Paused, v.status.Interval, v.status.Threads = paused, v.s.Interval(), v.s.Selection().String()
		v.asked = time.Now()
	}
	return v.status
}

func (v *liveView) snapshot() (*trace.Recording, func(), error) {
	v.mu.Lock()
	s := v.s
	v.mu.Unlock()
	if s == nil {
		return nil, nil, session.ErrOver
	}
	return s.Snapshot()
}

// export is web.Options.Export.
func (v *liveView) export(_ context.Context, w io.Writer, format string, p web.Part) error {
	rec, release, err := v.snapshot()
	if err != nil {
		return err
	}
	defer release()
	return writePart(w, rec, format, p)
}

// keep writes the last part of the recording to a separate file beside the recording.
func (v *liveView) keep(last time.Duration) (string, error) {
	if last <= 0 || last > maxKept {
		return "", fmt.Errorf("%v cannot be kept; choose up to %v", last, maxKept)
	}
	now := target.Now()
	rec, release, err := v.snapshot()
	if err != nil {
		return "", err
	}
	defer release()
	if rec.End != nil {
		now = rec.End.At
	}
	whole := session.DefaultOutput(v.p.Facts().Comm, v.p.PID(), time.Now())
	path := filepath.Join(v.dir(), strings.TrimSuffix(whole, ".sliver")+"-last"+last.String()+".sliver")
	n, err := outfile.Atomic(path, func(w io.Writer) error {
		return trace.Cut(w, rec, trace.Part{From: now - stack.Time(last), To: now, Reason: "kept on the page"})
	})
	if err != nil {
		return "", err
	}
	clear := ""
	if isTerminal(v.e.stderr) {
		clear = "\r\x1b[K" // clears the status line
	}
	fmt.Fprintf(v.e.stderr, clear+"kept the last %v in %s (%s)\n", last, path, bytesText(n))
	return path, nil
}

// maxKept is the longest part that a user may keep.
const maxKept = 24 * time.Hour

// dir returns the folder of the recording.
func (v *liveView) dir() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.s == nil {
		return "."
	}
	return v.s.Dir()
}

// numbered returns the output name for the n-th recording.
func numbered(o export.Output, n int) export.Output {
	for _, ext := range o.Format.Extensions {
		if stem, ok := strings.CutSuffix(o.Path, ext); ok {
			o.Path = fmt.Sprintf("%s-%d%s", stem, n, ext)
			return o
		}
	}
	o.Path = fmt.Sprintf("%s-%d", o.Path, n)
	return o
}

// liveNames adapts a session's names for package web.
type liveNames struct{ l *naming.Live }

// Shared implements web.Sharer.
func (n liveNames) Shared(w web.Word) (file any, vaddr uint64, ok bool) {
	return n.l.Locate(naming.Place{Addr: w.Word.Lookup(), At: w.At})
}

// Name implements web.Namer.
func (n liveNames) Name(ctx context.Context, words []web.Word, answer func(int, []web.NameFrame)) {
	places := make([]naming.Place, len(words))
	for i, w := range words {
		places[i] = naming.Place{Addr: w.Word.Lookup(), At: w.At}
	}
	n.l.Name(ctx, places, func(i int, module string, vaddr uint64, frames []symbol.Frame) {
		if len(frames) == 0 {
			answer(i, []web.NameFrame{{Func: trace.PlaceName(module, vaddr), Module: module}})
			return
		}
		out := make([]web.NameFrame, len(frames))
		for k, f := range frames {
			out[k] = web.NameFrame{Func: f.Func, File: f.File, Line: f.Line, Module: module, Defined: f.StartFile, Start: f.StartLine}
		}
		answer(i, out)
	})
}

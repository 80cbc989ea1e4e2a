package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sliverprof/sliver/cmd/sliver/internal/tui"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/procset"
	"github.com/sliverprof/sliver/session/top/feed"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// topSource is what top shows: one process, or several.
type topSource interface {
	tui.Source
	Run(ctx context.Context) error
	Span() time.Duration
	Settle(ctx context.Context)
	// Losses describes the losses of the samplers and of processes; "" if there are none.
	Losses(st *stack.ThreadStats) string
	PID() int     // 0: several
	Comm() string // or the number of processes
	Close()
}

// source returns a source of procs, and closes them if there is an error.
func (f *topFlags) source(procs []*target.Process, o feed.Options) (_ topSource, err error) {
	if len(procs) == 1 && !f.set.children && !f.set.matches() {
		p := procs[0]
		fd, err := feed.New(p, o)
		if err == nil {
			return &oneSource{fd, p}, nil
		}
		defer p.Close()
		if errors.Is(err, sampler.ErrNoThreads) {
			return nil, noThreads(f.threads, p)
		}
		return nil, explain(err)
	}
	want := procset.Options{Children: f.set.children, Max: f.most, Grace: graceOf(o.Interval)}
	if f.set.matches() {
		if want.Match, _, err = matching("top", f.set.names, f.set.units, f.set.cgroups); err != nil {
			for _, p := range procs {
				p.Close()
			}
			return nil, err
		}
	}
	set := procset.New(want)
	set.Take(procs...)
	return &severalSource{Several: feed.NewSeveral(o), set: set, first: procs}, nil
}

// oneSource is one process.
type oneSource struct {
	*feed.Feed
	p *target.Process
}

func (s *oneSource) PID() int     { return s.p.PID() }
func (s *oneSource) Comm() string { return s.p.Facts().Comm }

func (s *oneSource) Losses(st *stack.ThreadStats) string { return lossesOf(s.Feed)(st) }

func (s *oneSource) Close() {
	s.Feed.Close()
	s.p.Close()
}

// severalSource is several processes, and those that join them.
type severalSource struct {
	*feed.Several
	set   *procset.Set
	first []*target.Process
}

func (s *severalSource) PID() int { return 0 }

func (s *severalSource) Comm() string {
	return plural.Either(len(s.Table().Processes), "process", "processes")
}

// Run observes the processes until ctx ends or all have ended.
func (s *severalSource) Run(ctx context.Context) error {
	join := func(p *target.Process, parent int) {
		pid, comm := p.PID(), p.Facts().Comm
		if err := s.Add(ctx, p, s.set.Done); err != nil {
			s.set.Missed(pid, parent, comm, err.Error(), 0)
			s.set.Done()
		}
	}
	first := s.first
	s.first = nil
	for _, p := range first {
		join(p, 0)
	}
	s.set.Follow(ctx, func(m procset.Member) { join(m.Process, m.Parent) })
	return s.Wait()
}

// Losses adds the processes that are not observed.
func (s *severalSource) Losses(st *stack.ThreadStats) string {
	all := []string{lossesOf(s.Several)(st)}
	left := s.set.Left()
	if all = append(all, left.Lines()...); all[0] == "" {
		all = all[1:]
	}
	return strings.Join(all, ", ")
}

// Close implements topSource. Run has returned, or was not called.
func (s *severalSource) Close() {
	for _, p := range s.first {
		p.Close()
	}
	s.Several.Close()
	s.set.Close()
}

var (
	_ topSource = (*oneSource)(nil)
	_ topSource = (*severalSource)(nil)
)

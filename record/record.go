// Package record records a running process for other programs, as the command "sliver record" does: its
// threads are sampled, and the recording is written to files. It is the part of sliver that a program
// imports to make recordings; package trace reads them, package export converts them.
//
// The rights needed are those of a debugger for the process (docs/rights.md). A program that imports this
// package runs helper processes of its own binary, which end with it: they stop threads for microseconds and
// let them go even if the program is killed.
package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// DefaultInterval is the mean time between two samples of a thread.
const DefaultInterval = 10 * time.Millisecond

// DefaultMaxOverhead is the default of Options.MaxOverhead.
const DefaultMaxOverhead = .01

const (
	jitter = .5 // gaps between samples are 0.5 to 1.5 intervals
	groups = 5  // of threads, each with a sampler of its own, beside that of main
)

// Options say what to record. The zero value records all threads, also new ones, until the process ends.
type Options struct {
	// Threads selects threads by role, TID, position or name: "main,5", "worker-*", "all,!gc-*"; "": all.
	Threads string
	// Interval is the mean time between two samples of a thread, 100 µs to 10 minutes; 0: DefaultInterval.
	Interval time.Duration
	// Duration is how long to record; 0: until the context is done or the process ends.
	Duration time.Duration
	// MaxOverhead bounds the time that stops hold each thread, and the CPU time that the recording takes from
	// the process, as a share: samples become rarer to keep it. 0: DefaultMaxOverhead; below 0: no bound.
	MaxOverhead float64
	// Idle includes idle waits in outputs that rank by time.
	Idle bool
}

// A Result describes a finished recording.
type Result struct {
	Files   []export.File // in the order of the paths
	Threads int           // recorded
	// Stats are the samples and losses of each thread, and the threads that could not be recorded.
	Stats trace.Stats
	// Duration is from the first sample's tick to the last one's.
	Duration time.Duration
	Reason   string   // why it ended
	Problems []string // why names are missing, one line each
}

// Process records the process pid and writes the recording to each of paths, in the format of the file's
// name: .sliver is what package trace reads, .pftrace is for Perfetto, .pb.gz for pprof (export.ParseOutput).
// The recording ends with the process, after Options.Duration, or when ctx is done; that is not an error.
//
// An error names the right that is missing, or the file that was not written. When Process returns, no thread
// of the process is stopped or traced.
func Process(ctx context.Context, pid int, o Options, paths ...string) (*Result, error) {
	opts, err := o.session(paths)
	if err != nil {
		return nil, err
	}
	p, err := target.Open(pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	s, err := session.New(p, opts)
	if err != nil {
		return nil, fmt.Errorf("record process %d: %w", pid, err)
	}
	defer s.Close()
	reason, runErr := s.Run(ctx)
	res, err := s.Finish(reason)
	if err = errors.Join(err, runErr); err != nil {
		return nil, fmt.Errorf("record process %d: %w", pid, err)
	}
	return &Result{Files: res.Files, Threads: res.Threads, Stats: res.Stats, Duration: res.Duration, Reason: res.Reason, Problems: res.Problems}, nil
}

// session returns the options of a session, or an error that names the one that is out of range.
func (o *Options) session(paths []string) (s session.Options, err error) {
	s = session.Options{Interval: o.Interval, Jitter: jitter, Groups: groups, Duration: o.Duration, MaxOverhead: o.MaxOverhead, Clock: true, Idle: o.Idle}
	if s.Interval == 0 {
		s.Interval = DefaultInterval
	}
	switch {
	case s.MaxOverhead == 0:
		s.MaxOverhead = DefaultMaxOverhead
	case s.MaxOverhead < 0:
		s.MaxOverhead = 0
	}
	threads := o.Threads
	if threads == "" {
		threads = "all"
	}
	switch {
	case len(paths) == 0:
		return s, errors.New("record: no file to write to")
	case s.Interval < sampler.MinInterval || s.Interval > sampler.MaxInterval:
		return s, fmt.Errorf("record: interval %v is out of range; use %v to %v", s.Interval, sampler.MinInterval, sampler.MaxInterval)
	case s.Duration < 0:
		return s, fmt.Errorf("record: duration %v is negative", s.Duration)
	case s.MaxOverhead >= 1:
		return s, fmt.Errorf("record: bound %v of the overhead is out of range; use a share below 1", s.MaxOverhead)
	}
	if s.Selection, err = sampler.ParseSelection(threads); err != nil {
		return s, fmt.Errorf("record: %w", err)
	}
	for _, path := range paths {
		out, err := export.ParseOutput(path, "")
		if err != nil {
			return s, fmt.Errorf("record: %w", err)
		}
		s.Outputs = append(s.Outputs, out)
	}
	return s, nil
}

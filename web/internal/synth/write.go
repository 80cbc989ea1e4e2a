package synth

import (
	"io"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Options configure a recording.
type Options struct {
	Seed     uint64
	Threads  int
	Interval int64 // ns
	Samples  int   // per thread
	Events   int   // stop a thread after that many; 0: no limit
	Tasks    int   // goroutines, which the threads run in turn
	Nameless bool  // omit the symbols
	Cut      bool  // omit the end, as if the recorder was killed
	// Processes above 1 are recorded together, see WriteAll: each has Threads threads, and the later ones
	// have fewer samples.
	Processes int
}

// Write writes a finished recording and returns its number of events.
func Write(w io.Writer, o Options) (events int, err error) {
	const t0 = stack.Time(1_000_000_000_000)
	tw, err := trace.NewWriter(w)
	if err != nil {
		return 0, err
	}
	return write(tw, New(o.Seed, t0, o.Interval), t0, o)
}

// WriteAll writes a recording of o.Processes processes: the first is the parent of the others.
func WriteAll(f trace.File, o Options) (events int, err error) {
	const t0 = stack.Time(1_000_000_000_000)
	sections, one, err := trace.NewSections(f)
	if err != nil {
		return 0, err
	}
	for i := range o.Processes {
		if i > 0 {
			one = sections.Add()
		}
		part := o
		part.Seed += uint64(i)
		part.Samples = max(1, o.Samples*(i+1)/o.Processes)
		p := New(part.Seed, t0, o.Interval)
		p.child(i)
		n, err := write(one.Writer(), p, t0, part)
		if err != nil {
			return 0, err
		}
		events += n
	}
	return events, nil
}

func write(tw *trace.Writer, p *Program, t0 stack.Time, o Options) (events int, err error) {
	if err := tw.Process(p.Proc); err != nil {
		return 0, err
	}
	if err := tw.Maps(p.Maps, 0, p.Modules); err != nil {
		return 0, err
	}
	if o.Tasks > 0 {
		if err := tw.Tasks(scan(t0+1, o.Tasks)); err != nil {
			return 0, err
		}
	}
	var st trace.Stats
	end := t0
	for k := range o.Threads {
		d := p.Describe(k, t0)
		if err := tw.Thread(d); err != nil {
			return 0, err
		}
		var df diff.Differ
		es := df.Event(t0, event.Rate, uint64(o.Interval), nil)
		th := p.Thread(k)
		var x stack.Sample
		n := 0
		for n < o.Samples && (o.Events == 0 || len(es) < o.Events) {
			at := t0 + stack.Time(int64(n+1)*o.Interval) + stack.Time(k*137)
			end = max(end, at)
			lock := th.Sample(at, &x)
			if n > 0 && n%997 == 0 {
				es = df.Gap(at, stack.WhyLate, 3*o.Interval, es)
			}
			if o.Tasks > 0 {
				es = runner(k, o, n, at, &df, es)
			}
			es = df.Step(&x, es)
			if lock.Changed {
				es = df.Event(at, event.Lock, lock.Addr, es)
				if lock.Addr != 0 {
					es = df.Event(at, event.Holder, event.HolderOf(lock.Holder, event.KnownByWord), es)
				}
			}
			if df.SinceSync() > 4000 {
				es = df.Sync(es)
			}
			n++
		}
		es = df.Flush(es)
		es = df.End(end, stack.WhyGone, es)
		if err := tw.Events(k, es); err != nil {
			return 0, err
		}
		events += len(es)
		st.Threads = append(st.Threads, trace.ThreadStats{TID: d.TID, Samples: uint64(n)})
	}
	if o.Tasks > 0 { // as a recorder scans at the end
		if err := tw.Tasks(scan(end, o.Tasks)); err != nil {
			return 0, err
		}
	}
	if !o.Nameless {
		if err := tw.Symbols(p.Symbols()); err != nil {
			return 0, err
		}
	}
	if o.Cut {
		return events, nil
	}
	if err := tw.Stats(st); err != nil {
		return 0, err
	}
	last := trace.End{At: end, Reason: "duration"}
	if p.Proc.Parent != 0 {
		last.Exit = &trace.Exit{Status: 3}
	}
	return events, tw.End(last)
}

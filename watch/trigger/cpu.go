package trigger

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// CPU: a thread or the process uses too much of the CPUs.
const CPU Kind = "cpu"

var cpu = Subject{
	Kind: CPU, Flag: "cpu", Help: "a thread (or of=process) uses more than this share of a CPU: 90%,checks=3",
	options: []string{"of", "threads", "checks", "every"},
	value: func(r *Rule, v string) (err error) {
		r.Every = time.Second
		r.Share, err = Percent(v, mostCPU)
		return err
	},
	whole: func(r *Rule) error {
		if !r.Process && r.Share >= 1 {
			return fmt.Errorf("no thread uses more than 100%% of a CPU; use less, or add of=process for all threads together")
		}
		return nil
	},
	check: (*Set).cpu,
}

// ofOption says whose CPU time counts.
func (r *Rule) ofOption(v string) error {
	switch v {
	case "process":
		r.Process = true
	case "thread":
	default:
		return fmt.Errorf("%q is none of thread, process", v)
	}
	return nil
}

// cpu checks the rules about CPU time. A thread's CPU time is known as of its last sample. On
// a busy machine, or with a long interval, that is some time before the check, and a check
// without a new sample has no information. So the share is computed over the time between
// samples.
func (s *Set) cpu(r *state, l *Look) (out []Fired) {
	since, ok := r.due(l.Now)
	if !ok {
		return nil
	}
	r.forget(l)
	check := func(k key, cpu int64, at stack.Time, who string) {
		before, known := r.previous[k]
		took := int64(at - r.sampled[k])
		if known && took < int64(r.Every)/2 {
			return // the next check decides
		}
		r.previous[k], r.sampled[k] = float64(cpu), at
		if !known || since == 0 {
			return
		}
		share := (float64(cpu) - before) / float64(took)
		if share > r.Share {
			r.inRow[k]++
		} else {
			r.inRow[k] = 0
		}
		if !r.edge(k, r.inRow[k] >= r.Checks) {
			return
		}
		out = append(out, Fired{At: l.Now - stack.Time(since*int64(r.Checks)), TID: k.tid,
			Text: fmt.Sprintf("%s uses %.0f%% of a CPU, over %.0f%% at %s in a row", who, share*100, r.Share*100, plural.Of(r.Checks, "check")),
			Values: []Value{{"cpu", fmt.Sprintf("%.1f%%", share*100)}, {"limit", fmt.Sprintf("%.0f%%", r.Share*100)},
				{"checks", strconv.Itoa(r.Checks)}}})
	}
	if r.Process {
		if u, ok := l.usage(CPU); ok && u.CPU >= 0 {
			check(key{}, u.CPU, l.Now, "the process")
		}
		return out
	}
	for _, t := range l.Threads {
		if !r.Picks(t) || t.seen == 0 {
			continue
		}
		cpu, at := t.cpu, t.seen
		if e, ok := l.tail(t); ok && e.Time > t.seen {
			_, _, more := event.SeenFields(e.Payload())
			cpu, at = cpu+more, e.Time
		}
		check(key{tid: t.TID}, cpu, at, "thread "+t.label())
	}
	return out
}

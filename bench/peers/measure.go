package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// row holds the measurements of one tool on one target, one value per round.
type row struct {
	rate, gaps, taken, each, cpu, rss []float64
	self                              []float64 // sliver's CPU time per sample while sampling, µs
	stops                             []float64 // sliver's share by its own account
}

// turns runs every tool on a target that sums its gaps, round by round, and starts each
// round with a different one.
func (b *bench) turns(path string, python bool, args ...string) (map[string]*row, []string, error) {
	rows := map[string]*row{}
	var names []string
	var tools []tool
	for _, t := range b.tools {
		if !t.python || python {
			tools = append(tools, t)
			names = append(names, t.name)
			rows[t.name] = &row{}
		}
	}
	failed := map[string]bool{}
	for round := range b.rounds {
		p, s, err := b.watched(path, slices.Clone(args)...)
		if err != nil {
			return nil, nil, err
		}
		for i := range tools {
			t := tools[(i+round)%len(tools)]
			if failed[t.name] {
				continue
			}
			before := s.read()
			o, err := t.look(b.ctx, p.pid(), b.span)
			after := s.read()
			if err == nil && t.name != untouched && o.samples == 0 {
				err = errNothing
			}
			if b.ctx.Err() != nil {
				p.end()
				return nil, nil, b.ctx.Err()
			}
			if err != nil {
				if t.name == "sliver" {
					p.end()
					return nil, nil, err
				}
				failed[t.name] = true
				names = slices.DeleteFunc(names, func(n string) bool { return n == t.name })
				b.left = append(b.left, fmt.Sprintf("%s on this target (%s)", t.name, strings.Join(strings.Fields(err.Error()), " ")))
				continue
			}
			rows[t.name].add(o, before, after, b.span)
		}
		p.end()
	}
	return rows, names, nil
}

func (r *row) add(o outcome, before, after state, span time.Duration) {
	window := after.at.Sub(before.at)
	lost := after.lost - before.lost
	waited := min(after.waited-before.waited, lost)
	r.gaps = append(r.gaps, float64(lost)/float64(window))
	r.taken = append(r.taken, float64(lost-waited)/float64(window))
	r.rss = append(r.rss, float64(o.rss)/1024)
	if o.samples == 0 {
		return
	}
	n := float64(o.samples)
	r.rate = append(r.rate, n/span.Seconds())
	r.each = append(r.each, float64((lost-waited).Microseconds())/n)
	r.cpu = append(r.cpu, float64(o.cpu.Microseconds())/n)
	if o.sum.Samples > 0 {
		r.self = append(r.self, float64(o.sum.CPU)/1e3/n)
		r.stops = append(r.stops, o.sum.Share)
	}
}

// median returns the median of a series; NaN if empty.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func figure(v float64, format string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return fmt.Sprintf(format, v)
}

func percent(v float64) string { return figure(v*100, "%.3g %%") }

// table writes the rows. Gaps without any tool are subtracted from those of each tool;
// ratios are relative to sliver.
func table(rows map[string]*row, names []string) {
	fmt.Println("| tool | samples a second | in gaps | taken | taken a sample, µs | ratio | CPU of the tool a sample, µs | its memory, MiB |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	base := rows[untouched]
	idle, idleGaps := median(base.taken), median(base.gaps)
	each := func(n string) float64 { // of a tool, µs
		r := rows[n]
		return (median(r.taken) - idle) / median(r.taken) * median(r.each)
	}
	own := each("sliver")
	ratio := func(n string) float64 {
		if e := each(n); e > 0 && own > 0 {
			return e / own
		}
		return math.NaN()
	}
	for _, n := range names {
		r := rows[n]
		if n == untouched {
			fmt.Printf("| %s | | %s | (%s) | | | | |\n", n, percent(idleGaps), percent(idle))
			continue
		}
		fmt.Printf("| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", n, figure(median(r.rate), "%.3g"), percent(median(r.gaps)),
			percent(median(r.taken)-idle), figure(each(n), "%.3g"), figure(ratio(n), "%.3g"), figure(median(r.cpu), "%.4g"),
			figure(median(r.rss), "%.3g"))
	}
}

// untouched is the row of undisturbed runs.
const untouched = "no tool"

const explain = `*In gaps*: share of the thread's time in which its clock did not advance. *Taken*: the same without the time
it waited for a CPU by the scheduler's account, and without the share in the run with no tool. *Ratio*: taken
per sample, against sliver; without one, a tool took less than the noise of the machine. CPU and memory are of the
tool's whole run, with its start and end.`

func (b *bench) c() error {
	fmt.Printf("\n#### A C loop, 30 frames deep, 100 Hz\n\n")
	rows, names, err := b.turns(b.clock, false, "FILE")
	if err != nil {
		return err
	}
	table(rows, names)
	fmt.Println("\n" + explain)
	b.cRow, b.cIdle = rows["sliver"], median(rows[untouched].taken)
	return nil
}

func (b *bench) py() error {
	if b.python == "" {
		b.left = append(b.left, "the Python target (no python3)")
		return nil
	}
	fmt.Printf("\n#### A Python loop, 30 frames deep, 100 Hz\n\n")
	rows, names, err := b.turns(b.python, true, b.script, "FILE")
	if err != nil {
		return err
	}
	table(rows, names)
	return nil
}

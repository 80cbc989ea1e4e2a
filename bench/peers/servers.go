package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// spy is a tool at one rate.
type spy struct {
	name string // its package
	hz   int
	// watch runs the tool on a process for span, and calls count while the tool is attached. count
	// measures the process's work from the given time after its call until span after it.
	watch func(ctx context.Context, pid int, span time.Duration, count func(after time.Duration) error) (outcome, error)
}

func (s *spy) own() bool { return s.name == "sliver" }

// key identifies a tool at a rate.
type key struct {
	name string
	hz   int
}

func (s *spy) key() key { return key{s.name, s.hz} }

// lead is the time that a tool may take to attach; in it nothing is counted.
func lead(span time.Duration) time.Duration { return min(span/2, max(300*time.Millisecond, span/5)) }

// during watches with a command that attaches at its start and ends by itself.
func during(look looker) func(context.Context, int, time.Duration, func(time.Duration) error) (outcome, error) {
	return func(ctx context.Context, pid int, span time.Duration, count func(time.Duration) error) (outcome, error) {
		type end struct {
			o   outcome
			err error
		}
		ended := make(chan end, 1)
		go func() {
			o, err := look(ctx, pid, span)
			ended <- end{o, err}
		}()
		err := count(lead(span))
		e := <-ended
		return e.o, errors.Join(e.err, err)
	}
}

// byAsync watches CPU time with async-profiler, which jcmd loads into the program.
func byAsync(library, dir string, hz int) func(context.Context, int, time.Duration, func(time.Duration) error) (outcome, error) {
	return func(ctx context.Context, pid int, _ time.Duration, count func(time.Duration) error) (o outcome, err error) {
		file := filepath.Join(dir, "async.folded")
		agent := func(options string) error { // unquoted, what follows "=" is cut off
			out, _, err := ran(ctx, "jcmd", strconv.Itoa(pid), "JVMTI.agent_load", library, `"`+options+`"`)
			if err == nil && !strings.Contains(out, "return code: 0") {
				err = fmt.Errorf("async-profiler: %.300s", out)
			}
			return err
		}
		if err := agent(fmt.Sprintf("start,event=cpu,interval=%dus", 1e6/hz)); err != nil {
			return o, err
		}
		err = count(0) // jcmd has ended: it is attached
		if err := errors.Join(err, agent("stop,collapsed,file="+file)); err != nil {
			return o, err
		}
		text, err := os.ReadFile(file)
		o.samples = foldedSamples(string(text))
		return o, err
	}
}

// foldedSamples returns the sum of the counts of collapsed stacks.
func foldedSamples(text string) (n int) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		count, _ := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
		n += count
	}
	return n
}

// rates are those of the recordings, in Hz.
var rates = [...]int{100, 1000}

// spies returns the tools for programs of a language, by the name of its peer: sliver at all rates
// first, then those of the peers.
func (b *bench) spies(sliver, language string) (all []spy) {
	for _, hz := range rates {
		var flags []string // at 100 Hz as users start it
		if hz != 100 {
			flags = []string{"-i", (time.Second / time.Duration(hz)).String(), "--max-overhead", "0"}
		}
		all = append(all, spy{"sliver", hz, during(func(ctx context.Context, pid int, span time.Duration) (outcome, error) {
			return record(ctx, sliver, b.dir, pid, span, flags...)
		})})
	}
	for _, hz := range rates {
		if path := b.found["perf"]; path != "" {
			all = append(all, spy{"perf", hz, during(perfAt(path, b.dir, hz).look)})
		}
		switch path := b.found["py-spy"]; {
		case language == "py-spy" && path != "":
			all = append(all, spy{"py-spy", hz, during(func(ctx context.Context, pid int, span time.Duration) (outcome, error) {
				whole := (span + time.Second - 1).Truncate(time.Second) // it takes no other
				return pyspyAt(path, b.dir, hz).look(ctx, pid, whole)
			})})
		case language == "async-profiler" && b.load.async != "":
			all = append(all, spy{"async-profiler", hz, byAsync(b.load.async, b.dir, hz)})
		}
	}
	return all
}

// turnsOf returns the order of the tools in a round: each round starts with another one. No limit
// needs the peers at the lowest rate, so only one round in five has them.
func turnsOf(all []spy, round int) (turns []spy) {
	for i := range all {
		s := all[(i+round)%len(all)]
		if s.own() || s.hz != rates[0] || round%5 == 0 {
			turns = append(turns, s)
		}
	}
	return turns
}

// lossOf returns the share of a program's work that is lost, in %, against the mean of the runs
// with no tool right before and after.
func lossOf(before, with, after float64) float64 {
	return (1 - 2*with/(before+after)) * 100
}

// spreadOf returns half of the interquartile range of a series, in % of its median.
func spreadOf(v []float64) float64 {
	if len(v) < 2 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return (quantile(s, 0.75) - quantile(s, 0.25)) / 2 / median(s) * 100
}

// quantile interpolates between the values of a sorted series.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// costs are the measurements of one program.
type costs struct {
	alone   []float64         // its rates with no tool
	loss    map[key][]float64 // in %, one for each round
	samples map[key][]float64 // a second
}

// best returns the peer with the smallest median loss at a rate.
func (c *costs) best(hz int) (name string, loss float64) {
	loss = math.NaN()
	for k, v := range c.loss {
		if m := median(v); k.hz == hz && k.name != "sliver" && (name == "" || m < loss || m == loss && k.name < name) {
			name, loss = k.name, m
		}
	}
	return name, loss
}

// mostLoss is the limit at all rates, in %; fastest is that above the lowest, by the loss of the best
// peer.
const (
	mostLoss = 2
	fastest  = 1.3
)

// limitOf returns the limit of sliver's loss, in %. peer is NaN without a peer.
func limitOf(hz int, peer float64) float64 {
	if hz == rates[0] || math.IsNaN(peer) {
		return mostLoss
	}
	return max(mostLoss, fastest*peer)
}

// cost is one row of the table.
type cost struct {
	program      string
	hz           int
	loss, limit  float64 // %
	peer         string
	peerLoss     float64 // %
	spread, rate float64
}

// over reports whether the limit is missed by a loss that the machine's own variation does not explain.
func (c *cost) over() bool { return c.loss > c.limit && !(c.loss <= c.spread) }

// servers prints the table of what recordings cost servers, the worst first. It returns how many
// limits are missed; a program on which sliver fails counts as one.
func (b *bench) servers(sliver string) (missed int, err error) {
	// One client thread is enough to keep a server busy, and leaves it a CPU.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if b.load.async != "" && installed("jcmd").path == "" {
		b.load.async = ""
		b.left = append(b.left, "async-profiler (no jcmd)")
	} else if b.load.async == "" {
		b.left = append(b.left, "async-profiler (not there)")
	}
	var rows []cost
	programs, began := b.programs(), time.Now()
	for i, p := range programs {
		if why := p.missing(); why != "" {
			b.left = append(b.left, fmt.Sprintf("%s (%s)", p.name, why))
			continue
		}
		end := began.Add(timeFor(b.rounds, b.span) * time.Duration(i+1) / time.Duration(len(programs)))
		c, err := b.costsOf(&p, b.spies(sliver, p.spy), end)
		if b.ctx.Err() != nil {
			return missed, b.ctx.Err()
		}
		if err != nil {
			missed++
			b.left = append(b.left, fmt.Sprintf("%s (%s)", p.name, oneLine(err)))
			continue
		}
		for _, hz := range rates {
			own := key{"sliver", hz}
			r := cost{program: p.name, hz: hz, loss: median(c.loss[own]), spread: spreadOf(c.alone), rate: median(c.samples[own])}
			r.peer, r.peerLoss = c.best(hz)
			r.limit = limitOf(hz, r.peerLoss)
			rows = append(rows, r)
		}
	}
	return missed + printCosts(rows), nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// timeFor bounds the time of all programs: six minutes for five rounds of two seconds. In each round
// some 24 tools start and end.
func timeFor(rounds int, span time.Duration) time.Duration {
	return time.Duration(rounds) * 24 * (span + time.Second)
}

// costsOf measures the tools on one program, in at least one round. A round that would not be over
// at end is left out.
func (b *bench) costsOf(p *program, all []spy, end time.Time) (*costs, error) {
	t, err := p.start()
	if err != nil {
		return nil, err
	}
	defer t.end()
	if err := pause(b.ctx, time.Second); err != nil { // until its compilers are done
		return nil, err
	}
	alone := b.span / 6
	c := &costs{loss: map[key][]float64{}, samples: map[key][]float64{}}
	failed := map[string]bool{}
	var took time.Duration // of the last round
	for round := range b.rounds {
		began := time.Now()
		if round > 0 && began.Add(took).After(end) {
			b.left = append(b.left, fmt.Sprintf("%d of %d rounds of %s (no time)", b.rounds-round, b.rounds, p.name))
			break
		}
		before, err := t.rate(b.ctx, alone)
		if err != nil {
			return nil, err
		}
		c.alone = append(c.alone, before)
		for _, s := range turnsOf(all, round) {
			if failed[s.name] {
				continue
			}
			with, o, err := b.beside(t, &s)
			if err != nil && (s.own() || b.ctx.Err() != nil) {
				return nil, err
			}
			if err != nil {
				failed[s.name] = true
				b.left = append(b.left, fmt.Sprintf("%s on %s (%s)", s.name, p.name, oneLine(err)))
			}
			after, lost := t.rate(b.ctx, alone)
			if lost != nil {
				return nil, lost
			}
			if err == nil {
				c.loss[s.key()] = append(c.loss[s.key()], lossOf(before, with, after))
				c.samples[s.key()] = append(c.samples[s.key()], float64(o.samples)/b.span.Seconds())
			}
			c.alone = append(c.alone, after)
			before = after
		}
		took = time.Since(began)
	}
	return c, nil
}

// beside returns the rate of a program while a tool samples it.
func (b *bench) beside(t *busy, s *spy) (rate float64, o outcome, err error) {
	o, err = s.watch(b.ctx, t.pid(), b.span, func(after time.Duration) (err error) {
		if err = pause(b.ctx, after); err == nil {
			rate, err = t.rate(b.ctx, b.span-after)
		}
		return err
	})
	if err == nil && o.samples == 0 {
		err = errNothing
	}
	return rate, o, err
}

// printCosts prints the rows. It returns how many limits are missed.
func printCosts(rows []cost) (missed int) {
	slices.SortStableFunc(rows, func(x, y cost) int { return cmp.Compare(y.loss/y.limit, x.loss/x.limit) })
	fmt.Printf("\n#### What it costs servers, the worst first\n\n")
	fmt.Println("| program | rate | sliver's loss, % | limit, % | best peer | its loss, % | spread with no tool, % | sliver's samples a second |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		over := ""
		if r.over() {
			over = " **over**"
			missed++
		}
		fmt.Printf("| %s | %d Hz | %s%s | %s | %s | %s | %s | %s |\n", r.program, r.hz, figure(r.loss, "%.1f"), over, figure(r.limit, "%.1f"),
			r.peer, figure(r.peerLoss, "%.1f"), figure(r.spread, "%.1f"), figure(r.rate, "%.0f"))
	}
	fmt.Printf(`
*Loss*: of the work a second while a tool samples, against the mean of the runs with no tool right before and
after. *Spread*: half of the interquartile range of the runs with no tool; a loss below it means nothing. 100 Hz is
`+"`sliver record`"+` as it is, limit %d %%; 1 kHz has `+"`-i 1ms --max-overhead 0`"+`, limit %.1f times the loss of the best
peer, at least %d %%. Peers at 100 Hz are measured in one round of five. *Samples*: of all threads, also those that rest.
`, mostLoss, fastest, mostLoss)
	return missed
}

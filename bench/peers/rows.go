package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// answering is a target that prints a figure at each SIGUSR1: turns.c and herd.c.
type answering struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func (b *bench) answering(path string, args ...string) (*answering, error) {
	cmd := exec.CommandContext(b.ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	a := &answering{cmd, bufio.NewReader(out)}
	if _, err := a.out.ReadString('\n'); err != nil {
		a.end()
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return a, nil
}

func (a *answering) end() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// answer returns the figure since the last one.
func (a *answering) answer() (float64, error) {
	if err := a.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		return 0, err
	}
	line, err := a.out.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(line), 64)
}

// verdict is one row of the table of limits.
type verdict struct {
	what            string
	measured, limit float64
	peer            string // the best peer's name and figure, where one can do the same
	note            string
}

// seen records a process for a while, and returns the share of its time in which a function runs.
type seen func(pid int) (share float64, err error)

// shares compares the result of a tool for a program that alternates between work and sleep with
// the program's own account, in points.
func (b *bench) shares(turns, work, period string, look seen) (off float64, note string, err error) {
	var offs, seen, truths []float64
	for range b.rounds {
		a, err := b.answering(turns, work, period)
		if err != nil {
			return 0, "", err
		}
		var share, truth float64
		if _, err = a.answer(); err == nil {
			share, err = look(a.cmd.Process.Pid)
		}
		if err == nil {
			truth, err = a.answer()
		}
		a.end()
		if err != nil {
			return 0, "", err
		}
		offs = append(offs, max(share-truth, truth-share)*100)
		seen, truths = append(seen, share*100), append(truths, truth*100)
	}
	return median(offs), fmt.Sprintf("%.0f %% of %.0f %%", median(seen), median(truths)), nil
}

// bySliver is the share of function work in a recording of sliver at 1 kHz; of the CPU time if cpu.
func (b *bench) bySliver(sliver string, cpu bool) seen {
	return func(pid int) (float64, error) {
		file := filepath.Join(b.dir, "turns.sliver")
		folded := filepath.Join(b.dir, "turns.folded")
		if cpu {
			folded = filepath.Join(b.dir, "turns.cpu.folded")
		}
		_, _, err := ran(b.ctx, sliver, "record", "-p", strconv.Itoa(pid), "-d", b.span.String(), "-i", "1ms", "--max-overhead", "0", "-o", file)
		if err == nil {
			_, _, err = ran(b.ctx, sliver, "export", file, "-o", folded)
		}
		if err != nil {
			return 0, err
		}
		return shareOf(folded, ";work")
	}
}

// byPerf is the same of the CPU time in a recording of perf at 1 kHz.
func (b *bench) byPerf(perf string) seen {
	return func(pid int) (float64, error) {
		if _, err := perfAt(perf, b.dir, 1000).look(b.ctx, pid, b.span); err != nil {
			return 0, err
		}
		// What perf prints on standard error is about missing symbols of the kernel.
		text, err := exec.CommandContext(b.ctx, perf, "script", "-F", "ip,sym", "-i", filepath.Join(b.dir, "perf.data")).Output()
		if err != nil {
			return 0, fmt.Errorf("perf script: %w", err)
		}
		return shareOfScript(string(text), "work")
	}
}

// shareOfScript returns the share of the stacks in the output of perf script that have a function.
// Stacks are separated by empty lines; each line of one has an address and a name.
func shareOfScript(text, function string) (float64, error) {
	stacks, with := 0, 0
	for stack := range strings.SplitSeq(text, "\n\n") {
		if strings.TrimSpace(stack) == "" {
			continue
		}
		stacks++
		for line := range strings.Lines(stack) {
			if f := strings.Fields(line); len(f) > 1 && f[1] == function {
				with++
				break
			}
		}
	}
	if stacks == 0 {
		return 0, errNothing
	}
	return float64(with) / float64(stacks), nil
}

// shareOf returns the share of a folded file's time with a frame on its stacks.
func shareOf(file, frame string) (float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var has, all float64
	for line := range strings.Lines(string(text)) {
		at := strings.LastIndexByte(line, ' ')
		ns, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			return 0, err
		}
		all += ns
		if strings.HasSuffix(line[:at], frame) || strings.Contains(line[:at], frame+";") {
			has += ns
		}
	}
	if all == 0 {
		return 0, errNothing
	}
	return has / all, nil
}

// looker runs a tool on a process for a while, as tool.look does.
type looker func(ctx context.Context, pid int, span time.Duration) (outcome, error)

// burden is the cost of a tool: the time that a worker of the recorded program loses, in % of its time, and the tool's CPU
// time, in % of one CPU.
type burden struct{ loss, cpu float64 }

// crowd measures how much time each of some tools takes from a worker beside many threads, in turn, each between two runs
// with no tool. A tool that fails from the second on has no burden: NaN.
func (b *bench) crowd(herd, threads, period string, tools ...looker) ([]burden, error) {
	a, err := b.answering(herd, threads, period)
	if err != nil {
		return nil, err
	}
	defer a.end()
	lost := func(f func() error) (float64, error) {
		if _, err := a.answer(); err != nil {
			return 0, err
		}
		if err := f(); err != nil {
			return 0, err
		}
		return a.answer()
	}
	span := max(b.span, 3*time.Second) // the limit takes effect within it
	alone := func() (float64, error) {
		return lost(func() error { time.Sleep(span); return b.ctx.Err() })
	}
	before, err := alone()
	if err != nil {
		return nil, err
	}
	losses, cpus := make([][]float64, len(tools)), make([][]float64, len(tools))
	for range b.rounds {
		for i, look := range tools {
			var o outcome
			with, failed := lost(func() (err error) {
				o, err = look(b.ctx, a.cmd.Process.Pid, span)
				return err
			})
			if failed != nil && (i == 0 || b.ctx.Err() != nil) {
				return nil, failed
			}
			after, err := alone()
			if err != nil {
				return nil, err
			}
			was := (before + after) / 2
			before = after
			if failed != nil {
				continue
			}
			used := o.cpu
			if o.sum.CPU > 0 {
				used = time.Duration(o.sum.CPU) // while it samples
			}
			cpus[i] = append(cpus[i], float64(used)/float64(span)*100)
			losses[i] = append(losses[i], (with-was)*100)
		}
	}
	all := make([]burden, len(tools))
	for i := range tools {
		all[i] = burden{median(losses[i]), median(cpus[i])}
	}
	return all, nil
}

// overrun returns by how much a recording of many threads exceeds its duration, in ms, without
// writing the file.
func (b *bench) overrun(sliver, herd, threads string) (ms float64, note string, err error) {
	a, err := b.answering(herd, threads, "100")
	if err != nil {
		return 0, "", err
	}
	defer a.end()
	var over, left []float64
	for range b.rounds {
		o, err := record(b.ctx, sliver, b.dir, a.cmd.Process.Pid, 2*time.Second, "-i", "1ms", "--max-overhead", "0")
		if err != nil {
			return 0, "", err
		}
		over = append(over, float64(o.sum.Duration-o.sum.Asked)/1e6)
		left = append(left, float64(o.sum.Untaken))
	}
	return median(over), fmt.Sprintf("%.0f of %s threads not looked at", median(left), threads), nil
}

// limits prints the table of the cost and accuracy of a recording, the worst first.
func (b *bench) limits(sliver, turns, herd string) (missed int, err error) {
	var rows []verdict
	add := func(v verdict, err error) {
		if err != nil && b.ctx.Err() == nil {
			b.left = append(b.left, fmt.Sprintf("%s (%v)", v.what, err))
			return
		}
		rows = append(rows, v)
	}
	for _, x := range []struct{ name, work, period string }{
		{"0.2", "84", "200"}, {"0.4", "168", "400"}, {"1", "420", "1000"}, {"3", "1260", "3000"},
	} {
		off, note, err := b.shares(turns, x.work, x.period, b.bySliver(sliver, false))
		add(verdict{what: "share of time of a program with a period of " + x.name + " intervals at 1 kHz, points off", measured: off, limit: 4, note: note}, err)
	}
	perf := b.found["perf"]
	for _, x := range []struct{ work, rest, call string }{
		{"1", "-1", "long"}, {"3", "-1", "long"}, {"1", "0", "short"}, {"3", "0", "short"},
	} {
		v := verdict{what: "bursts of " + x.work + " µs between " + x.call + " system calls at 1 kHz, points off", limit: 3}
		v.measured, v.note, err = b.shares(turns, x.work, x.rest, b.bySliver(sliver, true))
		if perf != "" && err == nil {
			off, note, err := b.shares(turns, x.work, x.rest, b.byPerf(perf))
			if err != nil {
				b.left = append(b.left, fmt.Sprintf("perf beside bursts of %s µs (%v)", x.work, err))
			} else {
				v.peer = fmt.Sprintf("perf %.3g (%s)", off, note)
			}
		}
		add(v, err)
	}
	b.crowds(sliver, herd, perf, add)
	for _, threads := range []string{"1000", "4000"} {
		ms, note, err := b.overrun(sliver, herd, threads)
		add(verdict{what: threads + " threads at 1 kHz for 2 s, ms too long", measured: ms, limit: 200, note: note}, err)
	}
	slices.SortStableFunc(rows, func(x, y verdict) int { return cmp.Compare(y.measured/y.limit, x.measured/x.limit) })
	fmt.Printf("\n#### How true and how dear, the worst first\n\n| what | measured | limit | best peer | |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		over := ""
		if r.measured > r.limit {
			over = " **over**"
			missed++
		}
		fmt.Printf("| %s | %s%s | %s | %s | %s |\n", r.what, figure(r.measured, "%.3g"), over, figure(r.limit, "%.3g"), r.peer, r.note)
	}
	return missed, b.ctx.Err()
}

// crowds adds the rows of a worker beside many threads.
func (b *bench) crowds(sliver, herd, perf string, add func(verdict, error)) {
	own := func(ctx context.Context, pid int, span time.Duration) (outcome, error) {
		return record(ctx, sliver, b.dir, pid, span, "--max-overhead", "1%")
	}
	tools := []looker{own}
	if perf != "" {
		tools = append(tools, perfTool(perf, b.dir).look)
	}
	loss := verdict{what: "worker beside 1,000 threads that wake 10 times a second, % of its time lost at 100 Hz", limit: 2}
	cpu := verdict{what: "CPU of sliver there, % of one", limit: 10}
	all, err := b.crowd(herd, "1000", "100", tools...)
	if err == nil {
		loss.measured, cpu.measured = all[0].loss, all[0].cpu
		if len(all) > 1 && !math.IsNaN(all[1].loss) {
			loss.peer, cpu.peer = fmt.Sprintf("perf %.3g", all[1].loss), fmt.Sprintf("perf %.3g", all[1].cpu)
		}
	}
	add(loss, err)
	add(cpu, err)
	cpu = verdict{what: "CPU of sliver beside 4,000 threads that sleep, % of one", limit: 8}
	if all, err = b.crowd(herd, "4000", "0", own); err == nil {
		cpu.measured = all[0].cpu
	}
	add(cpu, err)
}

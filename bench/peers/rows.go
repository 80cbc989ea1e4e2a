package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
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
	note            string
}

// shares compares sliver's result for a program that alternates between work and sleep with the
// program's own account, in points. Without a period it compares CPU time.
func (b *bench) shares(sliver, turns string, work, period string) (off float64, note string, err error) {
	var offs, seen, truths []float64
	for range b.rounds {
		a, err := b.answering(turns, work, period)
		if err != nil {
			return 0, "", err
		}
		_, err = a.answer()
		file := filepath.Join(b.dir, "turns.sliver")
		folded := filepath.Join(b.dir, "turns.folded")
		if period == "0" {
			folded = filepath.Join(b.dir, "turns.cpu.folded")
		}
		if err == nil {
			_, _, err = ran(b.ctx, sliver, "record", "-p", strconv.Itoa(a.cmd.Process.Pid), "-d", b.span.String(), "-i", "1ms", "--max-overhead", "0", "-o", file)
		}
		var truth float64
		if err == nil {
			truth, err = a.answer()
		}
		a.end()
		if err == nil {
			_, _, err = ran(b.ctx, sliver, "export", file, "-o", folded)
		}
		var share float64
		if err == nil {
			share, err = shareOf(folded, ";work")
		}
		if err != nil {
			return 0, "", err
		}
		offs = append(offs, max(share-truth, truth-share)*100)
		seen, truths = append(seen, share*100), append(truths, truth*100)
	}
	return median(offs), fmt.Sprintf("%.0f %% of %.0f %%", median(seen), median(truths)), nil
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

// crowd measures how much a recording slows a worker beside many threads, alternating with no
// recording.
func (b *bench) crowd(sliver, herd, threads, period string) (loss, cpu float64, err error) {
	a, err := b.answering(herd, threads, period)
	if err != nil {
		return 0, 0, err
	}
	defer a.end()
	var losses, cpus []float64
	rate := func(f func() error) (float64, error) {
		if _, err := a.answer(); err != nil {
			return 0, err
		}
		if err := f(); err != nil {
			return 0, err
		}
		return a.answer()
	}
	span := max(b.span, 3*time.Second) // the limit takes effect within it
	for range b.rounds {
		alone, err := rate(func() error { time.Sleep(b.span); return b.ctx.Err() })
		if err != nil {
			return 0, 0, err
		}
		with, err := rate(func() error {
			o, err := record(b.ctx, sliver, b.dir, a.cmd.Process.Pid, span, "--max-overhead", "1%")
			cpus = append(cpus, float64(o.sum.CPU)/float64(span)*100)
			return err
		})
		if err != nil {
			return 0, 0, err
		}
		losses = append(losses, (1-with/alone)*100)
	}
	return median(losses), median(cpus), nil
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
	add := func(what string, measured, limit float64, note string, err error) {
		if err != nil && b.ctx.Err() == nil {
			b.left = append(b.left, fmt.Sprintf("%s (%v)", what, errors.Unwrap(fmt.Errorf("%w", err))))
			return
		}
		rows = append(rows, verdict{what, measured, limit, note})
	}
	for _, x := range []struct{ name, work, period string }{
		{"0.2", "84", "200"}, {"0.4", "168", "400"}, {"1", "420", "1000"}, {"3", "1260", "3000"},
	} {
		off, note, err := b.shares(sliver, turns, x.work, x.period)
		add("share of time of a program with a period of "+x.name+" intervals at 1 kHz, points off", off, 4, note, err)
	}
	for _, work := range []string{"1", "3"} {
		off, note, err := b.shares(sliver, turns, work, "0")
		add("bursts of "+work+" µs between system calls at 1 kHz, points off", off, 3, note, err)
	}
	loss, cpu, err := b.crowd(sliver, herd, "1000", "100")
	add("worker beside 1,000 threads that wake 10 times a second, % lost at 100 Hz", loss, 2, "", err)
	add("CPU of sliver there, % of one", cpu, 10, "", err)
	_, cpu, err = b.crowd(sliver, herd, "4000", "0")
	add("CPU of sliver beside 4,000 threads that sleep, % of one", cpu, 8, "", err)
	for _, threads := range []string{"1000", "4000"} {
		ms, note, err := b.overrun(sliver, herd, threads)
		add(threads+" threads at 1 kHz for 2 s, ms too long", ms, 200, note, err)
	}
	slices.SortStableFunc(rows, func(x, y verdict) int { return cmp.Compare(y.measured/y.limit, x.measured/x.limit) })
	fmt.Printf("\n#### How true and how dear, the worst first\n\n| what | measured | limit | |\n|---|---|---|---|\n")
	for _, r := range rows {
		over := ""
		if r.measured > r.limit {
			over = " **over**"
			missed++
		}
		fmt.Printf("| %s | %s%s | %s | %s |\n", r.what, figure(r.measured, "%.3g"), over, figure(r.limit, "%.3g"), r.note)
	}
	return missed, b.ctx.Err()
}

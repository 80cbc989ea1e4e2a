package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// redis measures a server's loss to each tool: replies per second under load, compared
// with those without a tool in the same round.
func (b *bench) redis() error {
	server, err1 := exec.LookPath("redis-server")
	load, err2 := exec.LookPath("redis-benchmark")
	if err1 != nil || err2 != nil {
		b.left = append(b.left, "redis (no redis-server, redis-benchmark)")
		return nil
	}
	sock := filepath.Join(b.dir, "redis.sock")
	p, err := b.start(server, "--port", "0", "--unixsocket", sock, "--save", "", "--dir", b.dir, "--logfile", filepath.Join(b.dir, "redis.log"))
	if err != nil {
		return err
	}
	defer p.end()
	answers := func() (float64, error) {
		out, err := exec.CommandContext(b.ctx, load, "-s", sock, "-t", "get", "-n", "20000", "-c", "8", "--csv").Output()
		if err != nil {
			return 0, fmt.Errorf("redis-benchmark: %w", err)
		}
		for l := range strings.Lines(string(out)) {
			if f := strings.Split(strings.TrimSpace(l), ","); len(f) > 1 && f[0] == `"GET"` {
				return strconv.ParseFloat(strings.Trim(f[1], `"`), 64)
			}
		}
		return 0, fmt.Errorf("redis-benchmark says %q", out)
	}
	for try := 0; ; try++ {
		if _, err := answers(); err == nil {
			break
		} else if try > 100 || b.ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	rates := map[string][]float64{}
	var names []string
	for round := range b.rounds {
		var tools []tool
		for _, t := range b.tools {
			if !t.python {
				tools = append(tools, t)
			}
		}
		for i := range tools {
			t := tools[(i+round)%len(tools)]
			if round == 0 {
				names = append(names, t.name)
			}
			if !slices.Contains(names, t.name) {
				continue
			}
			done := make(chan error, 1)
			go func() {
				o, err := t.look(b.ctx, p.pid(), b.span)
				if err == nil && o.samples == 0 && t.name != "nobody" {
					err = errNothing
				}
				done <- err
			}()
			var got []float64
			for running := true; running; {
				rate, err := answers()
				if err != nil {
					return err
				}
				select {
				case err = <-done:
					running = false
					if err != nil && t.name != "sliver" && b.ctx.Err() == nil {
						names = slices.DeleteFunc(names, func(n string) bool { return n == t.name })
						b.left = append(b.left, fmt.Sprintf("%s on redis (%v)", t.name, err))
					} else if err != nil {
						return err
					}
				default:
				}
				if running || len(got) == 0 { // the tool was active all the time, or for most of it
					got = append(got, rate)
				}
			}
			if len(got) > 0 {
				rates[t.name] = append(rates[t.name], median(got))
			}
		}
	}
	fmt.Printf("\n#### redis, GET by 8 clients, 100 Hz\n\n| tool | answers a second | compared with none |\n|---|---|---|\n")
	alone := median(rates["nobody"])
	for _, t := range b.tools {
		if r := rates[t.name]; slices.Contains(names, t.name) && len(r) > 0 {
			fmt.Printf("| %s | %s | %s |\n", t.name, figure(median(r), "%.0f"), figure(median(r)/alone, "%.3g"))
		}
	}
	return nil
}

// own measures sliver's guarantees about itself, with their limits.
func (b *bench) own(sliver string, short bool) (missed int, err error) {
	fmt.Printf("\n#### sliver against its limits\n\n| what | measured | limit |\n|---|---|---|\n")
	line := func(what string, v, limit float64, format string) {
		verdict := ""
		if v > limit {
			verdict = " **over**"
			missed++
		}
		fmt.Printf("| %s | %s%s | %s |\n", what, figure(v, format), verdict, figure(limit, format))
	}
	line("share of a running thread's time, 100 Hz, 30 frames, %", (median(b.cRow.taken)-b.cIdle)*100, 1, "%.3g")
	line("the same by sliver's own account, %", median(b.cRow.stops)*100, 1, "%.3g")
	line("CPU of sliver a sample while it samples, stop included, µs", median(b.cRow.self), 60, "%.3g")

	var peak []float64
	var first []float64
	for range b.rounds {
		p, _, err := b.watched(b.clock, "FILE", "200")
		if err != nil {
			return missed, err
		}
		o, err := record(b.ctx, sliver, b.dir, p.pid(), b.span, "-i", "10ms", "-t", "all")
		p.end()
		if err != nil {
			return missed, err
		}
		peak = append(peak, float64(o.rss)/1024)
	}
	const ring = 8192 * 16 // bytes
	line("memory at 200 threads, MiB (64 and the rings)", median(peak), 64+200*ring/float64(1<<20), "%.3g")

	if node, err := exec.LookPath("node"); err != nil {
		b.left = append(b.left, "attaching to node (not there)")
	} else {
		for range 2*b.rounds + 1 {
			ns, err := b.attach(sliver, node)
			if err != nil {
				return missed, err
			}
			first = append(first, float64(ns)/1e6)
		}
		line("attach to first sample, node, ms", median(first), 50, "%.3g")
	}
	return missed, b.pauses(sliver, short)
}

// attach records a computing node process, and returns the ns to the first sample.
func (b *bench) attach(sliver, node string) (int64, error) {
	cmd := exec.Command(node, "-e", "console.log('ready'); for (let x = 0;; x++) ;")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return 0, fmt.Errorf("node: %w", err)
	}
	o, err := record(b.ctx, sliver, b.dir, cmd.Process.Pid, 200*time.Millisecond)
	if err == nil && o.sum.First == 0 {
		err = fmt.Errorf("node: %w", errNothing)
	}
	return o.sum.First, err
}

// pauses prints the figures that the original published, of 10,000 stops.
func (b *bench) pauses(sliver string, short bool) error {
	p, _, err := b.watched(b.clock, "FILE")
	if err != nil {
		return err
	}
	defer p.end()
	span, every := 12*time.Second, "1ms"
	if short {
		span = b.span
	}
	o, err := record(b.ctx, sliver, b.dir, p.pid(), span, "-i", every, "--max-overhead", "0", "--engine", "stops")
	if err != nil {
		return err
	}
	ps := o.sum.Pause
	us := func(ns int64) string { return fmt.Sprintf("%.4g", float64(ns)/1e3) }
	fmt.Printf("\n#### Pauses\n\nOf the C loop, `sliver record -i %s --max-overhead 0 --engine stops -d %v --json`:\n\n", every, span)
	fmt.Printf("| stops | below 40 µs | mean, µs | p50 | p99 | p99.9 | worst of 10,000 | longest |\n|---|---|---|---|---|---|---|---|\n")
	fmt.Printf("| %d | %s | %s | %s | %s | %s | %s | %s |\n", o.sum.Stops, percent(ps.Under), us(ps.Mean), us(ps.P50), us(ps.P99), us(ps.P999),
		us(ps.Worst), us(ps.Max))
	return nil
}

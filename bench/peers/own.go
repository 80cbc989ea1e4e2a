package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
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
	r := redis{bench: b, pid: p.pid(), load: load, sock: sock, rates: map[string][]float64{}, failed: map[string]bool{}}
	if err := r.awaitReady(); err != nil {
		return err
	}
	var tools []tool
	for _, t := range b.tools {
		if !t.python {
			tools = append(tools, t)
		}
	}
	for round := range b.rounds {
		for i := range tools {
			if err := r.measure(tools[(i+round)%len(tools)]); err != nil {
				return err
			}
		}
	}
	r.print()
	return nil
}

// redis measures one server.
type redis struct {
	*bench
	pid        int
	load, sock string               // redis-benchmark, and the server's socket
	rates      map[string][]float64 // replies per second by tool: the median of each round
	failed     map[string]bool      // tools that do not work here
}

// answers returns how many replies per second the server gives under load.
func (r *redis) answers() (float64, error) {
	out, err := exec.CommandContext(r.ctx, r.load, "-s", r.sock, "-t", "get", "-n", "20000", "-c", "8", "--csv").Output()
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

// awaitReady waits for the server to answer.
func (r *redis) awaitReady() error {
	for try := 0; ; try++ {
		_, err := r.answers()
		if err == nil || try > 100 || r.ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// measure records the server's replies while a tool looks at it. A tool that fails is left out
// from then on; an error means that the measurement cannot go on.
func (r *redis) measure(t tool) error {
	if r.failed[t.name] {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		o, err := t.look(r.ctx, r.pid, r.span)
		if err == nil && o.samples == 0 && t.name != untouched {
			err = errNothing
		}
		done <- err
	}()
	var got []float64
	for running := true; running; {
		rate, err := r.answers()
		if err != nil {
			return err
		}
		select {
		case err := <-done:
			running = false
			if err != nil && (t.name == "sliver" || r.ctx.Err() != nil) {
				return err
			}
			if err != nil {
				r.failed[t.name] = true
				r.left = append(r.left, fmt.Sprintf("%s on redis (%v)", t.name, err))
			}
		default:
		}
		if running || len(got) == 0 { // the tool was active all the time, or for most of it
			got = append(got, rate)
		}
	}
	r.rates[t.name] = append(r.rates[t.name], median(got))
	return nil
}

// print writes the table.
func (r *redis) print() {
	fmt.Printf("\n#### redis, GET by 8 clients, 100 Hz\n\n| tool | answers a second | against no tool |\n|---|---|---|\n")
	alone := median(r.rates[untouched])
	for _, t := range r.tools {
		if rates := r.rates[t.name]; len(rates) > 0 && !r.failed[t.name] {
			fmt.Printf("| %s | %s | %s |\n", t.name, figure(median(rates), "%.0f"), figure(median(rates)/alone, "%.3g"))
		}
	}
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
	o, err := record(b.ctx, sliver, b.dir, p.pid(), span, "-i", every, "--max-overhead", "0", "--engine", "ptrace")
	if err != nil {
		return err
	}
	ps := o.sum.Pause
	us := func(ns int64) string { return fmt.Sprintf("%.4g", float64(ns)/1e3) }
	fmt.Printf("\n#### Pauses\n\nOf the C loop, `sliver record -i %s --max-overhead 0 --engine ptrace -d %v --json`:\n\n", every, span)
	fmt.Printf("| stops | below 40 µs | mean, µs | p50 | p99 | p99.9 | worst of 10,000 | longest |\n|---|---|---|---|---|---|---|---|\n")
	fmt.Printf("| %d | %s | %s | %s | %s | %s | %s | %s |\n", o.sum.Stops, percent(ps.Under), us(ps.Mean), us(ps.P50), us(ps.P99), us(ps.P999),
		us(ps.Worst), us(ps.Max))
	return nil
}

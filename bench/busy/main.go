// Command busy measures the cost of sampling threads that all run, in C and Java,
// compared with the shortest loop in C that makes the same stops.
//
//	go run ./bench/busy -sliver ./sliver
//	go run ./bench/busy -sliver ./before -sliver ./after     # two builds, in turn
//
// The cost of sliver is that of sampling: a long recording minus a short one, which
// removes start and end. It needs gcc, and javac for Java.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

type paths []string

func (p *paths) String() string     { return strings.Join(*p, ",") }
func (p *paths) Set(s string) error { *p = append(*p, s); return nil }

func main() {
	var slivers paths
	flag.Var(&slivers, "sliver", "the sliver program; may be given several times")
	java := flag.String("java", "java", "the java program")
	threads := flag.Int("threads", 10, "threads that run")
	interval := flag.Duration("i", 10*time.Millisecond, "interval")
	span := flag.Duration("span", 4*time.Second, "how long each measurement lasts")
	rounds := flag.Int("rounds", 3, "how often all take turns")
	flag.Parse()
	if len(slivers) == 0 {
		slivers = paths{"sliver"}
	}
	b := &bench{threads: *threads, interval: *interval, span: *span}
	if err := b.run(slivers, *java, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "busy:", err)
		os.Exit(1)
	}
}

type bench struct {
	dir      string
	threads  int
	interval time.Duration
	span     time.Duration
}

// cost is the result of one measurement.
type cost struct {
	cpu, time float64 // s
	samples   float64
	stops     float64
	whole     float64 // samples that reach the thread's start
}

func (c cost) share() float64 { return 100 * c.cpu / c.time }

func (b *bench) run(slivers []string, java string, rounds int) (err error) {
	if b.dir, err = os.MkdirTemp("", "busy"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	here := "bench/busy/testdata"
	for _, name := range []string{"busy", "stops"} {
		if out, err := exec.Command("gcc", "-O2", "-pthread", "-o", filepath.Join(b.dir, name), filepath.Join(here, name+".c")).CombinedOutput(); err != nil {
			return fmt.Errorf("gcc: %w: %s", err, out)
		}
	}
	type program struct {
		name string
		argv []string
	}
	programs := []program{{"C", []string{filepath.Join(b.dir, "busy")}}}
	if out, err := exec.Command("javac", "--release", "17", "-d", b.dir, "bench/clock/Threads.java").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "busy: no Java: %v %s\n", err, out)
	} else {
		programs = append(programs, program{"Java", []string{java, "-Xmx64m", "-cp", b.dir, "Threads", filepath.Join(b.dir, "rounds")}})
	}
	fmt.Printf("%d threads that run, on %d CPUs, every %v; medians of %d rounds of %v\n\n", b.threads, runtime.NumCPU(), b.interval, rounds, b.span)
	fmt.Println("| program | by | samples a second | stops a second | CPU, % of a core | CPU a sample, µs | stacks that are whole |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, p := range programs {
		all := make([][]cost, 1+len(slivers))
		for range rounds {
			if err := b.round(p.argv, slivers, all); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		for i, list := range all {
			slices.SortFunc(list, func(x, y cost) int {
				if x.share() < y.share() {
					return -1
				}
				return 1
			})
			c := list[len(list)/2]
			by, whole := "the C loop", ""
			if i > 0 {
				by, whole = "`"+slivers[i-1]+"`", fmt.Sprintf("%.2f %%", 100*c.whole/max(c.samples, 1))
			}
			fmt.Printf("| %s | %s | %.0f | %.0f | %.1f | %.0f | %s |\n", p.name, by, c.samples/c.time, c.stops/c.time, c.share(), 1e6*c.cpu/max(c.samples, 1), whole)
		}
	}
	return nil
}

// round starts the program and runs each measurement on it.
func (b *bench) round(argv, slivers []string, all [][]cost) error {
	cmd := exec.Command(argv[0], append(slices.Clone(argv[1:]), strconv.Itoa(b.threads))...)
	in, err := cmd.StdinPipe() // open until the end
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	time.Sleep(time.Second) // by then the JIT has compiled the hot code
	pid := cmd.Process.Pid
	c, err := b.loop(pid)
	if err != nil {
		return err
	}
	all[0] = append(all[0], c)
	for i, s := range slivers {
		short, err := b.record(s, pid, b.span/4)
		if err != nil {
			return err
		}
		long, err := b.record(s, pid, b.span/4+b.span)
		if err != nil {
			return err
		}
		all[i+1] = append(all[i+1], cost{long.cpu - short.cpu, b.span.Seconds(), long.samples - short.samples, long.stops - short.stops, long.whole - short.whole})
	}
	return nil
}

// loop runs the C loop on the threads.
func (b *bench) loop(pid int) (cost, error) {
	tids, err := tids(pid)
	if err != nil {
		return cost{}, err
	}
	args := append([]string{strconv.Itoa(int(b.span / b.interval)), strconv.Itoa(int(b.interval / time.Microsecond))}, tids...)
	out, err := exec.Command(filepath.Join(b.dir, "stops"), args...).Output()
	if err != nil {
		return cost{}, fmt.Errorf("the C loop: %w", err)
	}
	var x struct{ Stops, CPU, Time float64 }
	if err := json.Unmarshal(out, &x); err != nil {
		return cost{}, err
	}
	return cost{cpu: x.CPU / 1e9, time: x.Time / 1e9, samples: x.Stops, stops: x.Stops}, nil
}

// tids returns the threads that run; Java names them the same way.
func tids(pid int) (out []string, err error) {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if name, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(name), "busy-") {
			out = append(out, filepath.Base(filepath.Dir(f)))
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no thread is called busy-")
	}
	return out, nil
}

// record records the threads with sliver.
func (b *bench) record(sliver string, pid int, span time.Duration) (cost, error) {
	out, err := exec.Command(sliver, "record", "-p", strconv.Itoa(pid), "--threads", "busy-*", "-i", b.interval.String(), "--max-overhead", "0", "--engine", "ptrace", "-d", span.String(),
		"--json", "-q", "-o", filepath.Join(b.dir, "x.sliver")).Output()
	if err != nil {
		return cost{}, fmt.Errorf("sliver: %w", err)
	}
	var x struct {
		Samples   float64 `json:"samples"`
		Stops     float64 `json:"stops"`
		Truncated float64 `json:"truncated"`
		CPU       float64 `json:"self_cpu_ns"`
	}
	if err := json.Unmarshal(out, &x); err != nil {
		return cost{}, err
	}
	return cost{cpu: x.CPU / 1e9, time: span.Seconds(), samples: x.Samples, stops: x.Stops, whole: x.Samples - x.Truncated}, nil
}

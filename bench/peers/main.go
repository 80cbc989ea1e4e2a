// Peers runs sliver and other stack sampling tools on the same targets, in turn and in
// several rounds, and writes one table of medians. bench/run.sh builds the tools and runs
// it. Run only one at a time: two would measure each other.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// bench is one complete run.
type bench struct {
	ctx    context.Context
	dir    string // scratch
	clock  string // the C target
	turner string
	herd   string
	script string // the Python target
	python string
	rounds int
	span   time.Duration // of each measurement
	tools  []tool
	found  map[string]string // paths of tools, by name
	load   loads
	left   []string // tools that are not measured, with the reason
	cRow   *row     // of sliver on the C target
	cIdle  float64  // share of time lost there without any tool
}

func main() {
	var b bench
	sliver := flag.String("sliver", "", "the sliver program")
	flag.StringVar(&b.clock, "clock", "", "clock.c, compiled")
	flag.StringVar(&b.turner, "turns", "", "turns.c, compiled; none: its rows are left out")
	flag.StringVar(&b.herd, "herd", "", "herd.c, compiled")
	rowsOnly := flag.Bool("rows", false, "the tables of limits alone: how true, how dear, and the loss of servers")
	serversOnly := flag.Bool("servers", false, "the loss of servers alone")
	serve := flag.String("serve", "", "be the HTTP server that is measured, on this Unix socket")
	flag.StringVar(&b.load.node, "node", "", "serve.js; none: left out")
	flag.StringVar(&b.load.python, "loop", "", "load.py; none: left out")
	flag.StringVar(&b.load.java, "java", "", "folder of Threads.class; none: left out")
	flag.StringVar(&b.load.async, "async-profiler", "", "the library of async-profiler; none: left out")
	flag.StringVar(&b.script, "script", "", "clock.py")
	pyspy := flag.String("py-spy", "", "the py-spy program; none: looked for")
	samply := flag.String("samply", "", "the samply program; none: looked for")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds; each runs every tool on every target")
	flag.DurationVar(&b.span, "span", 3*time.Second, "how long each tool looks at each target")
	check := flag.Bool("check", false, "fail where a limit is missed")
	short := flag.Bool("short", false, "the C target alone, and what is sliver's own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b.ctx = ctx
	if *serve != "" {
		fmt.Fprintln(os.Stderr, "peers:", serveHTTP(*serve))
		os.Exit(1)
	}
	if *sliver == "" || b.clock == "" || flag.NArg() > 0 || b.rounds < 1 || b.span < 100*time.Millisecond {
		flag.Usage()
		os.Exit(2)
	}
	parts := b.everything
	switch {
	case *short:
		parts = b.brief
	case *rowsOnly:
		parts = b.rows
	case *serversOnly:
		parts = b.servers
	}
	missed, err := b.run(*sliver, *pyspy, *samply, parts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	if *check && missed > 0 {
		fmt.Fprintf(os.Stderr, "peers: %d limits are missed\n", missed)
		os.Exit(1)
	}
}

// run prints the tables of a part. It returns how many limits are missed.
func (b *bench) run(sliver, pyspy, samply string, part func(sliver string) (int, error)) (missed int, err error) {
	if b.dir, err = os.MkdirTemp("", "sliver-peers-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(b.dir)
	b.python, _ = exec.LookPath("python3")
	if real, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output(); err == nil {
		b.python = strings.TrimSpace(string(real)) // resolves a wrapper script
	}
	b.findTools(sliver, pyspy, samply)
	b.heading()
	if missed, err = part(sliver); err != nil {
		return missed, err
	}
	b.listLeft()
	return missed, b.ctx.Err()
}

// brief prints the C target, and the limits of sliver itself.
func (b *bench) brief(sliver string) (missed int, err error) {
	if err := b.c(); err != nil {
		return 0, fmt.Errorf("the C target: %w", err)
	}
	return b.own(sliver, true)
}

func (b *bench) everything(sliver string) (missed int, err error) {
	for _, t := range []struct {
		name string
		run  func() error
	}{{"C", b.c}, {"Python", b.py}, {"redis", b.redis}} {
		if err := t.run(); err != nil {
			return 0, fmt.Errorf("the %s target: %w", t.name, err)
		}
	}
	if missed, err = b.own(sliver, false); err != nil || b.turner == "" || b.herd == "" {
		return missed, err
	}
	more, err := b.rows(sliver)
	return missed + more, err
}

// rows prints the tables of limits of recordings.
func (b *bench) rows(sliver string) (missed int, err error) {
	if missed, err = b.limits(sliver, b.turner, b.herd); err != nil {
		return missed, err
	}
	more, err := b.servers(sliver)
	return missed + more, err
}

func (b *bench) listLeft() {
	if len(b.left) > 0 {
		fmt.Printf("\nLeft out: %s.\n", strings.Join(b.left, "; "))
	}
}

func (b *bench) heading() {
	kernel, _ := exec.Command("uname", "-sr").Output()
	load, _ := os.ReadFile("/proc/loadavg")
	cpus, _ := exec.Command("nproc").Output()
	fmt.Printf("%s, %s CPUs, load %s before; %d rounds of %v, medians. ", strings.TrimSpace(string(kernel)), strings.TrimSpace(string(cpus)),
		strings.Fields(string(load) + " ?")[0], b.rounds, b.span)
	var vs []string
	for _, t := range b.tools {
		if t.version != "" {
			vs = append(vs, t.version)
		}
	}
	fmt.Printf("%s.\n", strings.Join(vs, ", "))
}

// findTools lists the available tools, and records why others are missing.
func (b *bench) findTools(sliver, pyspy, samply string) {
	b.tools = []tool{alone(), sliverTool(sliver, b.dir)}
	b.found = map[string]string{}
	add := func(name, path string, make func(path, dir string) tool) {
		if path == "" {
			path, _ = exec.LookPath(name)
		}
		if path == "" {
			b.left = append(b.left, name+" (not there)")
			return
		}
		b.found[name] = path
		t := make(path, b.dir)
		t.version = versionOf(path, name)
		b.tools = append(b.tools, t)
	}
	add("perf", "", perfTool)
	add("py-spy", pyspy, pyspyTool)
	add("samply", samply, samplyTool)
	add("eu-stack", "", euStackTool)
	add("gdb", "", gdbTool)
}

// versionOf returns a program's name and version.
func versionOf(path, name string) string {
	out, err := exec.Command(path, "--version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	if err != nil || first == "" {
		return name
	}
	f := strings.Fields(strings.NewReplacer("(", "", ")", "").Replace(first))
	return name + " " + f[len(f)-1]
}

// process is a started target.
type process struct {
	cmd *exec.Cmd
	end func()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// start starts a target that ends when its standard input closes.
func (b *bench) start(path string, args ...string) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}}, nil
}

// watched starts a target that sums gaps, and waits for its first report.
func (b *bench) watched(path string, args ...string) (*process, *sums, error) {
	name := filepath.Join(b.dir, fmt.Sprintf("sums-%d", time.Now().UnixNano()))
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	for i, a := range args {
		if a == "FILE" {
			args[i] = name
		}
	}
	p, err := b.start(path, args...)
	if err != nil {
		return nil, nil, err
	}
	s := &sums{file: f, stat: fmt.Sprintf("/proc/%d/task/%d/schedstat", p.pid(), p.pid())}
	for range 500 {
		if s.read().lost > 0 {
			return p, s, nil
		}
		select {
		case <-b.ctx.Done():
			p.end()
			return nil, nil, b.ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	p.end()
	return nil, nil, fmt.Errorf("%s counts no gaps", path)
}

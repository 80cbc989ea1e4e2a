// Accuracy measures how far the CPU shares of sliver and of other profilers are from the programs' own
// accounts: the duty programs of testdata/targets, which alternate between work and rest. It prints one
// table, the least accurate tool first. bench/accuracy.sh builds the tools and runs it.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parts of a duty program's CPU time, by the names of its functions.
var parts = [...]string{"burn", "rest", "write"}

// shares are the shares of the parts, and of everything else.
type shares [len(parts) + 1]float64

// off returns the sum of absolute differences, in points of 200.
func (s *shares) off(truth *shares) (points float64) {
	for i := range s {
		points += 100 * math.Abs(s[i]-truth[i])
	}
	return points
}

// program is a duty program with its arguments.
type program struct {
	language string
	command  []string
}

// tool writes folded stacks of a process's CPU time to a file.
type tool struct {
	name      string
	languages string
	run       func(pid int, span time.Duration, out string) error
}

type config struct {
	sliver, pyspy, austin, async, samply string
	duty, python, java                   string
	rounds                               int
	span                                 time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.sliver, "sliver", "", "the sliver program")
	flag.StringVar(&c.pyspy, "py-spy", "", "the py-spy program; none: left out")
	flag.StringVar(&c.austin, "austin", "", "the austin program; none: left out")
	flag.StringVar(&c.async, "async-profiler", "", "the library of async-profiler; none: left out")
	flag.StringVar(&c.samply, "samply", "", "the samply program; none: left out")
	flag.StringVar(&c.duty, "duty", "", "duty.c, compiled")
	flag.StringVar(&c.python, "python", "", "duty.py")
	flag.StringVar(&c.java, "java", "", "folder of Duty.class; none: left out")
	flag.IntVar(&c.rounds, "rounds", 3, "rounds; each runs every tool on every program")
	flag.DurationVar(&c.span, "span", 10*time.Second, "how long each tool looks")
	servers := flag.Bool("servers", false, "compare with perf on Redis, nginx and PostgreSQL instead")
	flag.Parse()
	if c.sliver == "" || c.duty == "" || flag.NArg() > 0 || c.rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	measure := c.measure
	if *servers {
		measure = c.servers
	}
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func (c *config) programs() (out []program) {
	for _, d := range [][]string{{"nanosleep", "200", "200"}, {"nanosleep", "1000", "4000"}, {"pipe", "500", "9500"},
		{"futex", "9000", "1000"}, {"cond", "1000", "1000", "1000"}, {"nanosleep", "5000", "45000"}} {
		args := []string{c.duty, d[0], d[1], d[2], c.life()}
		out = append(out, program{"C", append(args, d[3:]...)})
	}
	for _, d := range [][]string{{"1000", "4000"}, {"5000", "5000"}} {
		if c.python != "" {
			out = append(out, program{"Python", []string{"python3", c.python, d[0], d[1], c.life()}})
		}
		if c.java != "" {
			out = append(out, program{"Java", []string{"java", "-cp", c.java, "Duty", d[0], d[1], c.life()}})
		}
	}
	return out
}

// life returns a program's run time in seconds: longer than a tool examines it.
func (c *config) life() string { return fmt.Sprint((c.span + 3*time.Second).Seconds()) }

func (c *config) tools() []tool {
	sliver := func(interval string) func(int, time.Duration, string) error {
		return func(pid int, span time.Duration, out string) error {
			return execute(c.sliver, "record", "-p", strconv.Itoa(pid), "-t", "main", "-i", interval, "-d", span.String(), "-o", out+".cpu.folded")
		}
	}
	spy := func(rate string) func(int, time.Duration, string) error {
		return func(pid int, span time.Duration, out string) error {
			return execute(c.pyspy, "record", "-p", strconv.Itoa(pid), "-r", rate, "-d", strconv.Itoa(int(span.Seconds())), "-f", "raw", "-o", out+".cpu.folded")
		}
	}
	tools := []tool{{"sliver 10 ms", "C Python Java", sliver("10ms")}, {"sliver 1 ms", "C Python Java", sliver("1ms")}}
	if _, err := exec.LookPath("perf"); err == nil {
		tools = append(tools, tool{"perf -F 999, DWARF", "C", byPerf})
	}
	if c.samply != "" {
		tools = append(tools, tool{"samply -r 1000", "C", c.bySamply})
	}
	if c.pyspy != "" {
		tools = append(tools, tool{"py-spy 100 Hz", "Python", spy("100")}, tool{"py-spy 1 kHz", "Python", spy("1000")})
	}
	if c.austin != "" {
		tools = append(tools, tool{"austin 1 ms, CPU", "Python", func(pid int, span time.Duration, out string) error {
			return execute(c.austin, "-s", "-i", "1000", "-x", strconv.Itoa(int(span.Seconds())), "-o", out+".cpu.folded", "-p", strconv.Itoa(pid))
		}})
	}
	if c.async != "" {
		for _, event := range []string{"cpu", "wall"} {
			tools = append(tools, tool{"async-profiler " + event + " 1 ms", "Java", func(pid int, span time.Duration, out string) error {
				return c.byAsync(event, pid, span, out+".cpu.folded")
			}})
		}
	}
	return tools
}

// measure runs all tools on all programs, in turn.
func (c *config) measure() error {
	dir, err := os.MkdirTemp("", "sliver-accuracy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	type key struct{ tool, language string }
	off := map[key][]float64{}
	for range c.rounds {
		for _, p := range c.programs() {
			for _, t := range c.tools() {
				if !strings.Contains(t.languages, p.language) {
					continue
				}
				points, err := c.one(&p, &t, filepath.Join(dir, "out"))
				if err != nil { // one failure must not lose an hour of other results
					fmt.Fprintf(os.Stderr, "%s on %s is left out: %v\n", t.name, strings.Join(p.command[1:], " "), err)
					continue
				}
				fmt.Fprintf(os.Stderr, "%-28s %-40s %6.1f points off\n", t.name, strings.Join(p.command[1:], " "), points)
				off[key{t.name, p.language}] = append(off[key{t.name, p.language}], points)
			}
		}
	}
	type row struct {
		tool  string
		most  float64 // of the medians
		cells []string
	}
	languages := []string{"C", "Python", "Java"}
	var rows []row
	for _, t := range c.tools() {
		r := row{tool: t.name}
		for _, l := range languages {
			points := off[key{t.name, l}]
			if len(points) == 0 {
				r.cells = append(r.cells, "")
				continue
			}
			slices.Sort(points)
			median := points[len(points)/2]
			r.most = max(r.most, median)
			r.cells = append(r.cells, fmt.Sprintf("%.0f (%.0f)", median, points[len(points)-1]))
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(a.tool, b.tool)) })
	fmt.Printf("| tool | %s |\n|---|---|---|---|\n", strings.Join(languages, " | "))
	for _, r := range rows {
		fmt.Printf("| %s | %s |\n", r.tool, strings.Join(r.cells, " | "))
	}
	return nil
}

// one runs one tool on one program.
func (c *config) one(p *program, t *tool, out string) (points float64, err error) {
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
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
	lines := bufio.NewScanner(pipe)
	if !lines.Scan() {
		return 0, errors.New("the program is not ready")
	}
	file := out + ".cpu.folded"
	_ = os.Remove(file)
	if err := t.run(cmd.Process.Pid, c.span, out); err != nil {
		return 0, err
	}
	got, err := folded(file)
	if err != nil {
		return 0, err
	}
	var truth shares
	for lines.Scan() {
		var ns [len(parts)]float64
		if n, _ := fmt.Sscanf(lines.Text(), "truth burn %f rest %f write %f", &ns[0], &ns[1], &ns[2]); n == len(parts) {
			for i := range ns {
				truth[i] = ns[i] / (ns[0] + ns[1] + ns[2])
			}
			return got.off(&truth), nil
		}
	}
	return 0, errors.New("the program printed no truth")
}

// folded reads the shares of a file of folded stacks.
func folded(file string) (s shares, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	sum := 0.
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ') // names have spaces, too
		stack := line[:max(i, 0)]
		n, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil || n == 0 {
			continue
		}
		at := -1
		for frame := range strings.SplitSeq(stack, ";") {
			for i, part := range parts {
				if at < 0 && is(frame, part) {
					at = i
				}
			}
		}
		if at < 0 {
			if !strings.Contains(stack, "main") { // another thread
				continue
			}
			at = len(parts)
		}
		s[at] += n
		sum += n
	}
	if sum == 0 {
		return s, fmt.Errorf("%s: no samples", file)
	}
	for i := range s {
		s[i] /= sum
	}
	return s, nil
}

// is reports whether a frame, in the format of any of the tools, belongs to the function.
func is(frame, function string) bool {
	name, _, _ := strings.Cut(frame, " ")
	if parts := strings.Split(frame, ":"); len(parts) >= 2 && strings.HasSuffix(parts[0], ".py") {
		name = parts[1] // austin
	}
	name = name[strings.LastIndexAny(name, "./:")+1:]
	name, _, _ = strings.Cut(name, "_[") // async-profiler's kinds of frames
	name, _, _ = strings.Cut(name, "+")
	return name == function || function == "write" && name == "writes"
}

func execute(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

func byPerf(pid int, span time.Duration, out string) error {
	data := out + ".perf"
	if err := execute("perf", "record", "-q", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf", "-t", strconv.Itoa(pid), "-o", data, "--", "sleep", fmt.Sprint(span.Seconds())); err != nil {
		return err
	}
	text, err := exec.Command("perf", "script", "-i", data, "-F", "comm,ip,sym").Output()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	var stack []string
	end := func() {
		if len(stack) > 0 {
			slices.Reverse(stack)
			fmt.Fprintf(&b, "main;%s 1\n", strings.Join(stack, ";"))
		}
		stack = nil
	}
	for line := range strings.Lines(string(text)) {
		switch fields := strings.Fields(line); {
		case len(fields) == 0:
			end()
		case len(fields) > 1 && (line[0] == ' ' || line[0] == '\t'):
			stack = append(stack, fields[1])
		}
	}
	end()
	return os.WriteFile(out+".cpu.folded", b.Bytes(), 0o600)
}

// byAsync loads async-profiler into a JVM with jcmd.
func (c *config) byAsync(event string, pid int, span time.Duration, file string) error {
	load := func(options string) error {
		return execute("jcmd", strconv.Itoa(pid), "JVMTI.agent_load", c.async, `"`+options+`"`) // unquoted, what follows "=" is cut off
	}
	if err := load("start,event=" + event + ",interval=1ms"); err != nil {
		return err
	}
	time.Sleep(span)
	return load("stop,collapsed,file=" + file)
}

// Command runtimes compares sliver with the profilers of Python, Node and Java on the same
// programs, in turn: how much the program slows down, how many stacks reach their thread's
// start, and whether the top functions agree; then the time from attaching to sliver's first
// sample with a function of the program's language.
//
//	go run ./bench/runtimes -sliver ./sliver -py-spy PATH -async-profiler PATH python3 node java
//
// It prints two tables and skips missing tools and versions. The path of async-profiler is
// that of its library (in tools.profiler:async-profiler of Maven Central). The programs "calls"
// and "turns" are kernel/load.c, which spends its time in the kernel.
//
// With -with, which may be repeated, it compares recordings of sliver with these arguments:
//
//	go run ./bench/runtimes -sliver ./sliver -with '-i 1ms' -with '-i 1ms --engine ptrace' python3 calls
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// program is a program to sample.
type program struct {
	name string
	argv []string // without the counter's file
	perf []string // the same with perf support
	kind string   // of its frames, in sliver's terms
	warm time.Duration
}

// result is the result of one tool on one program.
type result struct {
	rate    float64 // rounds per second, corrected for waits for a CPU, relative to those before and after without a tool
	samples int
	whole   int // stacks that reach the thread's start
	self    map[string]int
}

// tool samples a process for a while.
type tool struct {
	name string
	does func(p *program) bool
	perf bool // the program must be started with perf support
	look func(p *program, pid int, span time.Duration, dir string, r *result) error
}

func main() {
	sliver := flag.String("sliver", "sliver", "the sliver program")
	spy := flag.String("py-spy", "py-spy", "the py-spy program")
	async := flag.String("async-profiler", "", "the library of async-profiler")
	span := flag.Duration("span", 4*time.Second, "how long each tool looks")
	rounds := flag.Int("rounds", 2, "how often all take turns")
	var with [][]string
	flag.Func("with", "arguments of sliver record that are compared, in place of tools", func(s string) error {
		with = append(with, strings.Fields(s))
		return nil
	})
	flag.Parse()
	if err := run(*sliver, *spy, *async, *span, *rounds, with, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "runtimes:", err)
		os.Exit(1)
	}
}

func run(sliver, spy, async string, span time.Duration, rounds int, with [][]string, paths []string) error {
	var programs []*program
	here, err := filepath.Abs("bench/runtimes")
	if err != nil {
		return err
	}
	built, err := os.MkdirTemp("", "runtimes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built)
	for _, path := range paths {
		if path == "calls" || path == "turns" {
			load := filepath.Join(built, "load")
			if out, err := exec.Command("gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", load, here+"/kernel/load.c").CombinedOutput(); err != nil {
				return fmt.Errorf("load.c: %w: %s", err, out)
			}
			argv := []string{load, path}
			programs = append(programs, &program{name: "C, " + path, kind: "c", warm: time.Second, argv: argv, perf: argv})
			continue
		}
		p := &program{name: filepath.Base(path), kind: "python", warm: time.Second, argv: []string{path, here + "/load.py"}, perf: []string{path, "-X", "perf", here + "/load.py"}}
		v, err := exec.Command(path, "--version").Output()
		if err != nil {
			fmt.Fprintf(os.Stderr, "runtimes: %s: %v\n", path, err)
			continue
		}
		p.name = strings.TrimSpace(string(v))
		if strings.HasPrefix(p.name, "v") {
			p.name, p.kind = "Node "+p.name[1:], "js"
			p.argv, p.perf = []string{path, here + "/load.js"}, []string{path, "--perf-basic-prof", here + "/load.js"}
		}
		if version, ok := strings.CutPrefix(p.name, "openjdk "); ok {
			version, _, _ = strings.Cut(version, " ")
			p.name, p.kind = "Java "+version, "java"
			p.argv = []string{path, "-Xmx256m", here + "/Load.java"}
			p.perf, p.warm = p.argv, 5*time.Second
		}
		programs = append(programs, p)
	}
	all := func(*program) bool { return true }
	python := func(p *program) bool { return p.kind == "python" }
	java := func(p *program) bool { return p.kind == "java" && async != "" }
	mapped := func(p *program) bool { return p.kind != "java" } // Java writes a perf map only with an agent
	tools := []tool{
		{"`sliver record`", all, false, func(p *program, pid int, span time.Duration, dir string, r *result) error {
			return bySliver(sliver, p.kind, pid, span, dir, r, nil)
		}},
		{"`py-spy record -r 100`", python, false, func(p *program, pid int, span time.Duration, dir string, r *result) error {
			return bySpy(spy, pid, span, dir, r)
		}},
		{"`py-spy record -r 100 --native`", python, false, func(p *program, pid int, span time.Duration, dir string, r *result) error {
			return bySpy(spy, pid, span, dir, r, "--native")
		}},
		{"`async-profiler -e wall`", java, false, func(p *program, pid int, span time.Duration, dir string, r *result) error {
			return byAsync(async, pid, span, dir, r)
		}},
		{"`perf record -F 100 -g`", mapped, true, byPerf},
	}
	if len(with) > 0 {
		tools = nil
	}
	for _, args := range with {
		tools = append(tools, tool{"`" + strings.Join(args, " ") + "`", all, false, func(p *program, pid int, span time.Duration, dir string, r *result) error {
			return bySliver(sliver, p.kind, pid, span, dir, r, args)
		}})
	}
	fmt.Println("| program | tool | rounds a second on a CPU, against nobody | samples | stacks that are whole | of sliver's top ten |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, p := range programs {
		var top []string
		for i := range tools {
			t := &tools[i]
			if !t.does(p) {
				continue
			}
			r, err := turns(p, t, span, rounds)
			if err != nil {
				fmt.Fprintf(os.Stderr, "runtimes: %s, %s: %v\n", p.name, t.name, err)
				continue
			}
			mine := r.top()
			if top == nil {
				top = mine
			}
			same := 0
			for _, f := range mine {
				if slices.Contains(top, f) {
					same++
				}
			}
			fmt.Printf("| %s | %s | %.3f | %d | %.2f %% | %d of %d |\n", p.name, t.name, r.rate, r.samples, 100*float64(r.whole)/float64(max(1, r.samples)), same, len(top))
		}
	}
	if len(with) > 0 {
		return nil
	}
	return attached(sliver, programs, 3*rounds+1)
}

// turns runs a tool several times, each between two periods without a tool.
func turns(p *program, t *tool, span time.Duration, rounds int) (*result, error) {
	dir, err := os.MkdirTemp("", "runtimes")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	counter := filepath.Join(dir, "rounds")
	argv := p.argv
	if t.perf {
		argv = p.perf
	}
	cmd := exec.Command(argv[0], append(slices.Clone(argv[1:]), counter)...)
	cmd.Stderr, cmd.Dir = os.Stderr, dir // Node 18 writes a log to its working folder
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.Remove(fmt.Sprintf("/tmp/perf-%d.map", cmd.Process.Pid))
	}()
	time.Sleep(p.warm) // by then the JIT has compiled the hot code
	pid := cmd.Process.Pid
	r := &result{self: map[string]int{}}
	var ratios []float64
	for range rounds {
		before := rate(pid, counter, span/2)
		done := make(chan error, 1)
		go func() { done <- t.look(p, pid, span, dir, r) }()
		time.Sleep(span / 4) // the tool has started
		during := rate(pid, counter, span/2)
		if err := <-done; err != nil {
			return nil, err
		}
		after := rate(pid, counter, span/2)
		ratios = append(ratios, 2*during/(before+after))
	}
	slices.Sort(ratios)
	r.rate = (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
	return r, nil
}

// rate returns the program's rounds per second, corrected for the time in which its thread
// waited for a CPU, as other programs use the CPUs too.
func rate(pid int, counter string, span time.Duration) float64 {
	was := accounts(pid)
	begin, from := time.Now(), count(counter)
	time.Sleep(span)
	rounds, took := count(counter)-from, time.Since(begin)
	var most, waited time.Duration
	for tid, now := range accounts(pid) {
		old, ok := was[tid]
		if ran := now.ran - old.ran; ok && ran > most {
			most, waited = ran, now.waited-old.waited
		}
	}
	return float64(rounds) / max(took-waited, took/100).Seconds()
}

// account is a thread's time on a CPU and waiting for one.
type account struct{ ran, waited time.Duration }

// accounts returns the accounts of a process's threads, by TID, without threads that end
// during the call.
func accounts(pid int) map[string]account {
	out := map[string]account{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range files {
		var a account
		if b, err := os.ReadFile(f); err == nil {
			if n, _ := fmt.Sscan(string(b), (*int64)(&a.ran), (*int64)(&a.waited)); n == 2 {
				out[filepath.Base(filepath.Dir(f))] = a
			}
		}
	}
	return out
}

func count(counter string) uint64 {
	b, err := os.ReadFile(counter)
	if err != nil || len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// top returns the ten most frequent leaf functions of the runtime.
func (r *result) top() []string {
	names := make([]string, 0, len(r.self))
	for n := range r.self {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if r.self[a] != r.self[b] {
			return r.self[b] - r.self[a]
		}
		return strings.Compare(a, b)
	})
	return names[:min(len(names), 10)]
}

// last returns the last part of a name, as some tools report only that.
func last(name string) string {
	name, _, _ = strings.Cut(name, " (")
	if i := strings.LastIndexByte(name, '.'); i >= 0 && !strings.HasSuffix(name, ">") {
		name = name[i+1:]
	}
	if i := strings.LastIndex(name, ".<"); i >= 0 {
		name = name[i+1:]
	}
	return name
}

func bySliver(path, kind string, pid int, span time.Duration, dir string, r *result, more []string) error {
	file, folded := filepath.Join(dir, "x.sliver"), filepath.Join(dir, "x.folded")
	out, err := exec.Command(path, append([]string{"record", "-p", strconv.Itoa(pid), "-d", span.String(), "--json", "-q", "-o", file}, more...)...).Output()
	if err != nil {
		return fmt.Errorf("sliver: %w: %s", err, stderrOf(err))
	}
	var sum struct{ Samples, Truncated int }
	if err := json.Unmarshal(out, &sum); err != nil {
		return err
	}
	r.samples += sum.Samples
	r.whole += sum.Samples - sum.Truncated
	args := []string{"export", file, "--on-cpu", "-o", folded}
	if kind != "c" {
		args = append(args, "--kinds", "no-native")
	}
	if kind != "java" { // Java's main thread is not the process's first
		args = append(args, "-t", "main")
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("sliver export: %w: %s", err, out)
	}
	return eachFolded(folded, func(stack []string, n int) {
		if f := stack[len(stack)-1]; !strings.HasPrefix(f, "[") {
			r.self[last(f)] += n / 1000
		}
	})
}

var ofPython = regexp.MustCompile(`\.py(:\d+)?\)$|^<`)

func bySpy(path string, pid int, span time.Duration, dir string, r *result, more ...string) error {
	file := filepath.Join(dir, "spy.txt")
	args := append([]string{"record", "-r", "100", "-d", strconv.Itoa(int(span.Seconds())), "-f", "raw", "-o", file, "-p", strconv.Itoa(pid)}, more...)
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("py-spy: %w: %s", err, out)
	}
	return eachFolded(file, func(stack []string, n int) {
		r.samples += n
		if root := stack[0]; isStart(root) || len(more) == 0 && strings.HasPrefix(root, "<module>") {
			r.whole += n
		}
		for i := len(stack) - 1; i >= 0; i-- {
			if ofPython.MatchString(stack[i]) {
				r.self[last(stack[i])] += n
				break
			}
		}
	})
}

// eachFolded yields the stacks of a folded file, outermost frame first.
func eachFolded(file string, each func(stack []string, n int)) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			continue
		}
		if n, err := strconv.Atoi(line[i+1:]); err == nil {
			each(strings.Split(line[:i], ";"), n)
		}
	}
	return nil
}

var perfFrame = regexp.MustCompile(`^\s+[0-9a-f]+ (.*) \([^()]*\)$`)

func byPerf(_ *program, pid int, span time.Duration, dir string, r *result) error {
	data := filepath.Join(dir, "perf.data")
	if out, err := exec.Command("perf", "record", "-F", "100", "-g", "-p", strconv.Itoa(pid), "-o", data, "--", "sleep", strconv.FormatFloat(span.Seconds(), 'f', -1, 64)).CombinedOutput(); err != nil {
		return fmt.Errorf("perf: %w: %s", err, out)
	}
	out, err := exec.Command("perf", "script", "-i", data, "-F", "ip,sym,dso").Output()
	if err != nil {
		return fmt.Errorf("perf script: %w: %s", err, stderrOf(err))
	}
	for sample := range bytes.SplitSeq(out, []byte("\n\n")) {
		root, leaf := "", ""
		for line := range strings.Lines(string(sample)) {
			m := perfFrame.FindStringSubmatch(strings.TrimRight(line, "\n"))
			if m == nil {
				continue
			}
			root = m[1]
			if leaf == "" {
				leaf = managed(m[1])
			}
		}
		if root == "" {
			continue
		}
		r.samples++
		if isStart(root) {
			r.whole++
		}
		if leaf != "" {
			r.self[last(leaf)]++
		}
	}
	return nil
}

// isStart reports whether a function is the start of a thread, or the first that the C library
// calls.
func isStart(name string) bool {
	return strings.HasPrefix(name, "_start") || strings.HasPrefix(name, "__libc_start") || strings.Contains(name, "clone") ||
		strings.HasSuffix(name, "(libc.so.6)") // py-spy has no name for it
}

// managed returns the function of a perf map entry; "": none.
func managed(sym string) string {
	if name, ok := strings.CutPrefix(sym, "py::"); ok {
		name, _, _ = strings.Cut(name, ":")
		return name
	}
	for _, kind := range []string{"JS:", "LazyCompile:", "Function:"} {
		if name, ok := strings.CutPrefix(sym, kind); ok {
			name, _, _ = strings.Cut(strings.TrimLeft(name, "*~^+"), " ")
			return name
		}
	}
	return ""
}

func stderrOf(err error) string {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return string(e.Stderr)
	}
	return ""
}

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a server program under load from this machine.
type server struct {
	name  string
	needs []string // programs; without one the server is left out
	// start starts the server with its files in dir, and its load. It returns the process to look at.
	start func(dir string) (pid int, stop func(), err error)
}

// servers compares the shares of CPU time of each server's functions with those of perf, which
// looks at the same time. A function is the innermost one outside of the kernel.
func (c *config) servers() error {
	fmt.Println("| server | function | perf, % | sliver, % |\n|---|---|---|---|")
	for _, s := range []server{
		{"redis", []string{"redis-server", "redis-cli", "redis-benchmark"}, startRedis},
		{"nginx", []string{"nginx", "wrk"}, startNginx},
		{"PostgreSQL", []string{"initdb", "postgres", "pgbench"}, startPostgres},
	} {
		if i := slices.IndexFunc(s.needs, func(n string) bool { return find(n) == "" }); i >= 0 {
			fmt.Fprintf(os.Stderr, "%s is left out: there is no %s\n", s.name, s.needs[i])
			continue
		}
		if err := c.compare(&s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (c *config) compare(s *server) error {
	dir, err := os.MkdirTemp("", "sliver-servers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil { // PostgreSQL runs as another user
		return err
	}
	pid, stop, err := s.start(dir)
	if err != nil {
		return err
	}
	defer stop()
	data, out := filepath.Join(dir, "perf.data"), filepath.Join(dir, "out.cpu.folded")
	perf := exec.Command("perf", "record", "-q", "-e", "cpu-clock", "-F", "4999", "-g", "-t", strconv.Itoa(pid), "-o", data, "--", "sleep", fmt.Sprint(c.span.Seconds()))
	if err := perf.Start(); err != nil {
		return err
	}
	err = execute(c.sliver, "record", "-p", strconv.Itoa(pid), "-t", strconv.Itoa(pid), "-i", "10ms", "-d", c.span.String(), "-o", out)
	if err := errors.Join(err, perf.Wait()); err != nil {
		return err
	}
	want, err := byLeafOfPerf(data)
	if err != nil {
		return err
	}
	got, err := byLeaf(out)
	if err != nil {
		return err
	}
	names := slices.SortedFunc(maps.Keys(want), func(a, b string) int { return cmp.Compare(want[b], want[a]) })
	worst := 0.
	for _, n := range names[:min(5, len(names))] {
		fmt.Printf("| %s | `%s` | %.1f | %.1f |\n", s.name, n, 100*want[n], 100*got[n])
		worst = max(worst, 100*max(want[n]-got[n], got[n]-want[n]))
	}
	fmt.Fprintf(os.Stderr, "%s: the first five are at most %.1f points off\n", s.name, worst)
	return nil
}

// byLeafOfPerf returns each function's share of the samples of a perf.data file.
func byLeafOfPerf(data string) (map[string]float64, error) {
	text, err := exec.Command("perf", "script", "-i", data, "-F", "ip,sym,dso").Output()
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	found, any := false, false
	end := func() {
		if any && !found {
			sums["[kernel]"]++ // the kernel's own work for the thread, such as its beginning
		}
		found, any = false, false
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 {
			end()
			continue
		}
		if any = true; found || len(f[0]) == 16 && strings.HasPrefix(f[0], "ffff") || strings.Contains(line, "[kernel") {
			continue
		}
		found = true
		module := filepath.Base(strings.Trim(f[len(f)-1], "()"))
		sums[label(strings.Join(f[1:len(f)-1], " "), module)]++
	}
	end()
	return part(sums), nil
}

// byLeaf returns each function's share of a file of folded stacks.
func byLeaf(file string) (map[string]float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		stack := line[:max(i, 0)]
		leaf := stack[strings.LastIndexByte(stack, ';')+1:]
		module := ""
		if m, _, ok := strings.Cut(leaf, "+0x"); ok { // a function without a name
			leaf, module = "", m
		}
		sums[label(leaf, module)] += n
	}
	return part(sums), nil
}

// label is one name for what the tools name differently: the aliases of a C library's function,
// and the functions of a program without symbols.
func label(symbol, module string) string {
	if symbol == "" || strings.HasPrefix(symbol, "[") || strings.HasPrefix(symbol, "0x") {
		return "in " + module
	}
	for again := true; again; {
		again = false
		for _, p := range []string{"__GI_", "__libc_", "_", "libc_"} {
			if rest, ok := strings.CutPrefix(symbol, p); ok && rest != "" {
				symbol, again = rest, true
			}
		}
	}
	symbol, _, _ = strings.Cut(symbol, "@")
	if name, _, ok := strings.Cut(symbol, "_avx"); ok {
		return name
	}
	return symbol
}

func part(sums map[string]float64) map[string]float64 {
	all := 0.
	for _, n := range sums {
		all += n
	}
	for k := range sums {
		sums[k] /= all
	}
	return sums
}

// find returns the path of a program, also of those of PostgreSQL, which Debian keeps off the path.
func find(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	if all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// group is a set of programs that end together.
type group []*exec.Cmd

func (g *group) start(who *syscall.Credential, name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(find(name), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: who}
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	*g = append(*g, cmd)
	return cmd, nil
}

func (g *group) stop() {
	for _, cmd := range slices.Backward(*g) {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, cmd := range slices.Backward(*g) {
		_ = cmd.Wait()
	}
}

// await repeats f until it succeeds, for 20 s.
func await(what string, f func() bool) error {
	for end := time.Now().Add(20 * time.Second); !f(); {
		if time.Now().After(end) {
			return errors.New(what)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func startRedis(dir string) (int, func(), error) {
	var g group
	sock := filepath.Join(dir, "redis.sock")
	cmd, err := g.start(nil, "redis-server", "--port", "0", "--unixsocket", sock, "--save", "", "--appendonly", "no", "--dir", dir)
	if err != nil {
		return 0, nil, err
	}
	if err := await("redis-server does not answer", func() bool { return execute("redis-cli", "-s", sock, "ping") == nil }); err != nil {
		g.stop()
		return 0, nil, err
	}
	if _, err := g.start(nil, "redis-benchmark", "-s", sock, "-q", "-l", "-t", "set,get", "-c", "8"); err != nil {
		g.stop()
		return 0, nil, err
	}
	return cmd.Process.Pid, g.stop, nil
}

func startNginx(dir string) (int, func(), error) {
	var g group
	const port = "18473"
	conf := fmt.Sprintf("daemon off; worker_processes 1; pid %[1]s/pid; error_log stderr; events {}\nhttp { access_log %[1]s/log; server { listen 127.0.0.1:%[2]s; root %[1]s; } }\n", dir, port)
	page := filepath.Join(dir, "index.html")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600), os.WriteFile(page, bytes.Repeat([]byte("text "), 800), 0o644)); err != nil {
		return 0, nil, err
	}
	cmd, err := g.start(nil, "nginx", "-c", filepath.Join(dir, "conf"), "-p", dir)
	if err != nil {
		return 0, nil, err
	}
	worker := 0
	err = await("nginx has no worker", func() bool {
		worker = child(cmd.Process.Pid, "")
		return worker != 0
	})
	if err == nil {
		_, err = g.start(nil, "wrk", "-c", "8", "-t", "1", "-d", "600s", "http://127.0.0.1:"+port+"/index.html")
	}
	if err != nil {
		g.stop()
		return 0, nil, err
	}
	return worker, g.stop, nil
}

func startPostgres(dir string) (int, func(), error) {
	var g group
	var who *syscall.Credential
	if os.Geteuid() == 0 { // it refuses to run as root
		u, err := user.Lookup("nobody")
		if err != nil {
			return 0, nil, err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		who = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	data := filepath.Join(dir, "data")
	for _, args := range [][]string{{"initdb", "-D", data, "-U", "sliver", "--auth=trust", "-N"}} {
		cmd, err := g.start(who, args[0], args[1:]...)
		if err == nil {
			err = cmd.Wait()
		}
		if g = nil; err != nil {
			return 0, nil, fmt.Errorf("%s: %w", args[0], err)
		}
	}
	cmd, err := g.start(who, "postgres", "-D", data, "-k", dir, "-c", "listen_addresses=")
	if err != nil {
		return 0, nil, err
	}
	bench := []string{"-h", dir, "-U", "sliver", "postgres"}
	backend := 0
	err = await("PostgreSQL does not answer", func() bool {
		return execute(find("pgbench"), append([]string{"-i", "-q", "-s", "5"}, bench...)...) == nil
	})
	if err == nil {
		_, err = g.start(nil, "pgbench", append([]string{"-S", "-c", "1", "-T", "600"}, bench...)...)
	}
	if err == nil {
		err = await("pgbench has no connection", func() bool {
			backend = child(cmd.Process.Pid, "SELECT")
			return backend != 0
		})
	}
	if err != nil {
		g.stop()
		return 0, nil, err
	}
	return backend, g.stop, nil
}

// child returns a child of a process whose command line contains text; 0: it has none.
func child(pid int, text string) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
	if err != nil {
		return 0
	}
	for _, f := range strings.Fields(string(b)) {
		line, err := os.ReadFile("/proc/" + f + "/cmdline")
		if err == nil && strings.Contains(string(line), text) {
			n, _ := strconv.Atoi(f)
			return n
		}
	}
	return 0
}

// Hprof compares sliver hprof with cp, gzip, zstd, hprof-slurp and Shark on one heap
// dump, in turn and in several rounds, and writes one table of medians in Markdown.
// Ratios are reliable on a busy machine, times are not.
//
//	go run ./bench/hprof -sliver ./sliver -slurp hprof-slurp -shark DIR app.hprof
//
// DIR contains the jars of com.squareup.leakcanary:shark-hprof with its dependencies.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// contest is one program and its task.
type contest struct {
	name string
	args []string
	out  string // the file that it writes
	wall []time.Duration
	cpu  []time.Duration
	rss  int64 // largest, in KiB
	size int64 // of out
	err  error
}

func main() {
	sliver := flag.String("sliver", "", "the sliver program")
	slurp := flag.String("slurp", "", "the hprof-slurp program; none: left out")
	shark := flag.String("shark", "", "folder of Shark's jars; none: left out")
	rounds := flag.Int("rounds", 5, "rounds; each runs every program once")
	check := flag.Bool("check", false, "fail where a limit is missed")
	flag.Parse()
	if *sliver == "" || flag.NArg() != 1 || *rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*sliver, *slurp, *shark, flag.Arg(0), *rounds, *check); err != nil {
		fmt.Fprintln(os.Stderr, "hprof:", err)
		os.Exit(1)
	}
}

func run(sliver, slurp, shark, dump string, rounds int, check bool) error {
	info, err := os.Stat(dump)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(dump), ".bench-hprof-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	all := []*contest{
		{name: "cp", args: []string{"cp", dump, at("cp")}, out: at("cp")},
		{name: "sliver hprof info", args: []string{sliver, "hprof", "info", dump}},
		{name: "sliver hprof check", args: []string{sliver, "hprof", "check", dump}},
		{name: "sliver hprof strip --rule shark", args: []string{sliver, "hprof", "strip", dump, "--rule", "shark", "-o", at("shark")}, out: at("shark")},
		{name: "sliver hprof strip --rule koom", args: []string{sliver, "hprof", "strip", dump, "--rule", "koom", "-o", at("koom")}, out: at("koom")},
		{name: "sliver hprof strip --rule matrix", args: []string{sliver, "hprof", "strip", dump, "--rule", "matrix", "-o", at("matrix")}, out: at("matrix")},
		{name: "sliver hprof fill", args: []string{sliver, "hprof", "fill", at("koom"), "-o", at("fill")}, out: at("fill")},
		{name: "sliver hprof pack", args: []string{sliver, "hprof", "pack", dump, "-o", at("spack")}, out: at("spack")},
		{name: "sliver hprof unpack", args: []string{sliver, "hprof", "unpack", at("spack"), "-o", at("unpack")}, out: at("unpack")},
		{name: "pack, stripped by koom", args: []string{sliver, "hprof", "pack", at("koom"), "-o", at("kspack")}, out: at("kspack")},
		{name: "gzip -6", args: []string{"sh", "-c", "gzip -6 <" + dump + " >" + at("gz")}, out: at("gz")},
		{name: "gzip -6, stripped by koom", args: []string{"sh", "-c", "gzip -6 <" + at("koom") + " >" + at("kgz")}, out: at("kgz")},
		{name: "zstd -3", args: []string{"zstd", "-q", "-f", "-3", dump, "-o", at("zst")}, out: at("zst")},
	}
	if slurp != "" {
		all = append(all, &contest{name: "hprof-slurp", args: []string{slurp, "-t", "5", dump}})
	}
	if shark != "" {
		path := filepath.Join(shark, "*") + ":" + dir
		if b, err := exec.Command("javac", "-nowarn", "-cp", path, "-d", dir, "bench/hprof/SharkStrip.java").CombinedOutput(); err != nil {
			return fmt.Errorf("javac: %w: %s", err, b)
		}
		all = append(all, &contest{name: "Shark's strip", args: []string{"java", "-Xmx1g", "-cp", path, "SharkStrip", dump, at("sharks")}, out: at("sharks")})
	}
	for range rounds {
		for _, c := range all {
			c.measure()
		}
	}
	return report(all, info.Size(), check)
}

func (c *contest) measure() {
	if c.err != nil {
		return
	}
	cmd := exec.Command(c.args[0], c.args[1:]...)
	start := time.Now()
	if b, err := cmd.CombinedOutput(); err != nil {
		c.err = fmt.Errorf("%w: %.300s", err, b)
		return
	}
	c.wall = append(c.wall, time.Since(start))
	c.cpu = append(c.cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.rss = max(c.rss, u.Maxrss)
	}
	if info, err := os.Stat(c.out); err == nil {
		c.size = info.Size()
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// limit is the upper limit of one figure.
type limit struct {
	what       string
	value, max float64
}

func report(all []*contest, size int64, check bool) error {
	by := map[string]*contest{}
	fmt.Printf("| | median s | MB/s | CPU s | memory, MB | output, MB |\n|---|---|---|---|---|---|\n")
	for _, c := range all {
		by[c.name] = c
		if c.err != nil {
			fmt.Printf("| %s | %s | | | | |\n", c.name, strings.ReplaceAll(c.err.Error(), "\n", " "))
			continue
		}
		out := ""
		if c.size > 0 {
			out = fmt.Sprintf("%.1f", float64(c.size)/1e6)
		}
		w := median(c.wall).Seconds()
		fmt.Printf("| %s | %.2f | %.0f | %.2f | %.0f | %s |\n", c.name, w, float64(size)/1e6/w, median(c.cpu).Seconds(), float64(c.rss)*1024/1e6, out)
	}
	seconds := func(name string) float64 { return median(by[name].wall).Seconds() }
	ratio := func(a, b string) float64 { return float64(by[a].size) / float64(by[b].size) }
	for _, c := range all {
		if c.err != nil && !strings.HasPrefix(c.name, "Shark") && c.name != "hprof-slurp" && c.name != "zstd -3" {
			return fmt.Errorf("%s: %w", c.name, c.err)
		}
	}
	limits := []limit{
		{"info, s for 300 MB", seconds("sliver hprof info") * 300e6 / float64(size), 1},
		{"strip --rule shark, of cp", seconds("sliver hprof strip --rule shark") / seconds("cp"), 1 / 0.6},
		{"strip --rule koom, of cp", seconds("sliver hprof strip --rule koom") / seconds("cp"), 1 / 0.6},
		{"pack, of gzip -6", ratio("sliver hprof pack", "gzip -6"), 0.55},
		{"pack of KOOM's content, of gzip -6 of it", ratio("pack, stripped by koom", "gzip -6, stripped by koom"), 0.30},
	}
	for _, c := range all {
		if strings.Contains(strings.Join(c.args, " "), " hprof ") {
			limits = append(limits, limit{c.name + ", memory in MiB", float64(c.rss) / 1024, 64})
		}
	}
	fmt.Printf("\n| | is | at most |\n|---|---|---|\n")
	missed := 0
	for _, l := range limits {
		mark := ""
		if l.value > l.max {
			mark = " (missed)"
			missed++
		}
		fmt.Printf("| %s | %.2f%s | %.2f |\n", l.what, l.value, mark, l.max)
	}
	if check && missed > 0 {
		return fmt.Errorf("%d limits are missed", missed)
	}
	return nil
}

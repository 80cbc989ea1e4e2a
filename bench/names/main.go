// Names measures how long it takes to name the places of a recording: 20,000 addresses in
// a C++ program of 100 MB with full DWARF, without and with sliver's cache, compared with
// addr2line, llvm-symbolizer and perf script on the same addresses, one after another in
// each of several rounds. It reports how many names and lines agree, and prints Markdown.
// bench/names.sh runs it.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	sliver := flag.String("sliver", "", "the sliver program")
	program := flag.String("program", "", "a program with DWARF, linked to fixed addresses; none: one is made of testdata/unit.cc")
	source := flag.String("source", "bench/names/testdata/unit.cc", "of the program that is made")
	dir := flag.String("dir", "", "folder for what is made, kept; none: a temporary one")
	units := flag.Int("units", 19, "parts of the program, each 5 MB")
	addrs := flag.Int("addrs", 20000, "addresses")
	rounds := flag.Int("rounds", 3, "rounds; the table has the medians")
	patience := flag.Duration("patience", time.Minute, "how long another tool may take")
	check := flag.Bool("check", false, "fail where a limit is missed or a tool is faster")
	flag.Parse()
	if *sliver == "" || flag.NArg() > 0 || *units < 1 || *addrs < 1 || *rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	err := func() error {
		if *dir == "" {
			tmp, err := os.MkdirTemp("", "names-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(tmp)
			*dir = tmp
		}
		if *program == "" {
			var err error
			if *program, err = build(*dir, *source, *units, 8); err != nil {
				return err
			}
		}
		return run(os.Stdout, *sliver, *program, *dir, *addrs, *rounds, *patience, *check)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "names:", err)
		os.Exit(1)
	}
}

// row is one tool's line of the table.
type row struct {
	what  string
	took  []time.Duration // of each round
	cpu   []time.Duration // of each round
	same  string          // agreement with sliver's answers
	limit time.Duration   // 0: none
}

func median(of []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(of))
	return s[len(s)/2]
}

// run measures and writes the table.
func run(w io.Writer, sliver, program, dir string, n, rounds int, patience time.Duration, check bool) error {
	t, err := newTask(program, dir, n)
	if err != nil {
		return err
	}
	t.patience = patience
	ours, err := t.own()
	if err != nil {
		return err
	}
	cacheDir := filepath.Join(dir, "cache")
	rows := []*row{{what: "`sliver export`, nothing in its cache", limit: 2 * time.Second},
		{what: "`sliver export`, from its cache", limit: 200 * time.Millisecond}}
	export := func(r *row) error {
		cmd := exec.Command(sliver, "export", "--partial", t.recording, "-o", filepath.Join(dir, "out.folded"))
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheDir)
		start := time.Now()
		out, err := cmd.CombinedOutput()
		r.took = append(r.took, time.Since(start))
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
		}
		r.cpu = append(r.cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		return nil
	}
	tools := t.tools()
	for i := range tools {
		r := &row{what: "`" + strings.Join(tools[i].shown, " ") + "`"}
		rows = append(rows, r)
		answers, err := tools[i].run(true)
		if err != nil && err != errLate {
			return err
		}
		if r.same, err = t.compare(ours, answers, tools[i].whole, err == errLate); err != nil {
			return fmt.Errorf("%s: %w", r.what, err)
		}
	}
	for range rounds {
		if err := os.RemoveAll(cacheDir); err != nil {
			return err
		}
		for _, r := range rows[:2] {
			if err := export(r); err != nil {
				return err
			}
		}
		for i := range tools {
			if _, err := tools[i].run(false); err != nil && err != errLate {
				return err
			}
			r := rows[2+i]
			r.took, r.cpu = append(r.took, t.took), append(r.cpu, t.cpu)
		}
	}
	fi, err := os.Stat(program)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d addresses in a program of %d MB; medians of %d rounds.\n\n", len(t.addrs), fi.Size()/1e6, rounds)
	fmt.Fprintf(w, "| | seconds | against sliver | CPU seconds | answers |\n|---|---|---|---|---|\n")
	var missed []string
	cold := median(rows[0].took)
	for i, r := range rows {
		m := median(r.took)
		if r.limit > 0 && m > r.limit || i >= 2 && m < cold {
			missed = append(missed, r.what)
		}
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %.2f | %s |\n", r.what, m.Seconds(), m.Seconds()/cold.Seconds(), median(r.cpu).Seconds(), cmp.Or(r.same, "limit "+r.limit.String()))
	}
	if check && len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, ", "))
	}
	return nil
}

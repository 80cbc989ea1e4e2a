package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/session/procset"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

func threadsCommand() *command {
	var (
		window time.Duration
		asJSON bool
		set    setFlags
	)
	return &command{
		name: "threads", args: "[FLAGS] PID...", short: "list the threads of processes, with the numbers and names that --threads takes",
		pids: true,
		flags: func(fs *pflag.FlagSet) {
			fs.DurationVarP(&window, "duration", "d", 200*time.Millisecond, "measure the CPU share over this time")
			retire(fs, "for", "duration")
			set.register(fs, "list", "")
			fs.BoolVar(&asJSON, "json", false, "print JSON")
		},
		help: `
POS is the position by age (1 is main), which --threads takes as well as the
TID, the TID inside the target's container, and the name. The threads of several
processes are grouped by process.

Examples:
  sliver threads 1234
  sliver threads --name postgres
  sliver threads --children $(pidof -s nginx)
  sliver threads -d 2s $(pidof mysqld)`,
		run: func(_ context.Context, e *env, args []string) error {
			if window < 0 || window > time.Minute {
				return usagef("threads", "duration: %v is out of range; use 0s to 1m", window)
			}
			procs, err := set.open("threads", args, procset.DefaultMax)
			if err != nil {
				return err
			}
			defer func() {
				for _, p := range procs {
					p.Close()
				}
			}()
			return listThreads(e.stdout, procs, window, asJSON)
		},
	}
}

// threadRow is one line of the list; the JSON form is documented in
// docs/summary-json.md.
type threadRow struct {
	PID      int       `json:"pid"`
	Process  string    `json:"process"`
	TID      stack.TID `json:"tid"`
	NSTID    int       `json:"ns_tid"`
	Position int       `json:"position"`
	Name     string    `json:"name"`
	State    string    `json:"state"`
	CPUShare float64   `json:"cpu_share"` // of one core, over the window
	CPUNS    int64     `json:"cpu_ns"`
}

// listThreads prints the threads of processes, in the order of procs. A process that ends during
// the window has no rows; if all do, that is an error.
func listThreads(w io.Writer, procs []*target.Process, window time.Duration, asJSON bool) error {
	cpu := map[stack.TID]int64{}
	var failed error
	for _, p := range procs {
		before, err := session.Threads(p)
		if err != nil {
			failed = err
		}
		for _, t := range before {
			cpu[t.TID] = t.CPU
		}
	}
	from := time.Now()
	time.Sleep(window)
	rows := []threadRow{}
	for _, p := range procs {
		after, err := session.Threads(p)
		if err != nil {
			failed = err
			continue
		}
		took := max(time.Since(from), time.Microsecond)
		for i, t := range after {
			r := threadRow{PID: p.PID(), Process: p.Facts().Comm, TID: t.TID, NSTID: t.NSTID, Position: i + 1, Name: t.Name, State: t.State.String(), CPUNS: t.CPU}
			if c, ok := cpu[t.TID]; ok {
				r.CPUShare = float64(t.CPU-c) / float64(took)
			}
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 && failed != nil {
		return failed
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	wide := 16 // the kernel's names are shorter, those of Java and Python may be longer
	for i := range rows {
		wide = min(max(wide, utf8.RuneCountInString(rows[i].Name)), 40)
	}
	out := bufio.NewWriter(w) // keeps the first error
	heading := func() {
		fmt.Fprintf(out, "%8s %4s  %-*s %-15s %6s %10s\n", "TID", "POS", wide, "NAME", "STATE", "CPU", "CPU TIME")
	}
	if len(procs) == 1 {
		heading()
	}
	for i, r := range rows {
		if len(procs) > 1 && (i == 0 || rows[i-1].PID != r.PID) {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "%s (%d)\n", printable(r.Process), r.PID)
			heading()
		}
		fmt.Fprintf(out, "%8d %4d  %-*s %-15s %5.1f%% %9.2fs\n", r.TID, r.Position, wide, printable(r.Name), r.State, r.CPUShare*100,
			float64(r.CPUNS)/1e9)
	}
	return out.Flush()
}

// printable makes names of a target or a recording safe for the terminal: control
// characters (including C1), bytes that are not valid UTF-8, and characters that change
// the text direction become "?".
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// plainly calls write and passes its text on, with printable characters only. Names with a
// line feed start a line.
func plainly(w io.Writer, write func(io.Writer) error) error {
	var b strings.Builder
	err := write(&b)
	for line := range strings.Lines(b.String()) {
		text, end := strings.CutSuffix(line, "\n")
		text = printable(text)
		if end {
			text += "\n"
		}
		if _, e := io.WriteString(w, text); e != nil {
			return e
		}
	}
	return err
}

// pickProcess asks which of the user's processes to record, the busiest first.
func pickProcess(e *env) (int, error) {
	const most = 15
	own, err := target.Own(300 * time.Millisecond)
	if err != nil {
		return 0, err
	}
	sort.SliceStable(own, func(i, j int) bool { return own[i].CPU > own[j].CPU })
	if len(own) > most {
		own = own[:most]
	}
	if len(own) == 0 {
		return 0, usagef("record", neither)
	}
	width := 80
	if f, ok := e.stderr.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 40 {
			width = w
		}
	}
	fmt.Fprintf(e.stderr, "Which process? The busiest of yours:\n\n  %3s %8s %6s  %s\n", "#", "PID", "CPU", "COMMAND")
	for i, p := range own {
		line := fmt.Sprintf("  %3d %8d %5.1f%%  %s", i+1, p.PID, p.CPU*100, printable(p.Command))
		if r := []rune(line); len(r) >= width {
			line = string(r[:width-1])
		}
		fmt.Fprintln(e.stderr, line)
	}
	fmt.Fprintf(e.stderr, "\nNumber (1-%d), or nothing to leave: ", len(own))
	line, err := bufio.NewReader(e.stdin).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" || err != nil {
		return 0, usagef("record", neither)
	}
	n, err := strconv.Atoi(line)
	if err != nil || n < 1 || n > len(own) {
		return 0, usagef("record", "%q is none of 1 to %d", line, len(own))
	}
	return own[n-1].PID, nil
}

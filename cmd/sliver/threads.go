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
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

func threadsCommand() *command {
	var (
		window time.Duration
		asJSON bool
	)
	return &command{
		name: "threads", args: "[FLAGS] PID", short: "list a process's threads, with the numbers and names that --threads takes",
		pids: true,
		flags: func(fs *pflag.FlagSet) {
			fs.DurationVarP(&window, "duration", "d", 200*time.Millisecond, "measure the CPU share over this time")
			retire(fs, "for", "duration")
			fs.BoolVar(&asJSON, "json", false, "print JSON")
		},
		help: `
POS is the position by age (1 is main), which --threads takes as well as the
TID, the TID inside the target's container, and the name.

Examples:
  sliver threads 1234
  sliver threads -d 2s $(pidof mysqld)`,
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) != 1 {
				return usagef("threads", "give one process number")
			}
			pid, err := parsePID(args[0])
			if err != nil {
				return usagef("threads", "%v", err)
			}
			if window < 0 || window > time.Minute {
				return usagef("threads", "duration: %v is out of range; use 0s to 1m", window)
			}
			p, err := target.Open(pid)
			if err != nil {
				return explain(err)
			}
			defer p.Close()
			return listThreads(e.stdout, p, window, asJSON)
		},
	}
}

// threadRow is one line of the list; the JSON form is documented in
// docs/summary-json.md.
type threadRow struct {
	TID      stack.TID `json:"tid"`
	NSTID    int       `json:"ns_tid"`
	Position int       `json:"position"`
	Name     string    `json:"name"`
	State    string    `json:"state"`
	CPUShare float64   `json:"cpu_share"` // of one core, over the window
	CPUNS    int64     `json:"cpu_ns"`
}

func listThreads(w io.Writer, p *target.Process, window time.Duration, asJSON bool) error {
	before, err := session.Threads(p)
	if err != nil {
		return err
	}
	cpu := map[stack.TID]int64{}
	for _, t := range before {
		cpu[t.TID] = t.CPU
	}
	from := time.Now()
	time.Sleep(window)
	after, err := session.Threads(p)
	if err != nil {
		return err
	}
	took := max(time.Since(from), time.Microsecond)
	var rows []threadRow
	for i, t := range after {
		r := threadRow{TID: t.TID, NSTID: t.NSTID, Position: i + 1, Name: t.Name, State: t.State.String(), CPUNS: t.CPU}
		if c, ok := cpu[t.TID]; ok {
			r.CPUShare = float64(t.CPU-c) / float64(took)
		}
		rows = append(rows, r)
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
	fmt.Fprintf(out, "%8s %4s  %-*s %-15s %6s %10s\n", "TID", "POS", wide, "NAME", "STATE", "CPU", "CPU TIME")
	for _, r := range rows {
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

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/internal/outfile"
)

// maxTop limits the rows of a report's tables.
const maxTop = 10_000

func reportCommand() *command {
	var (
		asJSON, asHTML bool
		output         string
		top            int
		names          nameFlags
		part           choice
	)
	return &command{
		name: "report", files: true, args: "IN [--json | --html] [-o FILE]", short: "show in tables what threads did and waited for",
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&asJSON, "json", false, "write JSON (docs/report-json.md)")
			fs.BoolVar(&asHTML, "html", false, "write a self-contained HTML page")
			fs.StringVarP(&output, "output", "o", "-", "write to this file, in HTML or JSON if its name ends so; - is standard output")
			fs.IntVarP(&top, "rows", "n", report.DefaultTop, "rows of each table")
			retire(fs, "top", "rows")
			part.register(fs)
			names.register(fs, " (if the recording has no names)")
		},
		help: `
Tables of the waits: by lock with its holders, by call and file or peer, by
function; the longest single waits with their stacks; CPU and waiting time of
each thread; and the cost of sliver itself. A holder that is known only from the
timeline, not from the lock or the kernel, is marked "inferred".

Examples:
  sliver report run.sliver
  sliver report run.sliver --off-cpu --range 2s..3s -t 'worker-*'
  sliver report run.sliver -o report.html
  sliver report run.sliver --json | jq '.locks[] | [.name, .total_ns]'`,
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) != 1 {
				return usagef("report", "give one recording")
			}
			if asJSON && asHTML {
				return usagef("report", "--json and --html exclude each other")
			}
			if top < 1 || top > maxTop {
				return usagef("report", "rows: %d rows are not between 1 and %d", top, maxTop)
			}
			if output == "" {
				return usagef("report", "the output's name is empty")
			}
			if !asJSON && !asHTML {
				asJSON, asHTML = byName(output)
			}
			if err := part.parse("report"); err != nil {
				return err
			}
			rec, opts, file, err := openPart(e, "report", args[0], &names, &part)
			if err != nil {
				return err
			}
			defer file.Close()
			r := report.Several(rec, opts, top)
			r.AddProcesses(part.whole)
			write := r.WriteText
			switch {
			case asJSON:
				write = r.WriteJSON
			case asHTML:
				write = r.WriteHTML
			}
			if output == "-" {
				return write(e.stdout)
			}
			n, err := outfile.Atomic(output, func(w io.Writer) error { return write(w) })
			if err != nil {
				return err
			}
			fmt.Fprintf(e.stderr, "wrote %s (report, %s)\n", output, bytesText(n))
			return nil
		},
	}
}

// byName returns the format that the ending of an output's name asks for.
func byName(output string) (asJSON, asHTML bool) {
	switch strings.ToLower(filepath.Ext(output)) {
	case ".json":
		asJSON = true
	case ".html", ".htm":
		asHTML = true
	}
	return asJSON, asHTML
}

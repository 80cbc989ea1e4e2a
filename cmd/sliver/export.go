package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/trace"
)

// formatHelp lists the formats for the help texts of record and export.
func formatHelp() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, f := range export.Formats() {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Name, strings.Join(f.Extensions, " "), f.About)
	}
	w.Flush()
	return strings.TrimRight(b.String(), "\n")
}

func exportCommand() *command {
	var (
		outputs []string
		format  string
		names   nameFlags
		part    choice
		lines   bool
	)
	return &command{
		name: "export", files: true, args: "IN -o FILE... [--format F]", short: "convert a recording, or another tool's trace, to other formats",
		flags: func(fs *pflag.FlagSet) {
			fs.StringArrayVarP(&outputs, "output", "o", nil, "write to this file, in the format of its extension; - is standard output; repeatable")
			fs.StringVar(&format, "format", "", "format of the outputs, regardless of their extensions")
			registerLines(fs, &lines)
			part.register(fs)
			fs.BoolVar(&part.processFrames, "process-frames", false, "folded stacks: add the process as outermost frame")
			names.register(fs, " (if the recording has no names)")
		},
		help: `
Formats by file name:
` + formatHelp() + `

Examples:
  sliver export run.sliver -o run.pftrace -o run.pb.gz
  sliver export run.sliver -o run.nanoscope.txt      one file a thread
  sliver export run.sliver --format collapsed -o - | sort -k2 -n | tail
  sliver export run.sliver --range 2s..3s -t 'worker-*' -o second.pftrace
  sliver export old.nanoscope.txt -o old.pftrace     traces of Nanoscope and Chrome, pprof profiles
                                                     (.json, .json.gz) are read too
  sliver export run.sliver --focus '^handle_request$' -o requests.svg
  sliver export run.sliver --kinds no-native -o run.pb.gz   without frames of native code

A truncated recording (its recorder was killed) is read up to its last complete
part, and gets its names from the files of this machine if they are the same.`,
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) != 1 {
				return usagef("export", "give one recording, or trace of Nanoscope or Chrome, or pprof profile, and -o FILE for each output")
			}
			if len(outputs) == 0 {
				return usagef("export", "no output is given; add -o FILE")
			}
			outs, err := outputsOf(outputs, format, "export")
			if err != nil {
				return err
			}
			if err := checkLines(lines, outs, "export"); err != nil {
				return err
			}
			if err := part.parse("export"); err != nil {
				return err
			}
			for _, o := range outs {
				if o.Format.Recording() && part.any() {
					return usagef("export", "a recording is copied whole; --range, --threads, --focus, --kinds, --on-cpu, --off-cpu and --gil are for the other formats")
				}
			}
			for _, o := range outs {
				if err := o.Check(); err != nil {
					return err
				}
			}
			rec, opts, file, err := openPart(e, "export", args[0], &names, &part)
			if err != nil {
				return err
			}
			defer file.Close()
			opts.Lines = lines
			for _, o := range outs {
				files, err := writeOutput(o, rec, opts)
				if err != nil {
					return err
				}
				eachWrote(files, func(line, left string) {
					if o.Path != "-" {
						fmt.Fprintf(e.stderr, "wrote %s\n", line)
					}
					if left != "" {
						fmt.Fprintf(e.stderr, "left out: %s\n", left)
					}
				})
			}
			return nil
		},
	}
}

// writeOutput writes one output. For sliver's own format it copies the recording and adds
// the names resolved since.
func writeOutput(o export.Output, rec *trace.Recording, opts export.Options) ([]export.File, error) {
	if !o.Format.Recording() {
		return export.Write(o, rec, opts)
	}
	return export.WriteRecording(o, func(w io.Writer) error {
		return trace.Copy(w, rec)
	})
}

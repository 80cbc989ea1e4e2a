package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web"
)

func viewCommand() *command {
	var (
		f       webFlags
		compare string
		process string
		names   nameFlags
	)
	return &command{
		name: "view", files: true, args: "REC.sliver [--compare OTHER.sliver]", short: "show a recording in the browser",
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&compare, "compare", "", "a second recording to compare with")
			fs.StringVar(&process, "process", "", processUsage)
			f.register(fs, false)
			names.register(fs, " (if the recording has no names)")
		},
		help: `
This program serves the page until Ctrl-C and sends nothing to other machines.
The page needs the token in the printed URL.

Examples:
  sliver view run.sliver --open
  sliver view new.sliver --compare old.sliver
  sliver view cpu.pb.gz                              what export reads: pprof, Chrome, Nanoscope
  sliver view run.sliver --web 127.0.0.1:8080`,
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) != 1 {
				return usagef("view", "give one recording; name a second one to compare with after --compare")
			}
			if _, err := f.wanted("view"); err != nil {
				return err
			}
			where, err := names.options("view", e.stderr)
			if err != nil {
				return err
			}
			open := func(path string) (*trace.Recording, io.Closer, error) {
				rec, c, err := openInput(e, path)
				if err == nil {
					if rec, err = pickProcesses(rec, process); err != nil {
						c.Close()
						return nil, nil, err
					}
				}
				if err == nil {
					nameAll(e.stderr, rec, where)
				}
				return rec, c, err
			}
			rec, c, err := open(args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			o := f.options(e)
			o.Source = web.NewRecording(rec)
			if t := rec.Stats.Total(); t.Samples > 0 { // other formats have no statistics
				st := pageStatus(t, rec.LostTasks(), rec.Stats.Unrecorded, rec.Stats.Pause)
				st.Interval = time.Duration(rec.Process.Interval)
				o.Status = func() web.Status { return st }
			}
			o.Export = func(_ context.Context, w io.Writer, format string, p web.Part) error {
				return writePart(w, rec, format, p)
			}
			if compare != "" {
				other, c, err := open(compare)
				if err != nil {
					return err
				}
				defer c.Close()
				o.Compare = web.NewRecording(other)
			}
			s, err := web.Serve(context.Background(), o)
			if err != nil {
				return err
			}
			defer s.Close()
			h := hold() // the user may press Ctrl-C as soon as the URL is printed
			defer h.release()
			f.announce(e, s)
			h.wait(nil)
			return nil
		},
	}
}

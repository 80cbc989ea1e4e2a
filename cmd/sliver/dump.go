package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/watch"
	"github.com/sliverprof/sliver/watch/control"
)

// silent is a recorder that does not answer.
type silent struct {
	name string
	err  error
}

func (s silent) String() string {
	return fmt.Sprintf("recorder %s does not answer: %v", printable(s.name), s.err)
}

// recorders returns the user's running recorders with their status, and removes the
// sockets of killed ones. Each is asked at the same time as the others: one that is stopped or waits for
// a dead disk costs only itself, and is in mute.
func recorders(ctx context.Context) (clients []*control.Client, says []control.Status, mute []silent, err error) {
	dir, err := control.Dir()
	if err != nil {
		return nil, nil, nil, err
	}
	all, err := control.Clients(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	answers := make([]control.Status, len(all))
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { answers[i], errs[i] = c.Status(ctx) })
	}
	wg.Wait()
	for i, c := range all {
		switch err := errs[i]; {
		case errors.Is(err, control.ErrDead):
			c.Remove(dir)
		case err != nil && ctx.Err() != nil:
			return nil, nil, nil, err
		case err != nil:
			mute = append(mute, silent{c.Name, cmp.Or(errors.Unwrap(err), err)})
		default:
			clients, says = append(clients, c), append(says, answers[i])
		}
	}
	return clients, says, mute, nil
}

func dumpCommand() *command {
	var output, text string
	var asJSON bool
	return &command{
		name: "dump", files: true, args: "[FLAGS] [RECORDER | PID | NAME]", short: "write what a running 'sliver watch' keeps",
		flags: func(fs *pflag.FlagSet) {
			fs.StringVarP(&output, "output", "o", "", "file of the recording (default: in the recorder's directory for dumps)")
			fs.StringVar(&text, "note", "", "a note in the recording")
			retire(fs, "why", "note")
			fs.BoolVar(&asJSON, "json", false, "print the names of the files as JSON")
		},
		help: `
The argument is the name of a recorder ('sliver ls' lists them), or the number or
name of a process that one of them watches. Without it, the recorder is the one that
has its dumps in this folder (watch --dir); recorders with other folders must be named.

Examples:
  sliver dump
  sliver dump server
  sliver dump 1234 -o before-restart.sliver`,
		run: func(ctx context.Context, e *env, args []string) error {
			if len(args) > 1 {
				return usagef("dump", "give one recorder or process")
			}
			clients, says, mute, err := recorders(ctx)
			if err != nil {
				return err
			}
			who := ""
			if len(args) == 1 {
				who = args[0]
			}
			c, r, err := chooseRecorder(clients, says, who)
			if err != nil && len(mute) > 0 {
				return fmt.Errorf("%w; %v", err, mute[0])
			}
			if err != nil {
				return err
			}
			r.Text = text
			if output != "" {
				return fetch(ctx, e, c, r, output)
			}
			ds, err := c.Dump(ctx, r)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(e.stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(ds)
			}
			for _, d := range ds {
				for _, p := range d.Files {
					fmt.Fprintln(e.stdout, p)
				}
			}
			return nil
		},
	}
}

// chooseRecorder returns the recorder that who names, and the request for it.
func chooseRecorder(clients []*control.Client, says []control.Status, who string) (*control.Client, control.Request, error) {
	var names []string
	for i, c := range clients {
		names = append(names, c.Name)
		if who == c.Name {
			return c, control.Request{}, nil
		}
		for _, t := range says[i].Targets {
			if who == fmt.Sprint(t.PID) || who == t.Name {
				return c, control.Request{Target: who}, nil
			}
		}
	}
	switch {
	case len(clients) == 0:
		return nil, control.Request{}, errors.New("no recorder of yours is running; start one with 'sliver watch'")
	case who != "":
		return nil, control.Request{}, fmt.Errorf("no recorder and no process of one is called %q; there are: %s", who, strings.Join(names, ", "))
	}
	c, err := recorderHere(clients, says)
	return c, control.Request{}, err
}

// recorderHere returns the only recorder whose dumps go to the working folder. A recorder
// with another folder may belong to another service; the error names it and leaves the
// choice to the user.
func recorderHere(clients []*control.Client, says []control.Status) (*control.Client, error) {
	here, err := os.Stat(".")
	if err != nil {
		return nil, err
	}
	var found []*control.Client
	var names, elsewhere []string
	for i, c := range clients {
		// The same folder can have several paths.
		if fi, err := os.Stat(says[i].Dir); err == nil && os.SameFile(fi, here) {
			found, names = append(found, c), append(names, printable(c.Name))
			continue
		}
		elsewhere = append(elsewhere, fmt.Sprintf("'sliver dump %s' (dumps in %s)", printable(c.Name), printable(says[i].Dir)))
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("several recorders have their dumps in this folder; give one of them: %s", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("no recorder has its dumps in this folder; name the recorder: %s", strings.Join(elsewhere, ", "))
}

// fetch requests a dump from the recorder and writes it to path with the user's rights.
func fetch(ctx context.Context, e *env, c *control.Client, r control.Request, path string) error {
	outs, err := outputsOf([]string{path}, "", "dump")
	if err != nil {
		return err
	}
	if !outs[0].Format.Recording() {
		return usagef("dump", "the output is a recording, which ends in .sliver; 'sliver export' makes other formats of it")
	}
	if err := outs[0].Check(); err != nil {
		return err
	}
	files, err := export.WriteRecording(outs[0], func(w io.Writer) error {
		_, err := c.Fetch(ctx, r, w)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stderr, "wrote %s (%s)\n", files[0].Path, bytesText(files[0].Bytes))
	return nil
}

func lsCommand() *command {
	var asJSON, onlyLeft bool
	return &command{
		name: "ls", files: true, args: "[FLAGS] [FOLDER...]", short: "list running recorders, their dumps, and what killed ones left",
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&asJSON, "json", false, "print JSON")
			fs.BoolVar(&onlyLeft, "left", false, "list only the files of killed recorders")
		},
		help: `
A recording grows in a hidden file beside its output, .NAME.XXXXXXXX.partial. Of a
sliver that was killed it stays: ls shows those of the folders that are given, or of
this one, and the rings that a killed 'sliver watch' left. 'sliver recover' makes
recordings of both.

Examples:
  sliver ls
  sliver ls --json | jq '.[].targets[].pid'
  sliver ls --left /var/lib/sliver`,
		run: func(ctx context.Context, e *env, args []string) error {
			left, err := leftIn(args)
			if err != nil {
				return err
			}
			if onlyLeft {
				return listLeft(e, left, asJSON)
			}
			_, says, mute, err := recorders(ctx)
			if err != nil {
				return err
			}
			for _, m := range mute {
				fmt.Fprintf(e.stderr, "sliver: %v\n", m)
			}
			if asJSON {
				enc := json.NewEncoder(e.stdout)
				enc.SetIndent("", "  ")
				if says == nil {
					says = []control.Status{}
				}
				return enc.Encode(says)
			}
			if len(says) == 0 {
				fmt.Fprintln(e.stderr, "no recorder of yours is running")
			}
			for i := range says {
				listRecorder(e.stdout, &says[i])
			}
			if len(left) == 0 {
				return nil
			}
			return listLeft(e, left, false)
		},
	}
}

func listRecorder(w io.Writer, s *control.Status) {
	fmt.Fprintf(w, "recorder %s, process %d, for %s\n", printable(s.Name), s.PID, time.Since(s.Started).Round(time.Second))
	fmt.Fprintf(w, "  keeps the last %s, a sample every %s; its dumps are in %s\n", s.Keep, s.Interval, printable(s.Dir))
	if s.Asked != "" && s.Asked != s.Interval {
		fmt.Fprintf(w, "  interval raised from %s to %s: uses %.1f%% of a CPU (limit: %.1f%%)\n", s.Asked, s.Interval, 100*s.Takes, 100*s.MaxCPU)
	}
	if s.Waiting != "" {
		fmt.Fprintf(w, "  waits for %s\n", printable(s.Waiting))
	}
	for _, t := range s.Targets {
		fmt.Fprintf(w, "  watches %s (%d), %s, %s of rings\n", printable(t.Name), t.PID, plural.Of(t.Threads, "thread"), bytesText(t.Bytes))
	}
	for _, d := range s.Dumps {
		fmt.Fprintf(w, "  %s  %-9s %s\n", d.At.Local().Format("2006-01-02 15:04:05"), d.Reason, printable(strings.Join(d.Files, " ")))
		if d.Text != "" {
			fmt.Fprintf(w, "      %s\n", printable(d.Text))
		}
	}
	if s.Trouble != "" {
		fmt.Fprintf(w, "  trouble: %s\n", printable(s.Trouble))
	}
}

func recoverCommand() *command {
	var output string
	var names nameFlags
	var remove bool
	return &command{
		name: "recover", files: true, args: "[FLAGS] FILE", short: "complete the recording of a killed sliver",
		flags: func(fs *pflag.FlagSet) {
			fs.StringVarP(&output, "output", "o", "", "file of the recording (default: beside FILE, under its intended name)")
			names.register(fs, "")
			fs.BoolVar(&remove, "remove", false, "remove FILE when the recording is written")
		},
		help: `
FILE is what a killed 'sliver watch' or 'sliver record' left ('sliver ls' lists it):

- rings, in $XDG_RUNTIME_DIR/sliver (else in /dev/shm/sliver-UID). The next 'sliver
  watch' with the same folder for its dumps recovers them by itself.
- a recording that was growing: .NAME.XXXXXXXX.partial, beside NAME.

Examples:
  sliver recover $XDG_RUNTIME_DIR/sliver/server-1234.ring
  sliver recover --remove -o last.sliver server-1234.ring
  sliver recover --remove .run.sliver.0a1b2c3d.partial`,
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) != 1 {
				return usagef("recover", "give one ring file or unfinished recording; %s", leftNames())
			}
			unfinished, isPartial := outfile.IsPartial(args[0])
			if output == "" && isPartial {
				output = export.RecordingName(unfinished)
				if _, err := os.Lstat(output); err == nil {
					return fmt.Errorf("%s is there already; give another name with -o", output)
				}
			}
			if output == "" {
				output = strings.TrimSuffix(args[0], ".ring") + ".sliver"
			}
			outs, err := outputsOf([]string{output}, "", "recover")
			if err != nil {
				return err
			}
			if !outs[0].Format.Recording() || output == "-" {
				return usagef("recover", "the output is a recording, which ends in .sliver; 'sliver export' makes other formats of it")
			}
			if err := outs[0].Check(); err != nil {
				return err
			}
			o, err := names.options("recover", e.stderr)
			if err != nil {
				return err
			}
			if isPartial {
				return recoverPartial(e, args[0], outs[0], o, remove)
			}
			return recoverFile(e, args[0], session.Dump{Outputs: outs, Reason: "recovered: the recorder was killed"}, o, remove)
		},
	}
}

func recoverFile(e *env, path string, d session.Dump, o naming.Options, remove bool) error {
	const letGo = time.Second // longest wait for the remaining processes of a killed recorder to exit
	ring, err := ringfile.Claim(path, time.Now().Add(letGo))
	if errors.Is(err, ringfile.ErrInUse) {
		return fmt.Errorf("%s: its recorder is running; use 'sliver dump'", path)
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", path, errors.Unwrap(err))
	}
	defer ring.Close()
	res, p, err := session.Recover(ring, d, o)
	if err != nil {
		return err
	}
	for _, x := range res.Problems {
		fmt.Fprintf(e.stderr, "sliver: %s\n", oneLine(errors.New(x)))
	}
	f := res.Files[0]
	fmt.Fprintf(e.stderr, "wrote %s (%s): %s of %s (%d), %.1f s\n", f.Path, bytesText(f.Bytes), plural.Of(res.Threads, "thread"), printable(p.Comm), p.PID,
		float64(res.To-res.From)/1e9)
	if remove {
		watch.ForgetRing(path)
		return os.Remove(path)
	}
	return nil
}

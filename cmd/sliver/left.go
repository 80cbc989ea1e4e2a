package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/watch"
	"github.com/sliverprof/sliver/watch/control"
)

// left is a file that a killed sliver left behind, or that a running one is writing.
type left struct {
	Kind    string    `json:"kind"` // "ring", "recording" or "heap dump"
	Path    string    `json:"path"`
	Bytes   int64     `json:"bytes"`
	At      time.Time `json:"at"` // last modification
	Writing bool      `json:"writing"`
	Dir     string    `json:"dir,omitempty"` // rings: the folder of their recorder's dumps
}

const leftHeapDump = "heap dump"

// leftIn returns the rings of this user's killed recorders, and the unfinished recordings
// of some folders, by default the working one.
func leftIn(folders []string) ([]left, error) {
	if len(folders) == 0 {
		folders = []string{"."}
	}
	var out []left
	for _, dir := range folders {
		all, err := outfile.Partials(dir)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			kind := "recording"
			if hprof.IsName(p.For) {
				kind = leftHeapDump
			}
			out = append(out, left{Kind: kind, Path: p.Path, Bytes: p.Bytes, At: p.At, Writing: p.Writing})
		}
	}
	dir, err := control.Dir()
	if err != nil {
		return out, nil // no ring files either
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.ring"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		f, err := ringfile.Claim(path, time.Time{})
		if err != nil {
			continue // in use, or removed
		}
		if fi, err := f.Stat(); err == nil && fi.Size() > 0 {
			out = append(out, left{Kind: "ring", Path: path, Bytes: fi.Size(), At: fi.ModTime(), Dir: watch.RingFolder(path)})
		}
		f.Close()
	}
	return out, nil
}

// leftNames lists them for an error.
func leftNames() string {
	all, _ := leftIn(nil)
	var names []string
	for _, l := range all {
		if !l.Writing && l.Kind != leftHeapDump {
			names = append(names, l.Path)
		}
	}
	if len(names) == 0 {
		return "none found"
	}
	return "found: " + strings.Join(names, ", ")
}

func listLeft(e *env, all []left, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", "  ")
		if all == nil {
			all = []left{}
		}
		return enc.Encode(all)
	}
	for _, group := range []struct {
		title string
		has   func(left) bool
	}{
		{"being written", func(l left) bool { return l.Writing }},
		{"left by a sliver that was killed ('sliver recover FILE' makes a recording of it)", func(l left) bool { return !l.Writing && l.Kind != leftHeapDump }},
		{"heap dumps that are cut off ('sliver hprof check FILE' counts what is whole)", func(l left) bool { return !l.Writing && l.Kind == leftHeapDump }},
	} {
		listGroup(e.stdout, group.title, all, group.has)
	}
	return nil
}

// listGroup lists the files of a group, the newest first.
func listGroup(w io.Writer, title string, all []left, has func(left) bool) {
	group := slices.DeleteFunc(slices.Clone(all), func(l left) bool { return !has(l) })
	if len(group) == 0 {
		return
	}
	slices.SortStableFunc(group, func(a, b left) int { return b.At.Compare(a.At) })
	fmt.Fprintf(w, "%s:\n", title)
	for _, l := range group {
		fmt.Fprintf(w, "  %s  %9s  %s\n", l.At.Local().Format(time.DateTime), bytesText(l.Bytes), printable(l.Path))
		if l.Dir != "" {
			fmt.Fprintf(w, "      its recorder had its dumps in %s\n", printable(l.Dir))
		}
	}
}

// recoverPartial writes an unfinished recording, with names, to out.
func recoverPartial(e *env, path string, out export.Output, o naming.Options, remove bool) error {
	rec, f, err := openRecording(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if outfile.Writing(f) {
		return fmt.Errorf("%s is being written: its sliver is running", path)
	}
	nameAll(e.stderr, rec, o)
	warnDamage(e.stderr, path, rec)
	files, err := export.WriteRecording(out, func(w io.Writer) error {
		return trace.Cut(w, rec, trace.Part{Reason: "recovered: the recorder was killed"})
	})
	if err != nil {
		return err
	}
	from, to := rec.WholeSpan()
	fmt.Fprintf(e.stderr, "wrote %s (%s): %s of %s (%d), %.1f s\n", files[0].Path, bytesText(files[0].Bytes), plural.Of(len(rec.Threads), "thread"),
		printable(rec.Process.Comm), rec.Process.PID, float64(to-from)/1e9)
	if remove {
		return os.Remove(path)
	}
	return nil
}

// recordedTo adds to the error of a recording where the part is that was written.
func recordedTo(err error, res *session.Result) error {
	switch {
	case res == nil || res.Left == "":
		return err
	case res.Complete:
		return fmt.Errorf("%w; %s has the first %s", err, res.Left, moment(int64(res.Duration)))
	}
	return fmt.Errorf("%w; %s", err, soFar(res.Left))
}

// soFar names the file of an unfinished recording.
func soFar(path string) string {
	return fmt.Sprintf("the recording so far is in %s ('sliver recover' completes it)", path)
}

package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/export"
	"github.com/sliverprof/sliver/export/foreign"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/trace"
)

// openInput opens a recording, or imports another tool's trace into a recording in a
// temporary file.
func openInput(e *env, path string) (rec *trace.Recording, closer *os.File, err error) {
	rec, closer, err = openRecording(path)
	if !errors.Is(err, trace.ErrForeign) {
		if err == nil {
			e.damaged = warnDamage(e.stderr, path, rec) || e.damaged
		}
		return rec, closer, err
	}
	rec, closer, report, ferr := importTrace(path)
	if ferr != nil {
		return nil, nil, fmt.Errorf("cannot read %s: %w", path, ferr)
	}
	if report == nil {
		return nil, nil, fmt.Errorf("%w, and not a Nanoscope, Chrome or pprof file", err)
	}
	for _, n := range report.Notes {
		fmt.Fprintf(e.stderr, "sliver: %s: %s\n", path, printable(n))
	}
	return rec, closer, nil
}

// openPart opens a recording, or another tool's trace, with names and the selected part.
// The caller must close it.
func openPart(e *env, command, path string, names *nameFlags, part *choice) (rec *trace.Recording, opts export.Options, file *os.File, err error) {
	rec, f, err := openInput(e, path)
	if err != nil {
		return nil, opts, nil, err
	}
	e.lost = e.damaged && !part.partial
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if rec, err = pickProcesses(rec, part.process); err != nil {
		return nil, opts, nil, err
	}
	part.whole = rec
	if slices.ContainsFunc(rec.All(), func(one *trace.Recording) bool { return one.Symbols == nil }) {
		o, err := names.options(command, e.stderr)
		if err != nil {
			return nil, opts, nil, err
		}
		nameAll(e.stderr, rec, o)
	}
	rec = part.frames(rec)
	opts, err = part.options(rec)
	return rec, opts, f, err
}

// openRecording opens a recording, with user-friendly errors.
func openRecording(path string) (*trace.Recording, *os.File, error) {
	if path == "" {
		return nil, nil, errors.New("the recording's name is empty")
	}
	f, err := safefile.Named(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open %s: %w", path, errors.Unwrap(err))
	}
	fi, err := f.Stat()
	var rec *trace.Recording
	if err == nil {
		rec, err = trace.Open(f, fi.Size())
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return rec, f, nil
}

// warnDamage prints the damage of a recording on one line, and reports whether there is any.
func warnDamage(w io.Writer, path string, rec *trace.Recording) bool {
	var damage []string
	for _, one := range rec.All() {
		one.Verify()
		if one.End == nil && len(damage) == 0 {
			damage = append(damage, " is truncated (its recorder did not finish): using the part that is complete")
		}
	}
	for _, one := range rec.All() {
		for _, p := range one.Problems {
			damage = append(damage, ": "+printable(p)+"; passed over")
		}
	}
	switch len(damage) {
	case 0:
		return false
	case 1:
		fmt.Fprintf(w, "sliver: %s%s\n", path, damage[0])
	default:
		fmt.Fprintf(w, "sliver: %s%s; and %s\n", path, damage[0], plural.Of(len(damage)-1, "more problem"))
	}
	return true
}

// addNames looks up the names of a recording on this machine.
func addNames(w io.Writer, rec *trace.Recording, o naming.Options) {
	var problems []string
	rec.Symbols, problems = naming.Symbols(rec, session.SameFiles{}, o)
	rec.Named = true
	for i, p := range problems {
		if i == 5 {
			fmt.Fprintf(w, "sliver: and %s with names\n", plural.Of(len(problems)-i, "more problem"))
			break
		}
		fmt.Fprintf(w, "sliver: %s\n", oneLine(errors.New(p)))
	}
}

// importTrace converts a trace of another tool to a recording. The report is nil if the
// file's format is unknown.
func importTrace(path string) (*trace.Recording, *os.File, *foreign.Report, error) {
	f, err := safefile.Named(path)
	if err != nil {
		return nil, nil, nil, errors.Unwrap(err)
	}
	defer f.Close()
	var in io.Reader = f
	head := make([]byte, 64)
	kind, err := sniff(in, head)
	if err != nil {
		return nil, nil, nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, nil, nil, err
	}
	if kind == foreign.Gzip {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, nil, nil, nil // not readable even for detection
		}
		defer z.Close()
		if kind, err = sniff(z, head); err != nil {
			return nil, nil, nil, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, nil, nil, err
		}
		if err := z.Reset(f); err != nil {
			return nil, nil, nil, err
		}
		fi, err := f.Stat()
		if err != nil {
			return nil, nil, nil, err
		}
		in = &unpacked{r: z, packed: fi.Size(), left: max(leastUnpacked, fi.Size()*maxUnpacked)}
	}
	if kind == foreign.Unknown || kind == foreign.Gzip {
		return nil, nil, nil, nil
	}
	out, err := os.CreateTemp("", "sliver-import-")
	if err != nil {
		return nil, nil, nil, err
	}
	keep := false
	defer func() {
		os.Remove(out.Name())
		if !keep {
			out.Close()
		}
	}()
	o := foreign.Options{Name: stem(path), Version: versionString()}
	var report *foreign.Report
	switch kind {
	case foreign.Nanoscope:
		var states io.Reader
		if s, err := safefile.Named(path + ".state"); err == nil {
			defer s.Close()
			states = s
		}
		report, err = foreign.ReadNanoscope(in, states, out, o)
	case foreign.Pprof:
		report, err = foreign.ReadPprof(in, out, o)
	default:
		report, err = foreign.ReadChrome(in, out, o)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", kind, err)
	}
	fi, err := out.Stat()
	if err != nil {
		return nil, nil, nil, err
	}
	rec, err := trace.Open(out, fi.Size())
	if err != nil {
		return nil, nil, nil, err
	}
	keep = true
	return rec, out, report, nil
}

// Bounds on a compressed trace. Traces of events shrink to a tenth, repetitive ones to a
// fiftieth; small files may have any ratio.
const (
	maxUnpacked   = 256
	leastUnpacked = 64 << 20 // bytes
)

// unpacked is a decompressed trace of bounded size.
type unpacked struct {
	r      io.Reader
	packed int64
	left   int64
}

func (u *unpacked) Read(b []byte) (int, error) {
	if u.left <= 0 {
		return 0, fmt.Errorf("%d compressed bytes become more than %d: more than %d to one is not believed", u.packed, max(leastUnpacked, u.packed*maxUnpacked), maxUnpacked)
	}
	n, err := u.r.Read(b[:min(int64(len(b)), u.left)])
	u.left -= int64(n)
	return n, err
}

func sniff(r io.Reader, head []byte) (foreign.Kind, error) {
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return foreign.Unknown, err
	}
	return foreign.Detect(head[:n]), nil
}

// stem returns a file name without its extensions.
func stem(path string) string {
	base := filepath.Base(path)
	if i := strings.IndexByte(base, '.'); i > 0 {
		base = base[:i]
	}
	return base
}

// Package export writes recordings as files for other tools. It finds formats by name or
// file extension, and writes each output completely or not at all. Each format has its
// own subpackage.
//
// Different outputs may be written at once; they share the Recording, which is read-only.
package export

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sliverprof/sliver/export/chrome"
	"github.com/sliverprof/sliver/export/collapsed"
	"github.com/sliverprof/sliver/export/firefox"
	"github.com/sliverprof/sliver/export/flame"
	"github.com/sliverprof/sliver/export/nanoscope"
	"github.com/sliverprof/sliver/export/otlp"
	"github.com/sliverprof/sliver/export/page"
	"github.com/sliverprof/sliver/export/perfetto"
	"github.com/sliverprof/sliver/export/pprof"
	"github.com/sliverprof/sliver/export/speedscope"
	"github.com/sliverprof/sliver/export/timeline"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/outfile"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
)

// Options select the part of a recording to write.
type Options = view.Options

// Format is an output format.
type Format struct {
	Name       string   // as given to --format
	Extensions []string // file name extensions, the default first
	About      string   // one-line description

	// write writes all threads. It is nil for recordings and for formats with one file
	// per thread, which have writeThread.
	write       func(w io.Writer, rec *trace.Recording, o Options) error
	writeThread threadWriter
	// beside is a second file of each thread, with its extension.
	beside    threadWriter
	besideExt string
}

// Recording reports whether the format is sliver's own.
func (f *Format) Recording() bool { return f.Name == "sliver" }

// PerThread reports whether each thread has a file of its own.
func (f *Format) PerThread() bool { return f.writeThread != nil }

// Formats returns all formats, in the order that help shows.
func Formats() []*Format {
	return []*Format{
		{Name: "sliver", Extensions: []string{".sliver"}, About: "the recording itself: can be exported later, anywhere"},
		{Name: "perfetto", Extensions: []string{".pftrace", ".perfetto-trace"}, About: "timeline for https://ui.perfetto.dev", write: perfetto.Write},
		{Name: "pprof", Extensions: []string{".pb.gz", ".pprof"}, About: "profile for go tool pprof", write: pprof.Write},
		{Name: "otlp", Extensions: []string{".otlp"}, About: "OpenTelemetry profiles as one export request", write: otlp.Write},
		{Name: "nanoscope", Extensions: []string{".nanoscope.txt"}, About: "Nanoscope, one file a thread",
			writeThread: nanoscope.Write, beside: nanoscope.WriteStates, besideExt: ".state"},
		{Name: "firefox", Extensions: []string{".firefox.json.gz"}, About: "profile and markers for https://profiler.firefox.com", write: firefox.Write},
		{Name: "speedscope", Extensions: []string{".speedscope.json"}, About: "timeline and sums for https://www.speedscope.app", write: speedscope.Write},
		{Name: "chrome", Extensions: []string{".chrome.json", ".trace.json"}, About: "Chrome trace events for DevTools and Perfetto", write: chrome.Write},
		{Name: "collapsed", Extensions: []string{".folded", ".collapsed"}, About: "folded stacks: a line per stack with its elapsed ns", write: collapsed.Wall},
		{Name: "collapsed-cpu", Extensions: []string{".cpu.folded", ".cpu.collapsed"}, About: "the same with ns on a CPU", write: collapsed.CPU},
		{Name: "collapsed-off", Extensions: []string{".off.folded", ".off.collapsed"}, About: "the same with ns off the CPUs, waiting", write: collapsed.Off},
		{Name: "flame", Extensions: []string{".svg"}, About: "flame graph of the elapsed time as a picture", write: flame.Write},
		{Name: "html", Extensions: []string{".html"}, About: "the page with its data, in one file", write: page.Write},
		{Name: "timeline-svg", Extensions: []string{".timeline.svg"}, About: "timeline as a picture for documents", write: timeline.WriteSVG},
		{Name: "timeline-png", Extensions: []string{".timeline.png", ".png"}, About: "the same picture as PNG", write: timeline.WritePNG},
	}
}

// ByName returns the format with this name.
func ByName(name string) (*Format, error) {
	var names []string
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return nil, fmt.Errorf("unknown format %q; there are: %s", name, strings.Join(names, ", "))
}

// ByPath returns the format for a file name's extension.
func ByPath(path string) (*Format, error) {
	var known []string
	var found *Format
	longest := 0
	for _, f := range Formats() {
		for _, ext := range f.Extensions {
			if len(ext) > longest && strings.HasSuffix(path, ext) {
				found, longest = f, len(ext)
			}
			known = append(known, ext)
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("no format matches the file name %q; use one of the extensions %s, or --format", path, strings.Join(known, ", "))
}

// Output is a file to be written in a format. The path - is standard output.
type Output struct {
	Path   string
	Format *Format
}

// Check reports whether the output can be written: see outfile.Check.
func (o Output) Check() error {
	if o.Path == "-" {
		return nil
	}
	return outfile.Check(o.Path)
}

// Final returns the path that the finished file replaces, "" if it is written directly: see
// outfile.Final.
func (o Output) Final() string {
	if o.Path == "-" {
		return ""
	}
	return outfile.Final(o.Path)
}

// RecordingName returns the name of a recording for an output: output itself if that is a recording, otherwise a
// name beside it, with the ending .sliver.
func RecordingName(output string) string {
	o, err := ParseOutput(output, "")
	if err == nil && o.Format.Recording() {
		return output
	}
	if err == nil {
		for _, ext := range o.Format.Extensions {
			if stem, ok := strings.CutSuffix(output, ext); ok {
				return stem + ".sliver"
			}
		}
	}
	return output + ".sliver"
}

// ParseOutput parses the argument of -o. A non-empty format overrides the file extension.
func ParseOutput(path, format string) (o Output, err error) {
	switch {
	case path == "":
		return o, fmt.Errorf("the output's name is empty")
	case format != "":
		o.Format, err = ByName(format)
	case path == "-":
		return o, fmt.Errorf("standard output needs --format")
	default:
		o.Format, err = ByPath(path)
	}
	if err == nil && path == "-" && o.Format.PerThread() {
		err = fmt.Errorf("%s has one file a thread and cannot go to standard output", o.Format.Name)
	}
	o.Path = path
	return o, err
}

// File describes a file that was written.
type File struct {
	Path   string
	Format string
	Bytes  int64
	// Left describes omitted idle waits (see idle.Left); "" if there are none.
	Left string
}

// ErrNothing reports that the selected part of a recording has no data for a format.
var ErrNothing = errors.New("nothing to write")

// Write writes rec to o. Each file is either complete or absent.
func Write(o Output, rec *trace.Recording, opts Options) ([]File, error) {
	f := o.Format
	if f.PerThread() {
		return o.writeThreads(rec, opts)
	}
	if f.write == nil {
		return nil, fmt.Errorf("format %s is not made from a recording", f.Name)
	}
	var left idle.Left
	opts.Left = func(l idle.Left) { left = l }
	files, err := o.single(func(w io.Writer) error { return f.write(w, rec, opts) })
	for i := range files {
		files[i].Left = left.String()
	}
	return files, err
}

// WriteRecording writes a recording to o; fill produces its bytes.
func WriteRecording(o Output, fill func(io.Writer) error) ([]File, error) { return o.single(fill) }

func (o Output) single(fill func(io.Writer) error) ([]File, error) {
	n, err := outfile.Atomic(o.Path, fill)
	if err != nil {
		return nil, err
	}
	return []File{{Path: o.Path, Format: o.Format.Name, Bytes: n}}, nil
}

// writeThreads writes one file per thread. A single thread gets the output's own name;
// otherwise names include the thread's name and TID.
func (o Output) writeThreads(rec *trace.Recording, opts Options) ([]File, error) {
	views := view.All(rec, opts)
	n := 0
	for _, v := range views {
		n += len(v.Threads)
	}
	if n == 0 {
		return nil, fmt.Errorf("the recording holds no thread: %w", ErrNothing)
	}
	stem, ext := o.Path, ""
	for _, e := range o.Format.Extensions {
		if s, ok := strings.CutSuffix(o.Path, e); ok {
			stem, ext = s, e
			break
		}
	}
	var files []File
	taken := map[string]int{}
	for _, v := range views {
		for i := range v.Threads {
			path := o.Path
			if n > 1 {
				path = fmt.Sprintf("%s.%s", stem, threadFile(v, &v.Threads[i], len(views) > 1))
				// The kernel reused a TID.
				if taken[path]++; taken[path] > 1 {
					path = fmt.Sprintf("%s-%d", path, taken[path])
				}
				path += ext
			}
			made, err := o.writeThread(path, v, &v.Threads[i])
			files = append(files, made...)
			if err != nil {
				return files, err
			}
		}
	}
	return files, nil
}

// threadFile names a thread's file; several: with its process.
func threadFile(v *view.View, th *view.Thread, several bool) string {
	name := fmt.Sprintf("%s-%d", FileSafe(th.Label), th.ID)
	if process := fmt.Sprintf("%s-%d", FileSafe(v.Rec.Process.Comm), v.PID()); several && process != name {
		return process + "." + name
	}
	return name
}

// writeThread writes the files of a thread.
func (o Output) writeThread(path string, v *view.View, th *view.Thread) (files []File, err error) {
	err = o.Format.eachFile(path, func(path string, write threadWriter) error {
		n, err := outfile.Atomic(path, func(w io.Writer) error { return write(w, v, th) })
		if err == nil {
			files = append(files, File{Path: path, Format: o.Format.Name, Bytes: n})
		}
		return err
	})
	return files, err
}

// threadWriter writes a file of a thread.
type threadWriter func(w io.Writer, v *view.View, th *view.Thread) error

// eachFile yields the files of a thread, whose first one has that path, until one cannot be written.
func (f *Format) eachFile(path string, yield func(path string, write threadWriter) error) error {
	if err := yield(path, f.writeThread); err != nil || f.beside == nil {
		return err
	}
	return yield(path+f.besideExt, f.beside)
}

// FileSafe makes s safe as part of a file name on any system.
func FileSafe(s string) string {
	const most = 64
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, s)
	s = strings.TrimLeft(s, ".-")
	if s == "" {
		s = "thread"
	}
	return s[:min(len(s), most)]
}

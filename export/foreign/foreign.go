// Package foreign imports traces of other tools and writes them as recordings, which can
// then be exported in every format. It reads Nanoscope's text with its state file,
// Chrome's trace event JSON, and pprof profiles.
//
// The first two are streamed. Events that a recording cannot hold (counters, flows,
// asynchronous events) are skipped and counted. Calls that do not nest are cut at the end
// of their caller.
//
// The functions may run for several traces at once.
package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Kind is a file's format.
type Kind int

// File formats.
const (
	Unknown Kind = iota
	Nanoscope
	Chrome
	Pprof
	Gzip // compressed: decompress and detect again
)

func (k Kind) String() string {
	return [...]string{"unknown", "a Nanoscope trace", "Chrome JSON", "a pprof profile", "gzip"}[k]
}

// Detect returns the format of a file from its first bytes; 64 are enough.
func Detect(head []byte) Kind {
	if len(head) > 1 && head[0] == 0x1f && head[1] == 0x8b {
		return Gzip
	}
	if isPprof(head) {
		return Pprof
	}
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	head = bytes.TrimLeft(head, " \t\r\n")
	if len(head) == 0 {
		return Unknown
	}
	if head[0] == '{' || head[0] == '[' {
		return Chrome
	}
	n := 0
	for n < len(head) && head[n] >= '0' && head[n] <= '9' {
		n++
	}
	if n > 0 && n < len(head) && head[n] == ':' {
		return Nanoscope
	}
	return Unknown
}

// Options configure an import.
type Options struct {
	Name    string // of the process and of unnamed threads: the file's name
	Version string // of this program
	TempDir string // where a large trace is sorted; "": the system's
}

// Report is the result of an import.
type Report struct {
	Threads, Calls int
	// Notes describe skipped or repaired events, one line each.
	Notes []string
}

// Limits for hostile files.
const (
	maxThreads   = 1 << 16
	maxNames     = 1 << 21
	maxNameBytes = 128 << 20 // of all names together
	maxName      = 1 << 20   // longer names are cut
	maxDepth     = 1 << 13   // open calls of a thread; formats with whole stacks write all of them for each sample
	maxMemory    = 1 << 30   // bytes kept of one file
	maxTime      = int64(1) << 61
)

var (
	errNames   = errors.New("too many names")
	errThreads = errors.New("too many threads")
)

// codeBase and codeStep define the synthetic addresses of functions.
const (
	codeBase = 0x1000
	codeStep = 16
)

// builder writes a recording. Functions get addresses in a synthetic module.
type builder struct {
	w     *trace.Writer
	syms  trace.Symbols
	calls int
}

func newBuilder(w io.Writer, p trace.Process, at stack.Time) (*builder, error) {
	tw, err := trace.NewWriter(w)
	if err != nil {
		return nil, err
	}
	b := &builder{w: tw}
	if err := tw.Process(p); err != nil {
		return nil, err
	}
	const size = 1 << 40
	mod := trace.Module{Path: "[imported]", Segments: []trace.Segment{{Size: size}}}
	return b, tw.Maps(trace.Maps{At: at, Mappings: []trace.Mapping{{Start: 0, End: size}}}, 0, []trace.Module{mod})
}

// names assigns numbers to function names.
type names struct {
	ids   map[string]uint32
	list  []string
	bytes int
}

func (n *names) id(name string) (uint32, error) {
	if len(name) > maxName {
		name = name[:maxName]
	}
	if name == "" {
		name = "?"
	}
	id, ok := n.ids[name]
	if ok {
		return id, nil
	}
	if n.bytes += len(name); len(n.list) >= maxNames || n.bytes > maxNameBytes {
		return 0, fmt.Errorf("%w: %d, %d bytes", errNames, len(n.list), n.bytes)
	}
	if n.ids == nil {
		n.ids = map[string]uint32{}
	}
	id = uint32(len(n.list))
	n.ids[name] = id
	n.list = append(n.list, name)
	return id, nil
}

// finish writes the end of the recording.
func (b *builder) finish(n *names, at stack.Time, reason string) error {
	for i, name := range n.list {
		addr := codeBase + uint64(i)*codeStep
		id := b.syms.FuncID(trace.Func{Name: name, Module: 0, Start: addr})
		b.syms.Set(trace.LocKey{Module: 0, Addr: addr}, []trace.LocFrame{{Func: id}})
	}
	if err := b.w.Symbols(&b.syms); err != nil {
		return err
	}
	if err := b.w.Stats(trace.Stats{At: at}); err != nil {
		return err
	}
	return b.w.End(trace.End{At: at, Reason: reason})
}

// thread writes the events of one thread, with non-decreasing times.
type thread struct {
	b    *builder
	t    trace.Thread
	es   []event.Event
	open int
	at   stack.Time
}

// batch is how many events are written at once.
const batch = 1 << 12

func (b *builder) thread(t trace.Thread) (*thread, error) {
	if err := b.w.Thread(t); err != nil {
		return nil, err
	}
	th := &thread{b: b, t: t, at: t.Since}
	if err := th.put(t.Since, event.Sync, 0); err != nil {
		return nil, err
	}
	// Nothing was open before. Without this, the first calls would be those of a stack that was found open, and the
	// recording would begin where the first of them ends.
	return th, th.put(t.Since, event.Seen, event.SeenOf(0, 0, 0))
}

func (t *thread) put(at stack.Time, k event.Kind, payload uint64) error {
	t.at = max(t.at, at)
	t.es = append(t.es, event.Make(t.at, k, payload))
	if len(t.es) < batch {
		return nil
	}
	return t.flush()
}

func (t *thread) flush() error {
	err := t.b.w.Events(t.t.Seq, t.es)
	t.es = t.es[:0]
	return err
}

func (t *thread) enter(at stack.Time, name uint32) error {
	t.open++
	t.b.calls++
	f := stack.Frame{PC: codeBase + uint64(name)*codeStep, Exact: true}
	f.Func = f.PC
	return t.put(at, event.Enter, uint64(event.WordOf(&f)))
}

func (t *thread) exit(at stack.Time) error {
	t.open--
	return t.put(at, event.Exit, 0)
}

// close ends all open calls.
func (t *thread) close(at stack.Time) error {
	for t.open > 0 {
		if err := t.exit(at); err != nil {
			return err
		}
	}
	return t.flush()
}

// note adds a note that something happened n times; one and more are its words.
func note(r *Report, n int, one, more string) {
	if n > 0 {
		r.Notes = append(r.Notes, plural.Either(n, one, more))
	}
}

package naming

import (
	"cmp"
	"io"
	"time"

	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/symbol"
)

const (
	// madeEvery is how soon what a program says of its own code is read again
	// for a place that it did not name; and not more than a 20th of the time.
	madeEvery = 2 * time.Second
	// maxPerfMap bounds what is read of a program's perf map, in bytes.
	maxPerfMap = 48 << 20
)

// PerfMapOf is a program's perf map as Made and LiveOptions read it, without its
// holes.
func PerfMapOf(open func() (*safefile.File, error)) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		f, err := open()
		if err != nil {
			return nil, err
		}
		return f.Data(), nil
	}
}

// Made names code that a running program made itself, by what the program says
// of it now: files that it has in its memory for debuggers, then its perf map.
// It is for one goroutine; the zero value knows no program.
type Made struct {
	// PerfMap opens the program's perf map; nil: it has none.
	PerfMap func() (io.ReadCloser, error)
	// Objects reads the program's files for debuggers, the newest first; nil:
	// it has none.
	Objects func() []*symbol.JITObject
	// Every is the least time between two readings; 0: two seconds.
	Every time.Duration

	perf    *symbol.PerfMap
	objects []*symbol.JITObject
	at      time.Time
	took    time.Duration
}

// Frames appends the frames at addr, in the target, as far as is known: see Read.
func (m *Made) Frames(addr uint64, buf []symbol.Frame) []symbol.Frame {
	for _, o := range m.objects {
		if o.Covers(addr) {
			if out := o.Frames(addr, buf); len(out) > len(buf) {
				return out
			}
		}
	}
	if name, start, ok := m.perf.Lookup(addr); ok {
		return append(buf, symbol.Frame{Func: name, Start: start})
	}
	return buf
}

// Read reads what the program says anew, if the last time is long enough ago.
// What could be read before an error counts.
func (m *Made) Read() bool {
	if !m.at.IsZero() && time.Since(m.at) < max(cmp.Or(m.Every, madeEvery), 20*m.took) {
		return false
	}
	begin := time.Now()
	if m.Objects != nil {
		m.objects = m.Objects()
	}
	if m.PerfMap != nil {
		if r, err := m.PerfMap(); err == nil { // most programs have none
			m.perf, _ = symbol.ParsePerfMap(io.LimitReader(r, maxPerfMap))
			r.Close()
		}
	}
	m.at, m.took = time.Now(), time.Since(begin)
	return true
}

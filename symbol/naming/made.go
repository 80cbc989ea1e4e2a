package naming

import (
	"cmp"
	"io"
	"time"

	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/symbol"
)

const (
	// madeEvery is the minimum time until a program's descriptions of its code are read
	// again for an unnamed address. Reading also takes at most a 20th of the time.
	madeEvery = 2 * time.Second
	// maxPerfMap bounds the bytes read of a program's perf map.
	maxPerfMap = 48 << 20
)

// PerfMapOf opens a program's perf map for Made and LiveOptions, without its holes.
func PerfMapOf(open func() (*safefile.File, error)) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		f, err := open()
		if err != nil {
			return nil, err
		}
		return f.Data(), nil
	}
}

// Made names code that a running program generated, from the program's current
// descriptions: in-memory files for debuggers, then its perf map. It is for one
// goroutine; the zero value has no program.
type Made struct {
	// PerfMap opens the program's perf map; nil: it has none.
	PerfMap func() (io.ReadCloser, error)
	// Objects reads the program's files for debuggers, newest first; nil: it has none.
	Objects func() []*symbol.JITObject
	// Every is the minimum time between two reads; 0: two seconds.
	Every time.Duration

	perf    *symbol.PerfMap
	objects []*symbol.JITObject
	at      time.Time
	took    time.Duration
}

// Frames appends the frames at addr, in the target, from the last Read.
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

// Read reads the program's descriptions again, if the last time is long enough ago. It
// keeps what precedes an error.
func (m *Made) Read() bool {
	if !m.at.IsZero() && time.Since(m.at) < max(cmp.Or(m.Every, madeEvery), 20*m.took) {
		return false
	}
	begin := time.Now()
	if m.Objects != nil {
		m.objects = m.Objects()
	}
	if m.PerfMap != nil {
		if r, err := m.PerfMap(); err == nil { // most programs have no map
			m.perf, _ = symbol.ParsePerfMap(io.LimitReader(r, maxPerfMap))
			r.Close()
		}
	}
	m.at, m.took = time.Now(), time.Since(begin)
	return true
}

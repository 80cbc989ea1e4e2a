package trace

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/trace/event"
)

// The methods below write a recording without a Recorder, for events that are not sampled
// live, such as another tool's trace or a test's events.

// maxDirect is the maximum number of events in one chunk of Events.
const maxDirect = 1 << 14

// Events appends es, events of thread seq.
func (w *Writer) Events(seq int, es []event.Event) error {
	c := &w.events
	for len(es) > 0 {
		n := min(len(es), maxDirect)
		c.reset(seq)
		for _, e := range es[:n] {
			c.add(e)
		}
		w.payload = c.payload(w.payload)
		if err := w.chunk(chunkEvents, w.payload); err != nil {
			return err
		}
		es = es[n:]
	}
	return nil
}

// Process writes the description of the target; it comes first.
func (w *Writer) Process(p Process) error { return w.json(chunkProcess, p) }

// Thread announces a thread; t.Seq is the number to pass to Events.
func (w *Writer) Thread(t Thread) error {
	return t.each(func(t Thread) error { return w.json(chunkThread, t) })
}

// Maps writes a generation of the address space. first is the number of modules written
// before; mods are the new ones.
func (w *Writer) Maps(m Maps, first int, mods []Module) error {
	return w.json(chunkMaps, mapsChunk{Maps: m, First: first, Modules: mods})
}

// Waits writes descriptions for event.Wait.
func (w *Writer) Waits(ws []Wait) error { return w.json(chunkWait, ws) }

// Stats writes the statistics; the newest ones apply.
func (w *Writer) Stats(s Stats) error { return w.json(chunkStats, s) }

// End marks the recording as complete.
func (w *Writer) End(e End) error { return w.json(chunkEnd, e) }

func (w *Writer) json(typ string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", typ, err)
	}
	return w.chunk(typ, b)
}

// Captured writes bytes of the target that may not exist later.
func (w *Writer) Captured(c Captured) error { return w.json(chunkNames, c) }

// Trigger writes why the recording was kept.
func (w *Writer) Trigger(t Trigger) error { return w.json(chunkTrigger, t) }

// Append returns a Writer for a file that has its header.
func Append(w io.Writer) *Writer { return &Writer{w: w} }

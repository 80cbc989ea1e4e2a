package flight

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/trace"
)

// The log next to the rings is the beginning of a recording: its header, and all chunks
// except the events. When it is full it is rewritten without obsolete chunks, so it
// does not grow with time.

// log appends the output of write. The caller holds r.mu. If the log cannot be written,
// only Recover loses data.
func (r *Recorder) log(write func(*trace.Writer) error) {
	if r.mem.Path() == "" {
		return // nothing will ever read it
	}
	var b bytes.Buffer
	if write(trace.Append(&b)) != nil {
		return
	}
	if err := r.mem.AppendLog(b.Bytes()); errors.Is(err, ringfile.ErrFull) {
		r.rewriteLog() // includes the chunk that did not fit
	}
}

// rewriteLog writes everything known. The caller holds r.mu.
func (r *Recorder) rewriteLog() {
	if r.mem.Path() == "" {
		return
	}
	r.logged = map[int]int{}
	var b bytes.Buffer
	w, err := trace.NewWriter(&b)
	if err == nil {
		err = w.Process(r.process)
	}
	for _, s := range r.sinks {
		if err == nil {
			err = w.Thread(s.thread)
		}
	}
	for i := range r.maps {
		if err == nil {
			err = r.writeMaps(w, &r.maps[i], r.logged)
		}
	}
	for _, c := range r.captured {
		if err == nil {
			err = w.Captured(c)
		}
	}
	if ws := r.waitList(nil); err == nil && len(ws) > 0 {
		err = w.Waits(ws)
	}
	r.logFull = err != nil || r.mem.SetLog(b.Bytes()) != nil
}

// writeMaps writes a generation with those of its modules that are not in numbered yet,
// and numbers them.
func (r *Recorder) writeMaps(w *trace.Writer, m *trace.Maps, numbered map[int]int) error {
	first := len(numbered)
	out, mods := *m, []trace.Module(nil)
	out.Mappings = slices.Clone(m.Mappings)
	for i := range out.Mappings {
		id := out.Mappings[i].Module
		n, ok := numbered[id]
		if !ok {
			n = len(numbered)
			numbered[id] = n
			if mod := r.modules[id]; mod != nil {
				mods = append(mods, *mod)
			} else {
				mods = append(mods, trace.Module{Path: "[unknown]"})
			}
		}
		out.Mappings[i].Module = n
	}
	return w.Maps(out, first, mods)
}

// waitList returns the descriptions with the numbers in used, or all, in order.
func (r *Recorder) waitList(used map[int]bool) (out []trace.Wait) {
	for _, id := range slices.Sorted(maps.Keys(r.waits)) {
		if used == nil || used[id] {
			out = append(out, r.waits[id])
		}
	}
	return out
}

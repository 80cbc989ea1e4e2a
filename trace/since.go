package trace

import (
	"sort"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Since returns rec without the events that do not affect the time from t on. It shares
// everything else with rec. Each thread begins with the chunk that contains its last Sync
// at or before t, if there is one. It is for windows of a growing recording, which
// otherwise would be read from the start each time.
func (rec *Recording) Since(t stack.Time) *Recording {
	out := *rec
	out.chunks = make(map[int][]chunkRef, len(rec.chunks))
	for seq, cs := range rec.chunks {
		i := sort.Search(len(cs), func(i int) bool { return cs[i].base > t }) - 1
		for i > 0 && !rec.syncs(cs[i], t) {
			i--
		}
		out.chunks[seq] = cs[max(i, 0):]
	}
	return &out
}

// AllSince is Since for all processes of rec.
func (rec *Recording) AllSince(t stack.Time) *Recording {
	out := rec.Since(t)
	out.Others = make([]*Recording, len(rec.Others))
	for i, x := range rec.Others {
		out.Others[i] = x.Since(t)
	}
	if len(out.Others) == 0 {
		out.Others = nil
	}
	return out
}

// syncs reports whether a Sync at or before t is in chunk c.
func (rec *Recording) syncs(c chunkRef, t stack.Time) bool {
	b, err := payloadAt(rec.r, c.off, chunkEvents, c.length, c.crc, nil)
	if err != nil {
		return false
	}
	found := false
	_, err = decodeEvents(b, func(e event.Event) bool {
		if e.Kind() == event.Sync {
			found = e.Time <= t
			return false
		}
		return true
	})
	return err == nil && found
}

package trace

import (
	"sort"

	"github.com/sliverprof/sliver/event"
	"github.com/sliverprof/sliver/stack"
)

// Since is rec without the events that say nothing of the time from t on, and
// shares all else with it: each thread begins with the chunk that holds its
// last Sync at or before t, as far as there is one. For windows of a recording
// that grows, which would else be read from its beginning each time.
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

package flight

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// Recover makes a Copy of the data of a recorder in a ring file: everything up to its
// last complete sample.
func Recover(im *ringfile.Image) (*Copy, error) {
	rec, err := trace.Open(bytes.NewReader(im.Log), int64(len(im.Log)))
	if err != nil {
		return nil, fmt.Errorf("read the ring file's log: %w", err)
	}
	c := &Copy{Process: rec.Process, Modules: rec.Modules, Maps: rec.Maps, Captured: rec.Captured, Stats: rec.Stats}
	byID := map[uint64]int{}
	for i := range im.Rings {
		byID[im.Rings[i].ID] = i
	}
	for _, t := range rec.Threads {
		i, ok := byID[uint64(t.Seq)]
		if !ok {
			continue // it ended long before
		}
		raw, err := im.Events(i)
		if err != nil {
			return nil, err
		}
		es := make([]event.Event, len(raw))
		for k, e := range raw {
			es[k] = event.Event{Time: stack.Time(e[0]), Value: e[1]}
		}
		tail := im.Rings[i].Tail
		es = finish(cut(es, 0), event.Event{Time: stack.Time(tail[0]), Value: tail[1]})
		if len(es) > 0 {
			c.At = max(c.At, es[len(es)-1].Time)
		}
		c.Threads = append(c.Threads, Thread{Thread: t, Events: es})
	}
	used := waitsOf(c.Threads)
	for id, w := range rec.Waits {
		if used[id] {
			c.Waits = append(c.Waits, w)
		}
	}
	slices.SortFunc(c.Waits, func(a, b trace.Wait) int { return a.ID - b.ID })
	c.settle()
	return c, nil
}

package snapshot

//sliver:layer live

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sliverprof/sliver/heap/graph"
	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/heap/hprof"
)

// recorded keeps the pages that were read of a copy, so that they can be damaged.
type recorded struct {
	mu    sync.Mutex
	src   io.ReaderAt // nil: other pages cannot be read
	pages map[uint64][]byte
}

const recordedPage = 4096

func (r *recorded) ReadAt(b []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := 0; n < len(b); {
		at := uint64(off) + uint64(n)
		p, ok := r.pages[at/recordedPage]
		if !ok && r.src != nil {
			p = make([]byte, recordedPage)
			if k, err := r.src.ReadAt(p, int64(at/recordedPage*recordedPage)); k < recordedPage {
				return n, err
			}
			r.pages[at/recordedPage] = p
		} else if !ok {
			return n, fmt.Errorf("no memory at %#x", at)
		}
		n += copy(b[n:], p[at%recordedPage:])
	}
	return len(b), nil
}

// Memory of a heap that is damaged anywhere ends in an error or in a dump, in bounded time and memory.
func TestDamagedMemory(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for _, version := range []string{"17", "25"} {
		t.Run(version, func(t *testing.T) {
			if testing.Short() && version != "25" {
				t.Skip("the short form takes one of the versions only")
			}
			proc := java(t, version, "none", "-XX:+UseSerialGC", "-Xmx16m")
			p := open(t, proc.PID)
			s, err := source(p)
			if err != nil {
				t.Fatal(err)
			}
			snap, err := p.Snapshot(patient)
			if err != nil {
				t.Fatal(err)
			}
			defer snap.Close()
			memory := &recorded{src: snap, pages: map[uint64][]byte{}}
			nulled := uint64(0)
			var heap *hotspot.Heap
			read := func(ctx context.Context) (uint64, error) {
				s.Mem, s.Maps = memory, nil
				vm, err := hotspot.Examine(s)
				if err != nil {
					return 0, err
				}
				h, err := hotspot.Open(vm)
				if err != nil {
					return 0, err
				}
				if err := h.Scan(ctx); err != nil {
					return 0, err
				}
				heap = h
				d, err := h.Dump(ctx, []hotspot.Stack{{SP: 8}}, time.Unix(0, 0))
				if err == nil {
					err = d.Write(ctx, io.Discard)
				}
				if err == nil {
					nulled += d.Nulled()
					err = direct(ctx, t, h, d)
				}
				return h.Objects, err
			}
			whole, err := read(t.Context())
			if err != nil || whole < 5000 {
				t.Fatalf("%d objects, %v", whole, err)
			}
			memory.src = nil
			var keys []uint64
			for k := range memory.pages {
				keys = append(keys, k)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			failed, read0 := 0, 0
			for round := range rounds {
				type change struct {
					page uint64
					old  []byte
				}
				var changes []change
				for range 1 + rng.IntN(40) {
					k := keys[rng.IntN(len(keys))]
					p := memory.pages[k]
					if p == nil {
						continue
					}
					changes = append(changes, change{k, append([]byte(nil), p...)})
					switch at := rng.IntN(recordedPage/8) * 8; rng.IntN(4) {
					case 0:
						delete(memory.pages, k)
					case 1:
						for i := range 8 {
							p[at+i] = 0xff
						}
					case 2:
						clear(p[at : at+8])
					default:
						for i := range 4 {
							p[at+i] = byte(rng.Uint32())
						}
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				n, err := read(ctx)
				cancel()
				switch {
				case errors.Is(err, context.DeadlineExceeded):
					t.Errorf("round %d: no end within 20 s", round)
				case err != nil:
					failed++
				case n > 0:
					read0++
				}
				for i := len(changes) - 1; i >= 0; i-- {
					memory.pages[changes[i].page] = changes[i].old
				}
			}
			if n, err := read(t.Context()); err != nil || n != whole {
				t.Errorf("restored: %d objects, %v; before %d", n, err, whole)
			}
			led, of := astray(memory, heap, func() uint64 {
				before := nulled
				if _, err := read(t.Context()); err != nil {
					return 0
				}
				return nulled - before
			})
			if led == 0 || led*2 < of {
				t.Errorf("of %d references that were made to lead into objects, %d were counted", of, led)
			}
			t.Logf("%d pages, %d objects; %d damaged ones ended in an error, %d were read; of %d references into objects %d were counted", len(keys), whole, failed, read0, of, led)
		})
	}
}

// astray makes words of a heap of at most 4 GB that lead to an object lead 8 bytes into it, one after another, and
// asks for the references to no object that are counted then; it returns of how many words there were some.
func astray(memory *recorded, h *hotspot.Heap, counted func() uint64) (led, of int) {
	const most = 20
	for _, at := range slices.Sorted(maps.Keys(memory.pages)) {
		p := memory.pages[at]
		for i := 0; i < recordedPage && of < most; i += 4 {
			to := binary.LittleEndian.Uint32(p[i:])
			// The page has objects, too: words elsewhere may be anything.
			if !h.Begins(uint64(to)) || h.Begins(uint64(to)+8) || !h.Begins(at*recordedPage+uint64(i)&^7-16) {
				continue
			}
			of++
			binary.LittleEndian.PutUint32(p[i:], to+8)
			if counted() > 0 {
				led++
			}
			binary.LittleEndian.PutUint32(p[i:], to)
			break
		}
	}
	return led, of
}

// direct makes the graph of a heap, of which d was written, once from the objects and once from their encoded form.
func direct(ctx context.Context, t *testing.T, h *hotspot.Heap, d *hotspot.Dump) error {
	x, err := h.Dump(ctx, []hotspot.Stack{{SP: 8}}, time.Unix(0, 0))
	if err != nil {
		return err
	}
	g, err := graph.New(ctx, x, x.Size(), graph.Options{})
	e, err2 := graph.New(ctx, struct{ io.ReaderAt }{d}, d.Size(), graph.Options{})
	if err == nil {
		defer g.Close()
	}
	if err2 == nil {
		defer e.Close()
	}
	if (err == nil) != (err2 == nil) {
		t.Errorf("the graph of the objects: %v, that of the dump: %v", err, err2)
	}
	if err != nil || err2 != nil {
		return err
	}
	// A damaged class may declare fewer references than its instances have: the graph does not read the others.
	all, err := h.Dump(ctx, []hotspot.Stack{{SP: 8}}, time.Unix(0, 0))
	if err != nil {
		return err
	}
	for part := range len(all.Parts()) - 1 {
		if err := hprof.ReadRefs(all.Part(part)); err != nil {
			return err
		}
	}
	if all.Nulled() != d.Nulled() || x.Nulled() > d.Nulled() {
		t.Errorf("%d references to no object in the objects, %d in those of the graph, %d in the dump", all.Nulled(), x.Nulled(), d.Nulled())
	}
	if g.Len() != e.Len() || g.Refs() != e.Refs() || g.Dangled != e.Dangled || g.Total() != e.Total() {
		t.Errorf("%d objects, %d references, %d to none, %d bytes; of the dump %d, %d, %d, %d", g.Len(), g.Refs(), g.Dangled, g.Total(),
			e.Len(), e.Refs(), e.Dangled, e.Total())
	}
	for o := graph.Object(1); int(o) <= g.Len(); o++ { // damaged ones are read too
		if a, b := g.Length(o), e.Length(o); a != b {
			t.Errorf("object %d has %d elements, in the dump %d", o, a, b)
			break
		}
	}
	return nil
}

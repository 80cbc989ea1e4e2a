package ringfile

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sliverprof/sliver/ringbuf"
)

// open reads the content of m's file at this moment, as after a kill.
func open(t *testing.T, path string) *Image {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	im, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if len(im.Problems) > 0 {
		t.Fatalf("problems: %v", im.Problems)
	}
	return im
}

func check(t *testing.T, im *Image, id, first, last uint64) {
	t.Helper()
	for i := range im.Rings {
		if im.Rings[i].ID != id {
			continue
		}
		es, err := im.Events(i)
		if err != nil {
			t.Fatal(err)
		}
		if len(es) == 0 || es[0][0] > first || es[len(es)-1][0] != last {
			t.Fatalf("ring %d: %d events, %v…; want %d to %d", id, len(es), es[:min(1, len(es))], first, last)
		}
		for k, e := range es {
			if e[0] != es[0][0]+uint64(k) || e[1] != e[0]*id {
				t.Fatalf("ring %d: event %d is %v", id, k, e)
			}
		}
		return
	}
	t.Fatalf("ring %d is not there", id)
}

func TestFileHoldsWhatWasPublished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rings")
	m, err := Create(path, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(true)
	if err := m.AppendLog([]byte("x")); !errors.Is(err, ErrFull) {
		t.Fatalf("append without a log: %v", err)
	}
	if err := m.SetLog([]byte("first ")); err != nil {
		t.Fatal(err)
	}
	if err := m.AppendLog([]byte("second")); err != nil {
		t.Fatal(err)
	}
	var blocks []*Block
	for id := uint64(1); id <= 40; id++ {
		b, err := m.Ring(id, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.Publish()
		for i := range 100 * id {
			b.Ring.Append(i, i*id)
		}
		blocks = append(blocks, b)
	}
	im := open(t, path)
	if string(im.Log) != "first second" || im.PID != os.Getpid() || len(im.Rings) != 40 {
		t.Fatalf("log %q, PID %d, %d rings", im.Log, im.PID, len(im.Rings))
	}
	for id := uint64(1); id <= 40; id++ {
		n := 100 * id
		check(t, im, id, n-min(n, MinRing-64), n-1)
	}
	// A ring that moves is complete before and after it is published.
	b := blocks[39]
	n := b.Ring.Written()
	b.SetTail(ringbuf.Event{7, 8})
	b.SetTail(ringbuf.Event{9, 10})
	big, err := m.Ring(40, 4*MinRing)
	if err != nil {
		t.Fatal(err)
	}
	b.Ring.MoveTo(big.Ring)
	check(t, open(t, path), 40, n-(MinRing-64), n-1)
	big.Publish()
	check(t, open(t, path), 40, n-(MinRing-64), n-1)
	m.Free(b)
	big.Ring.Append(n, n*40)
	big.SetTail(ringbuf.Event{11, 12})
	im = open(t, path)
	check(t, im, 40, n-(MinRing-64), n)
	if tail := im.Rings[0].Tail; tail != (ringbuf.Event{11, 12}) { // the ring that took the first free slot
		for _, r := range im.Rings {
			if r.ID == 40 {
				tail = r.Tail
			}
		}
		if tail != (ringbuf.Event{11, 12}) {
			t.Errorf("tail %v", tail)
		}
	}
	if e, ok := big.Tail(); !ok || e != (ringbuf.Event{11, 12}) {
		t.Errorf("tail %v, %v", e, ok)
	}
	long := bytes.Repeat([]byte("log "), 50_000)
	if err := m.AppendLog(long); !errors.Is(err, ErrFull) {
		t.Fatalf("append of %d bytes: %v", len(long), err)
	}
	if err := m.SetLog(long); err != nil {
		t.Fatal(err)
	}
	if im := open(t, path); !bytes.Equal(im.Log, long) {
		t.Errorf("the log has %d bytes", len(im.Log))
	}
}

// Rings of all sizes that come and go leave no fragmentation.
func TestSpaceIsGivenBack(t *testing.T) {
	for _, kind := range []string{"memory", "file"} {
		t.Run(kind, func(t *testing.T) {
			const size = 8<<20 + 3*minBlock
			m, err := New(size)
			if kind == "file" {
				m, err = Create(filepath.Join(t.TempDir(), "rings"), size)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close(true)
			rnd := rand.New(rand.NewPCG(1, 2))
			taken := map[*Block]uint64{}
			full := 0
			for id := uint64(1); id < 600; id++ {
				b, err := m.Ring(id, 1<<(9+rnd.IntN(8)))
				switch {
				case errors.Is(err, ErrFull):
					full++
				case err != nil:
					t.Fatal(err)
				default:
					for i := range min(b.Ring.Cap(), 2000) {
						b.Ring.Append(id, uint64(i))
					}
					taken[b] = id
				}
				for b, id := range taken {
					if e, ok := b.Ring.Oldest(0); !ok || e[0] != id {
						t.Fatalf("ring %d holds %v", id, e)
					}
					if rnd.IntN(128) == 0 || err != nil && rnd.IntN(4) == 0 {
						m.Free(b)
						delete(taken, b)
					}
				}
			}
			if full == 0 {
				t.Error("it was never full: the test asks too little")
			}
			for b := range taken {
				m.Free(b)
			}
			if used, all := m.Used(); used != 0 || all != size {
				t.Errorf("%d of %d bytes are in use", used, all)
			}
			// All of it is one block again.
			b, err := m.Ring(1, 8<<20/eventBytes)
			if err != nil {
				t.Fatal(err)
			}
			m.Free(b)
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rings")
	if _, err := Create(path, MinSize-1); err == nil {
		t.Error("too small")
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, MinSize); err == nil {
		t.Error("overwrote a file")
	}
	if _, err := Create(filepath.Join(dir, "none", "rings"), MinSize); err == nil {
		t.Error("no such folder")
	}
	b, _ := os.ReadFile(path)
	if _, err := Open(bytes.NewReader(b), int64(len(b))); !errors.Is(err, ErrForeign) {
		t.Errorf("open of something else: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "rings")
	m, err := Create(path, MinSize)
	if err != nil {
		f.Fatal(err)
	}
	if err := m.SetLog([]byte("notes")); err != nil {
		f.Fatal(err)
	}
	b, err := m.Ring(3, 0)
	if err != nil {
		f.Fatal(err)
	}
	b.Publish()
	for i := range uint64(1000) {
		b.Ring.Append(i, i)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	m.Close(true)
	f.Add(whole[:headBytes+slotBytes], int64(len(whole)))
	f.Add(whole[:headBytes], int64(headBytes))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, head []byte, size int64) {
		// The file has the length in its head, and is empty after the head.
		size &= 16<<20 - 1
		r := padded{head}
		im, err := Open(r, size)
		if err != nil {
			return
		}
		for i := range im.Rings {
			if es, err := im.Events(i); err == nil && len(es) != im.Rings[i].events {
				t.Errorf("ring %d has %d of %d events", i, len(es), im.Rings[i].events)
			}
		}
	})
}

type padded struct{ b []byte }

func (p padded) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	if off < int64(len(p.b)) {
		copy(b, p.b[off:])
	}
	return len(b), nil
}

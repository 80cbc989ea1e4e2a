package ringbuf

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

// drain reads all events that are available now.
func drain(c *Cursor, buf []Event, each func(Event)) {
	for {
		n, lost := c.Read(buf)
		if n == 0 && lost == 0 {
			return
		}
		for _, e := range buf[:n] {
			each(e)
		}
	}
}

func TestKeepsTheNewest(t *testing.T) {
	r := New(1000)
	if r.Cap() != 1024 {
		t.Fatalf("capacity %d, want 1024", r.Cap())
	}
	c := r.NewCursor()
	const written = 5000
	for i := range uint64(written) {
		r.Append(i, ^i)
	}
	var got []Event
	drain(c, make([]Event, 100), func(e Event) { got = append(got, e) })
	if uint64(len(got))+c.Lost() != written {
		t.Fatalf("read %d + lost %d != written %d", len(got), c.Lost(), written)
	}
	if len(got) < 1024-inFlight {
		t.Fatalf("only %d events of a ring of 1024 could be read", len(got))
	}
	for i, e := range got {
		want := uint64(written - len(got) + i)
		if e[0] != want || e[1] != ^want {
			t.Fatalf("event %d is %v, want %d", i, e, want)
		}
	}
}

func TestGrowGoesOn(t *testing.T) {
	r := New(MinCap)
	c := r.NewCursor()
	var next uint64
	add := func(r *Ring, n int) {
		for range n {
			r.Append(next, next)
			next++
		}
	}
	add(r, 100)
	big := r.Grow(4096)
	add(big, 1000)
	var want uint64
	drain(c, make([]Event, 7), func(e Event) {
		if e[0] != want {
			t.Fatalf("event %d where %d was due", e[0], want)
		}
		want++
	})
	if want != next || c.Lost() != 0 || big.Written() != next {
		t.Fatalf("read %d of %d, lost %d, written %d", want, next, c.Lost(), big.Written())
	}
}

func TestLostInAGrownRing(t *testing.T) {
	r := New(MinCap)
	c := r.NewCursor()
	total := uint64(0)
	for range 3 {
		for range 10 * r.Cap() {
			r.Append(total, total)
			total++
		}
		r = r.Grow(2 * r.Cap())
	}
	r.Append(total, total)
	total++
	var read, last uint64
	drain(c, make([]Event, 64), func(e Event) { read++; last = e[0] })
	if read+c.Lost() != total || last != total-1 {
		t.Fatalf("read %d + lost %d != %d, or last %d", read, c.Lost(), total, last)
	}
}

// TestConcurrentReaders checks, also under -race, that a reader gets untorn events in order, and
// that they add up with the lost ones.
func TestConcurrentReaders(t *testing.T) {
	const total = 400_000
	first := New(MinCap)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for seed := range uint64(3) {
		wg.Add(1)
		c := first.NewCursor()
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(seed, 1))
			buf := make([]Event, 512)
			var read, want uint64
			for {
				ended := false
				select {
				case <-done:
					ended = true
				default:
				}
				n, lost := c.Read(buf[:1+rnd.IntN(len(buf))])
				want += lost
				for _, e := range buf[:n] {
					if e[0] != want || e[1] != want*3 {
						t.Errorf("got %v, want %d", e, want)
						return
					}
					want++
				}
				read += uint64(n)
				if n == 0 && lost == 0 {
					if ended {
						break
					}
					runtime.Gosched()
				}
			}
			if read+c.Lost() != total {
				t.Errorf("read %d + lost %d != %d", read, c.Lost(), total)
			}
		}()
	}
	w := first
	batch := make([]Event, 0, 100)
	for i := uint64(0); i < total; {
		batch = batch[:0]
		for range min(uint64(1+i%100), total-i) {
			batch = append(batch, Event{i, i * 3})
			i++
		}
		w.AppendAll(batch)
		if i > total/2 && w == first {
			w = w.Grow(1024)
		}
	}
	close(done)
	wg.Wait()
}

func TestNothingAllocated(t *testing.T) {
	r := New(1024)
	c := r.NewCursor()
	buf := make([]Event, 64)
	if n := testing.AllocsPerRun(100, func() {
		r.Append(1, 2)
		r.AppendAll(buf)
		c.Read(buf)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	r := New(1 << 14)
	for i := range uint64(b.N) {
		r.Append(i, i)
	}
}

func BenchmarkAppendAll(b *testing.B) {
	r := New(1 << 14)
	es := make([]Event, 32)
	for range b.N / len(es) {
		r.AppendAll(es)
	}
}

func BenchmarkRead(b *testing.B) {
	r := New(1 << 14)
	for i := range uint64(r.Cap()) {
		r.Append(i, i)
	}
	buf := make([]Event, 1024)
	b.ResetTimer()
	for n := 0; n < b.N; {
		c := r.NewCursor()
		c.Read(buf[:0])
		for {
			k, _ := c.Read(buf)
			if k == 0 {
				break
			}
			n += k
		}
	}
}

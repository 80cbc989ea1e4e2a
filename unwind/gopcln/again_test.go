package gopcln

import (
	"encoding/binary"
	"io"
	"math/rand"
	"slices"
	"testing"
)

// crowd is the memory of a program: its list of goroutines, and their data, side by side.
type crowd struct {
	mem  []byte
	c    *Census // for the offsets
	n    int     // of those there are
	last uint64  // number that was given
}

const (
	crowdAt   = 1 << 32
	crowdList = 64
	crowdGs   = 1 << 20
	crowdG    = 512
	crowdM    = crowdGs - 4096 // of any thread
)

func (x *crowd) ReadAt(p []byte, at int64) (int, error) {
	at -= crowdAt
	if at < 0 || int(at)+len(p) > len(x.mem) {
		return 0, io.EOF
	}
	return copy(p, x.mem[at:]), nil
}

func (x *crowd) put(at, v uint64) { binary.LittleEndian.PutUint64(x.mem[at:], v) }

// set writes the i-th one's number and what it is at.
func (x *crowd) set(i int, id uint64, s Status, sp uint64) {
	at, l := uint64(crowdGs+crowdG*i), &x.c.rt.layout
	x.put(at+gStackLo, 1<<33)
	x.put(at+gStackHi, 1<<33+1<<20)
	x.put(at+gM, crowdAt+crowdM)
	x.put(at+bufSP, 1<<33+sp)
	x.put(at+l.goid, id)
	x.put(at+x.c.f.status, uint64(s))
}

// born makes one, at a place of a dead one or a new one.
func (x *crowd) born(i int) {
	if i == x.n {
		x.put(crowdList+8*uint64(i), crowdAt+uint64(crowdGs+crowdG*i))
		x.n++
		x.put(0, crowdAt+crowdList)
		x.put(8, uint64(x.n))
	}
	x.last++
	x.set(i, x.last, GoRunnable, 512)
}

// TestAgain: what is brought up to date is what a census of all anew finds, and what has changed
// is told.
func TestAgain(t *testing.T) {
	tab, _ := load(t, build(t, builds["stripped"]))
	rt := NewRuntime(tab, 0)
	for _, n := range []int{1, 20, 2 * fewGoroutines} {
		rnd := rand.New(rand.NewSource(int64(n)))
		x := &crowd{mem: make([]byte, crowdGs+4*n*crowdG+1<<16)}
		x.c = rt.NewCensus(x)
		x.c.allgs = crowdAt
		for i := range n {
			x.born(i)
		}
		all, err := x.c.Goroutines(nil)
		if err != nil || len(all) != n {
			t.Fatalf("%d goroutines, %v; want %d", len(all), err, n)
		}
		kept, others := 0, 0
		for round := range 400 {
			before := slices.Clone(all)
			for range rnd.Intn(4) {
				switch i := rnd.Intn(x.n); rnd.Intn(8) {
				case 0:
					if x.n < 2*n {
						x.born(x.n)
					}
				case 1:
					x.set(i, uint64(i), GoDead, 0)
				case 2:
					x.born(i)
				case 3: // a thread has it, or another thread than before
					x.put(crowdM+rt.layout.procid, uint64(1+rnd.Intn(3)))
					fallthrough
				default:
					at := uint64(crowdGs + crowdG*i)
					if s := Status(x.mem[at+x.c.f.status]); s != GoDead {
						x.set(i, binary.LittleEndian.Uint64(x.mem[at+rt.layout.goid:]), []Status{GoRunning, GoWaiting, GoSyscall}[rnd.Intn(3)], uint64(8*rnd.Intn(100)))
					}
				}
			}
			var which []int
			var same bool
			if all, which, same, err = x.c.Again(all, nil); err != nil {
				t.Fatal(err)
			}
			anew := rt.NewCensus(x)
			anew.allgs = crowdAt
			want, err := anew.Goroutines(nil)
			if err != nil || !slices.Equal(all, want) {
				t.Fatalf("round %d of %d goroutines: %d goroutines, %v; want %d", round, n, len(all), err, len(want))
			}
			if !same {
				others++
				continue
			}
			kept++
			if len(before) != len(all) {
				t.Fatalf("round %d of %d goroutines: %d are %d the same", round, n, len(before), len(all))
			}
			for i := range all {
				if _, told := slices.BinarySearch(which, i); told != (all[i] != before[i]) || all[i].ID != before[i].ID {
					t.Fatalf("round %d of %d goroutines: %+v was %+v, told %v", round, n, all[i], before[i], told)
				}
			}
		}
		if kept < 50 || others < 50 {
			t.Errorf("%d goroutines: %d times the same ones, %d times others", n, kept, others)
		}
	}
}

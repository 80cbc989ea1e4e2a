package gopcln

//sliver:layer live

import (
	"cmp"
	"encoding/binary"
	"io"
	"math/rand"
	"slices"
	"testing"
)

// crowd is the memory of a program: its list of goroutines and their adjacent g's.
type crowd struct {
	mem  []byte
	c    *Census // for the offsets
	n    int     // number of goroutines
	last uint64  // last number assigned
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

// set writes the number and state of the i-th goroutine.
func (x *crowd) set(i int, id uint64, s Status, sp uint64) {
	at, l := uint64(crowdGs+crowdG*i), &x.c.rt.layout
	x.put(at+gStackLo, 1<<33)
	x.put(at+gStackHi, 1<<33+1<<20)
	x.put(at+gM, crowdAt+crowdM)
	x.put(at+bufSP, 1<<33+sp)
	x.put(at+l.goid, id)
	x.put(at+x.c.f.status, uint64(s))
}

// born adds a goroutine, in the place of a dead one or in a new place.
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

// TestAgain: updating a census gives the same goroutines at the same places as a new census, and
// reports all changes.
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
		all, which, err := x.c.Read(nil)
		if err != nil || len(all) != n || len(which) != n {
			t.Fatalf("%d goroutines, %d of them new, %v; want %d", len(all), len(which), err, n)
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
				case 3: // running on a thread, maybe another one than before
					x.put(crowdM+rt.layout.procid, uint64(1+rnd.Intn(3)))
					fallthrough
				default:
					at := uint64(crowdGs + crowdG*i)
					if s := Status(x.mem[at+x.c.f.status]); s != GoDead {
						x.set(i, binary.LittleEndian.Uint64(x.mem[at+rt.layout.goid:]), []Status{GoRunning, GoWaiting, GoSyscall}[rnd.Intn(3)], uint64(8*rnd.Intn(100)))
					}
				}
			}
			if all, which, err = x.c.Read(which[:0]); err != nil {
				t.Fatal(err)
			}
			anew := rt.NewCensus(x)
			anew.allgs = crowdAt
			want, _, err := anew.Read(nil)
			if err != nil || !slices.Equal(all, want) {
				t.Fatalf("round %d of %d goroutines: %d goroutines, %v; want %d", round, n, len(all), err, len(want))
			}
			if len(all) > len(before) {
				others++
				before = append(before, make([]Goroutine, len(all)-len(before))...)
			} else {
				kept++
			}
			for i := range all {
				if _, told := slices.BinarySearch(which, i); told != (all[i] != before[i]) {
					t.Fatalf("round %d of %d goroutines: %+v was %+v, told %v", round, n, all[i], before[i], told)
				}
			}
			order := x.c.ByID(nil)
			there := 0
			for _, g := range all {
				if g.ID != 0 {
					there++
				}
			}
			if len(order) != there || !slices.IsSortedFunc(order, func(a, b int32) int { return cmp.Compare(all[a].ID, all[b].ID) }) {
				t.Fatalf("round %d of %d goroutines: %d are %d by number", round, n, there, len(order))
			}
		}
		if kept < 50 || x.n <= n {
			t.Errorf("%d goroutines: %d times the same ones, %d times more, %d in the end", n, kept, others, x.n)
		}
	}
}

// TestLost: goroutines with unreadable data are counted, and the others are found.
func TestLost(t *testing.T) {
	tab, _ := load(t, build(t, builds["stripped"]))
	for _, n := range []int{3, 2 * fewGoroutines} {
		x := &crowd{mem: make([]byte, crowdGs+2*n*crowdG)}
		x.c = NewRuntime(tab, 0).NewCensus(x)
		x.c.allgs = crowdAt
		for i := range n {
			x.born(i)
		}
		if _, _, err := x.c.Read(nil); err != nil || x.c.Lost() != 0 {
			t.Fatalf("%d of %d are lost, %v", x.c.Lost(), n, err)
		}
		x.put(crowdList+8*uint64(n/2), crowdAt+uint64(len(x.mem))-8)
		x.put(crowdList+8*uint64(n-1), 1<<40)
		if _, _, err := x.c.Read(nil); err != nil || x.c.Lost() != 2 || len(x.c.ByID(nil)) != n-2 {
			t.Errorf("%d of %d are lost and %d there, %v; want 2 lost", x.c.Lost(), n, len(x.c.ByID(nil)), err)
		}
		x.put(crowdList+8*uint64(n-1), 0)
		if _, _, err := x.c.Read(nil); err != nil || x.c.Lost() != 1 {
			t.Errorf("%d of %d are lost, %v; want 1", x.c.Lost(), n, err)
		}
	}
}

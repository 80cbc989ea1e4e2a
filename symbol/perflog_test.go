package symbol

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

// Compares parts of random entries with an array that stores, for each address, all its
// names in time order.
func TestPerfLogByTime(t *testing.T) {
	for seed := range int64(200) {
		rnd := rand.New(rand.NewSource(seed))
		type name struct {
			at    int64
			name  string
			start uint64
		}
		var truth [300][]name
		var l PerfLog
		var u Reuse
		at := int64(0)
		for part := range rnd.Intn(10) {
			at += int64(rnd.Intn(3)) // may equal that of the previous part
			var b strings.Builder
			again := false
			var was [300]string
			for a, v := range truth {
				if len(v) > 0 {
					was[a] = v[len(v)-1].name
				}
			}
			for i := range rnd.Intn(8) {
				lo, n := rnd.Intn(200), 1+rnd.Intn(60)
				s := fmt.Sprintf("f%d.%d", part, i)
				fmt.Fprintf(&b, "%x %x %s\n", lo, n, s)
				for a := lo; a < lo+n; a++ {
					again = again || was[a] != ""
					if v := truth[a]; len(v) > 0 && v[len(v)-1].at == at {
						truth[a] = v[:len(v)-1]
					}
					truth[a] = append(truth[a], name{at, s, uint64(lo)})
				}
			}
			if err := l.Add(at, strings.NewReader(b.String())); err != nil {
				t.Fatal(err)
			}
			if got, err := u.Add(strings.NewReader(b.String())); err != nil || got != again {
				t.Fatalf("seed %d, part %d: reuse %v (%v), want %v", seed, part, got, err, again)
			}
		}
		var qs []PerfQuery
		want := map[PerfQuery]name{}
		for a, v := range truth {
			for until := int64(-1); until < at+2; until++ {
				q := PerfQuery{uint64(a), until}
				qs = append(qs, q)
				for i := len(v) - 1; i >= 0; i-- {
					if v[i].at < until || i == 0 {
						want[q] = v[i]
						break
					}
				}
			}
		}
		rnd.Shuffle(len(qs), func(i, j int) { qs[i], qs[j] = qs[j], qs[i] })
		l.Lookup(qs, func(q PerfQuery, got string, start uint64) {
			if w := want[q]; w.name != got || w.start != start {
				t.Fatalf("seed %d: at %#x before %d: %q from %#x, want %q from %#x", seed, q.Addr, q.Until, got, start, w.name, w.start)
			}
			delete(want, q)
		})
		if len(want) > 0 {
			t.Fatalf("seed %d: %d queries have no answer, such as %v", seed, len(want), want)
		}
	}
}

// A map that repeats entries adds no new time; pieces that do not fit are counted.
func TestReuseBounds(t *testing.T) {
	var u Reuse
	for i, c := range []struct {
		part string
		want bool
	}{
		{"1000 10 a\n1008 10 b\n", false}, {"1000 10 a\n1008 10 b\nnonsense\n", true}, // b replaced part of a
		{"2000 10 c\n", false}, {"2000 10 c\n", false}, {"2008 10 d\n", true}, {"2000 8 c\n", false},
	} {
		if got, err := u.Add(strings.NewReader(c.part)); got != c.want || err != nil {
			t.Errorf("part %d: %v %v, want %v", i, got, err, c.want)
		}
	}
	if u.Dropped != 0 {
		t.Errorf("%d dropped", u.Dropped)
	}
	if _, err := u.Add(strings.NewReader("10000 fffffffffff huge\n")); err != nil || u.Dropped != 1 {
		t.Errorf("%d dropped, %v, want 1", u.Dropped, err)
	}
	for i := range maxReusePieces/1024 + 2 {
		if _, err := u.Add(strings.NewReader(fmt.Sprintf("%x 3ff000 f\n", (i+1)<<32))); err != nil {
			t.Fatal(err)
		}
	}
	if u.n > maxReusePieces || u.n < maxReusePieces-2048 || u.Dropped < 3 {
		t.Errorf("%d pieces, %d dropped", u.n, u.Dropped)
	}
}

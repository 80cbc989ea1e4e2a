package infer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

const edge = 10

func TestWaker(t *testing.T) {
	waits := []Wait{{TID: 1, Lock: 7, Begin: 100, End: 200, Edge: edge, Func: 0xa}}
	for _, c := range []struct {
		name   string
		slices []Slice
		more   []Wait
		want   stack.TID
		why    string
	}{
		{"it left in time", []Slice{{2, 0xa, 50, 198, edge}}, nil, 2, ""},
		{"it was seen to leave one sample later", []Slice{{2, 0xa, 50, 209, edge}}, nil, 2, ""},
		{"too early", []Slice{{2, 0xa, 50, 180, edge}}, nil, 0, "no thread"},
		{"too late", []Slice{{2, 0xa, 50, 215, edge}}, nil, 0, "no thread"},
		{"another function", []Slice{{2, 0xb, 50, 198, edge}}, nil, 0, "no thread"},
		{"another function that waits for it too", []Slice{{2, 0xb, 50, 198, edge}}, []Wait{{TID: 3, Lock: 7, Begin: 1, End: 5, Func: 0xb}}, 2, ""},
		{"two", []Slice{{2, 0xa, 50, 198, edge}, {3, 0xa, 60, 199, edge}}, nil, 0, "2 threads"},
		{"two, but one was waiting", []Slice{{2, 0xa, 50, 198, edge}, {3, 0xa, 60, 205, edge}},
			[]Wait{{TID: 3, Lock: 7, Begin: 70, End: 300, Edge: edge, Func: 0xa}}, 2, ""},
		{"itself", []Slice{{1, 0xa, 90, 205, edge}}, nil, 0, "no thread"},
		{"nobody", nil, nil, 0, "no thread"},
	} {
		got := Wakers(append(slices.Clone(waits), c.more...), c.slices)[0]
		if got.TID != c.want || !strings.Contains(got.Why, c.why) || (got.TID != 0) != (got.By == event.KnownByInferred) || (got.TID == 0) == (got.Why == "") {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := Wakers([]Wait{{TID: 1, Lock: 7, Begin: 1, End: 2}}, nil)[0]; got.TID != 0 || got.Why == "" {
		t.Errorf("%+v", got)
	}
}

// Threads pass one lock on and are sampled: every waker that is named must be the right
// one.
func TestPassedOn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const threads, rounds, step = 6, 2000, 10
	up := func(x int64) stack.Time { return stack.Time((x/step + 1) * step) } // the next sample
	var waits []Wait
	var truth []stack.TID
	var slcs []Slice
	now := int64(0)
	prev := stack.TID(0)
	for range rounds {
		tid := stack.TID(1 + rnd.IntN(threads))
		if tid == prev {
			continue
		}
		hold := 15 + rnd.Int64N(200)
		if prev != 0 {
			// It arrived while the previous thread held the lock.
			waits = append(waits, Wait{TID: tid, Lock: 7, Begin: up(now - 12), End: up(now), Edge: step, Func: 0xa})
			truth = append(truth, prev)
		}
		slcs = append(slcs, Slice{tid, 0xa, up(now - 14), up(now + hold), step})
		now += hold
		prev = tid
	}
	named := 0
	for i, w := range Wakers(waits, slcs) {
		if w.TID == 0 {
			continue
		}
		named++
		if w.TID != truth[i] {
			t.Fatalf("wait %d %+v: %+v, want %d", i, waits[i], w, truth[i])
		}
	}
	if named < len(waits)*9/10 {
		t.Errorf("%d of %d named", named, len(waits))
	}
}

package kernel

import (
	"fmt"
	"testing"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// order keeps hits and losses in their order, as sums.
type order struct {
	seen []string
	hits int
	at   func(hits int)
}

func (o *order) Gone(stack.TID, stack.Time) {}

func (o *order) Hit(*calls.Hit) {
	o.hits++
	if o.at != nil {
		o.at(o.hits)
	}
}

func (o *order) Lost(n uint64) {
	o.flush()
	o.seen = append(o.seen, fmt.Sprintf("lost %d", n))
}

func (o *order) flush() {
	if o.hits > 0 {
		o.seen = append(o.seen, fmt.Sprintf("hits %d", o.hits))
	}
	o.hits = 0
}

// TestLostInOrder fills the ring twice, the second time while it is being read: the losses are exact, and each is
// reported between the hits before and after it.
func TestLostInOrder(t *testing.T) {
	testprog.Need(t, "gcc", "ptrace")
	if err := Check(); err != nil {
		testprog.Missing(t, "bpf", err.Error())
	}
	path := testprog.Build(t, "c/traced", "O2")
	p := testprog.Start(t, path, "within", "1")
	p.Ready()
	e, err := Open(p.PID, places(t, path, "probed", false))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	// Of the ring, one record's room stays free.
	const holds, first, free, second, third = ringBytes/(recordSize+8) - 1, 100_000, 10_000, 50_000, 500
	rounds := 0
	round := func(n int) {
		p.Say(fmt.Sprint(n))
		p.LineAfter(rounds, "done")
		rounds++
	}
	round(first)
	o := &order{}
	o.at = func(hits int) {
		if hits == free && rounds == 1 {
			round(second)
		}
	}
	e.Read(target.Now(), o, false)
	round(third)
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	e.Read(target.Now(), o, true)
	e.Read(target.Now(), o, true)
	o.flush()
	want := fmt.Sprint([]string{fmt.Sprintf("hits %d", holds), fmt.Sprintf("lost %d", 2*first-holds), fmt.Sprintf("hits %d", free),
		fmt.Sprintf("lost %d", 2*second-free), fmt.Sprintf("hits %d", 2*third)})
	if got := fmt.Sprint(o.seen); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

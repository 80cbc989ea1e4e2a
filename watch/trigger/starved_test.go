package trigger

import (
	"math/rand/v2"
	"testing"
)

// On a suddenly busy machine, samples find an event loop waiting for a CPU in a handler again
// and again, whatever it did before: that is not a stall. A thread that has not run at all for
// too long is out of its loop, and the text says why.
func TestStarvedIsNotStalled(t *testing.T) {
	w := newWorld(t, 1, "stall 3s", "slow f5>2s", "stall f7>3s", "stall 3s,loop=f2")
	rnd := rand.New(rand.NewPCG(5, 6))
	w.serve(rnd, 600_000*ms, .01)
	for begin := w.now; w.now < begin+60_000*ms; {
		where := deepA // it gets a CPU now and then, and is back here before the next sample
		if rnd.IntN(5) == 0 {
			where = polling
		}
		for i := range 6 {
			w.sample(0, queued, i > 0, where...)
			w.threads[0].cpu += int64(ms)
			w.tick()
		}
	}
	w.want(0)
	w.serve(rnd, w.now+60_000*ms, .01)
	for begin := w.now; w.now < begin+10_000*ms; {
		w.sample(0, queued, w.now > begin, deepA...)
		w.tick()
	}
	w.want(3, "it waits for a CPU")
	w.serve(rnd, w.now+60_000*ms, .01)
	// A thread that really stalls there is detected, though it rarely gets a CPU.
	for begin := w.now; w.now < begin+10_000*ms; {
		for i := range 10 {
			nr := int32(queued)
			if i == 0 {
				nr = -1
			}
			w.sample(0, nr, i > 1, deepA...)
			w.tick()
		}
	}
	w.want(6, "f5")
}

// Sleeps in successive handlers do not add up to one call: they may be different calls.
func TestSleepsDoNotAddUp(t *testing.T) {
	w := newWorld(t, 1, "stall 3s", "slow f5>3s")
	rnd := rand.New(rand.NewPCG(7, 8))
	learned := 0
	for w.now < 700_000*ms {
		if w.now < 100_000*ms { // in which it learns the distribution of places
			learned = len(w.fired)
		}
		for i := range 4 { // the loop is on the stack only for a moment
			w.sample(0, 230, i > 0, deepA...)
			w.tick()
		}
		if rnd.IntN(20) == 0 {
			w.sample(0, epoll, false, polling...)
			w.tick()
		}
	}
	if learned > 3 {
		t.Errorf("%d fired before it knew", learned)
	}
	w.want(learned)
}

package sampler

import "github.com/sliverprof/sliver/stack"

// tick is the clock of a group: tick k is due at dueOf(k) and lasts until the next one is due.
//
// Random gaps: each gap between ticks is independent of the program's own period. A fixed gap, or
// a grid with some jitter, is not: a stop delays a periodic program by its duration, which pulls
// the program's phase towards the ticks (lock-in), and on a jittered grid the time from a sample
// to the next one depends on the phase. Slices last from sample to sample, so only independent
// gaps make the time of a slice an unbiased estimate for programs of any period.
//
// The gaps of blockTicks ticks are a random permutation of equally spaced values in [1-jitter,
// 1+jitter] intervals. Their sum is exactly the block's length, so the rate holds, and dueOf is a
// function of seed and number: groups that share both have the same ticks.
type tick struct {
	every  int64
	k      int64
	due    stack.Time // of tick k
	jitter float64
	seed   uint64
	origin stack.Time // due time of tick -first
	first  int64      // number of tick 0 in the sequence of all ticks
	block  int64      // number of the block in ends, plus 1; 0: none
	ends   [blockTicks + 1]int64
}

const blockTicks = 64

// begin starts the clock: tick 0 is due now, tick 1 comes early by a share of the shortest gap.
func (t *tick) begin(now stack.Time, share float64) {
	t.origin = now - stack.Time((1-t.jitter)*float64(t.every)*share)
	t.first, t.k, t.due = 0, 0, now
}

// join starts the clock with tick 0 due now, followed by the ticks that all clocks of the same
// seed, interval and jitter have.
func (t *tick) join(now stack.Time) {
	t.origin, t.first = 0, 0
	t.first = t.at(now)
	t.k, t.due = 0, now
}

// at returns the number, from first, of the last tick that is due at now.
func (t *tick) at(now stack.Time) (k int64) {
	// Ticks of a block are early or late by less than a quarter of the block.
	k = max(int64(now-t.origin)/t.every-t.first-blockTicks/4-1, -t.first)
	for t.dueOf(k+1) <= now {
		k++
	}
	return k
}

// dueOf returns when tick k is due.
func (t *tick) dueOf(k int64) stack.Time {
	n := t.first + k
	if t.jitter == 0 {
		return t.origin + stack.Time(n*t.every)
	}
	b, i := n/blockTicks, n%blockTicks
	if b+1 != t.block {
		t.draw(b)
	}
	return t.origin + stack.Time(b*blockTicks*t.every+t.ends[i])
}

// draw makes the gaps of block b.
func (t *tick) draw(b int64) {
	x := t.seed + uint64(b)*golden
	var order [blockTicks]int64
	for i := range order {
		x += golden
		j := int(mix(x) % uint64(i+1))
		order[i], order[j] = order[j], int64(i)
	}
	t.block = b + 1
	for i, v := range order {
		gap := t.every + int64(t.jitter*float64(t.every)*float64(2*v+1-blockTicks)/blockTicks)
		t.ends[i+1] = t.ends[i] + gap
	}
	t.ends[blockTicks] = blockTicks * t.every
}

const golden = 0x9e3779b97f4a7c15

// mix is the output function of splitmix64.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

package methods

import (
	"math"
	"slices"
	"time"

	"github.com/sliverprof/sliver/lang/jvm/jfr"
	"github.com/sliverprof/sliver/target"
)

const (
	// maxPairs is how many readings of JFR's clock are kept, two for each recording: a minute's.
	maxPairs = 24
	// leastPairs is how many there are of a recording that was not cut short.
	leastPairs = 2
	// maxDrift is by how much JFR's own rate may be wrong, as a share. HotSpot measures it, or reads it off the CPU's name.
	maxDrift = .01
	// leastSpan is the least time, in ns, over which a rate is measured.
	leastSpan = 1e8
	// step is a change, in ns, of the time since 1970 against CLOCK_MONOTONIC that is not an error of reading.
	step = int64(time.Millisecond)
	// unknownError is the error of a clock of which there is one reading. A reading was up to a millisecond late.
	unknownError = 2 * time.Millisecond
)

// clock converts JFR's ticks to CLOCK_MONOTONIC. A chunk begins with a reading of the ticks, which is followed by one of
// the time since 1970 (JfrChunk::update_time_to_now). A thread that lost its CPU in between read the latter too late,
// never too early, so that the earliest of several readings is right. Where a tick is 1 ns, ticks are CLOCK_MONOTONIC
// since some moment; other ticks are the CPU's counter, whose rate follows from the readings.
type clock struct {
	pairs  []pair
	nanos  int64 // CLOCK_MONOTONIC minus the time since 1970
	before int64 // that at the look before
	line   line
	error  time.Duration // as far as the readings show it
}

// pair is a reading.
type pair struct{ ticks, at int64 }

// line says at which ns tick ticks is, and how many ns one takes.
type line struct {
	ticks, at int64
	per       float64
}

// time returns when a tick is, in ns, which is in 0..maxTime.
func (l line) time(ticks int64) int64 {
	return int64(min(max(float64(max(ticks, 0)-l.ticks)*l.per, float64(-l.at)), float64(maxTime-l.at))) + l.at
}

// look reads the difference of the system's clocks.
func (c *clock) look() {
	c.before = c.nanos
	best := int64(math.MaxInt64)
	for range 5 { // a thread may lose its CPU in between
		a, real, b := int64(target.Now()), time.Now().UnixNano(), int64(target.Now())
		if b-a < best {
			best, c.nanos = b-a, a+(b-a)/2-real
		}
	}
}

// stepped reports whether the system's clock was set between the last two looks.
func (c *clock) stepped() bool { return abs(c.nanos-c.before) > step }

func abs(n int64) int64 { return max(n, -n) }

// add takes the reading at the beginning of a chunk.
func (c *clock) add(h *jfr.Header) {
	n := len(c.pairs)
	if n > 0 && h.StartTicks <= c.pairs[n-1].ticks {
		return
	}
	start := min(h.Start, maxTime)
	at := start + c.nanos
	if was := start + c.before; n > 0 && c.stepped() { // before or after the system's clock was set
		if expected := c.line.time(h.StartTicks); abs(was-expected) < abs(at-expected) {
			at = was
		}
	}
	c.pairs = append(c.pairs, pair{h.StartTicks, at})
	if len(c.pairs) > maxPairs {
		c.pairs = slices.Delete(c.pairs, 0, 1)
	}
	c.fit(h.TicksPerSec)
}

// fit draws the line below the readings.
func (c *clock) fit(ticksPerSec int64) {
	const ns = 1e9
	n, first := len(c.pairs), c.pairs[0]
	last := c.pairs[n-1]
	nominal := ns / float64(ticksPerSec)
	l := line{first.ticks, first.at, nominal}
	free := 0 // readings that the rate was chosen by, beyond the one that the line goes through
	if ticksPerSec != ns && float64(last.ticks-first.ticks)*nominal >= leastSpan {
		if per := c.rate(nominal); math.Abs(per/nominal-1) <= maxDrift {
			l.per, free = per, 1
		}
	}
	off := make([]int64, n)
	for i, p := range c.pairs {
		off[i] = p.at - l.time(p.ticks)
	}
	l.at += slices.Min(off)
	c.line = l
	slices.Sort(off)
	switch {
	case n > free+1:
		c.error = time.Duration(off[free+1] - off[0])
	case n == 2: // the rate is not known better than JFR has it
		c.error = time.Duration(math.Abs(float64(last.at-first.at) - float64(last.ticks-first.ticks)*nominal))
	default:
		c.error = unknownError
	}
}

// rate returns how many ns a tick takes by the line from a reading in the first half to one in the second half that has
// no reading below it.
func (c *clock) rate(nominal float64) (per float64) {
	n := len(c.pairs)
	middle := c.pairs[0].ticks + (c.pairs[n-1].ticks-c.pairs[0].ticks)/2
	per, best := nominal, math.Inf(-1)
	for _, a := range c.pairs {
		for _, b := range c.pairs {
			if a.ticks > middle || b.ticks <= middle {
				continue
			}
			slope, least := float64(b.at-a.at)/float64(b.ticks-a.ticks), 0.
			for _, p := range c.pairs {
				least = min(least, float64(p.at-a.at)-float64(p.ticks-a.ticks)*slope)
			}
			if least > best {
				per, best = slope, least
			}
		}
	}
	return per
}

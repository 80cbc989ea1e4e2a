package target

// spins decides whether spinning for a stop is worthwhile: if all CPUs of a machine are busy, a
// thread without one stops when it gets one, and that may be the one that spins.
type spins struct {
	missed int  // stops in a row that took longer than a spin
	slept  int  // stops without a spin since the last one with
	spun   bool // the current stop is awaited by a spin
}

const (
	spinMisses = 3 // misses in a row after which stops are awaited by sleeping
	spinAgain  = 8 // one in this number of those is awaited by a spin, as a test
)

// next returns how long, in ns, to spin for the next stop; want is the usual duration.
func (p *spins) next(want int64) int64 {
	p.spun = true
	if p.missed < spinMisses {
		return want
	}
	if p.slept++; p.slept >= spinAgain {
		p.slept = 0
		return want
	}
	p.spun = false
	return 1
}

// note records the duration of a stop in ns, and whether it was in time. A thread that shares its
// CPU with its stopper stops as soon as the stopper sleeps, so a short stop that was awaited by
// sleeping does not show that a spin would work.
func (p *spins) note(after int64, inTime bool) {
	if !p.spun {
		return
	}
	if inTime && after <= DefaultSpin {
		p.missed, p.slept = 0, 0
	} else {
		p.missed = min(p.missed+1, spinMisses)
	}
}

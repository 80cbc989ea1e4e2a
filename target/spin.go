package target

// spins is whether it is worth while to wait for a stop by spinning: on a machine whose
// CPUs are all taken, a thread that has none stops when it gets one, which may be the
// one that is spun on.
type spins struct {
	missed int  // stops in a row that came later than a spin lasts
	slept  int  // stops without a spin since the last one with
	spun   bool // the stop under way is spun for
}

const (
	spinMisses = 3 // after so many in a row the next ones are slept for
	spinAgain  = 8 // of which every so many-th is spun for, to see
)

// next is for how long, in ns, to spin for the next stop, where it would be want.
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

// note records how a stop went: after so many ns, or not in time. A thread that shares its
// CPU with its stopper stops as soon as that sleeps: a stop that was slept for and came soon does not
// show that a spin would do.
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

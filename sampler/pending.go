package sampler

import "github.com/sliverprof/sliver/stack"

// A tick may get its sample after its round. pend says why ticks of a thread are open: all of them for the
// same reason, so a thread has one state. It begins and ends settled.
type pend uint8

const (
	settled pend = iota // each past tick has a sample, or is recorded as missing
	napping             // ticks were left out; the next look shows whether it slept: see nap.go
	blind               // only a clock of the process was read; the next look confirms it: see ahead.go
	unsure              // it may be leaving a call, and is looked at again in this tick: see unsure.go
	awaited             // a stop was requested; the sample comes when it gets a CPU: see later.go
	pends
)

// never marks the changes that may not occur, since open ticks would be lost.
const never = pends

// tickChange is an event that opens ticks of a thread, or settles them.
type tickChange uint8

const (
	napped    tickChange = iota // a nap leaves out a tick
	byClock                     // a tick is sampled by a clock of the process
	doubted                     // a look was not sure whether it may stop the thread (ErrUnsure)
	requested                   // a stop is under way (ErrLater)
	resolved                    // a look, a sample that came, or the end of the wait
	tickChanges
)

// nextPend is the table of transitions. The columns are napped, byClock, doubted, requested and resolved.
var nextPend = [pends][tickChanges]pend{
	settled: {napping, blind, unsure, awaited, settled},
	napping: {napping, never, never, never, settled},
	blind:   {never, blind, never, never, settled},
	unsure:  {never, never, never, never, settled},
	awaited: {never, never, never, awaited, settled},
}

// pending are a thread's open ticks.
type pending struct {
	is    pend
	ticks []stack.Time // of awaited: when each was due
	skips int          // of napping: ticks since the last look
	last  stack.Time   // of napping: the last of these
	looks int          // of unsure: repeated looks for this tick
}

// to changes the state and reports whether the table allows that.
func (p *pending) to(c tickChange) bool {
	n := nextPend[p.is][c]
	if n == never {
		return false
	}
	p.is = n
	return true
}

// skip opens a tick that a nap leaves out.
func (p *pending) skip(due stack.Time) bool {
	if !p.to(napped) {
		return false
	}
	p.skips++
	p.last = due
	return true
}

// expect opens a tick whose sample was requested.
func (p *pending) expect(at stack.Time) bool {
	if !p.to(requested) {
		return false
	}
	p.ticks = append(p.ticks, at)
	return true
}

// take settles the ticks and returns those whose sample was requested. They are valid until the next
// expect.
func (p *pending) take() (ticks []stack.Time) {
	p.to(resolved)
	ticks, p.ticks = p.ticks, p.ticks[:0]
	return ticks
}

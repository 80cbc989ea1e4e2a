package jvm

import "github.com/sliverprof/sliver/stack"

// maxPlaces bounds what one walker keeps of places in code; above it all is asked anew.
const maxPlaces = 1 << 14

// place is what the code around an address is. It holds as long as its blob does, which
// Still finds out after each walk; so a walk through code that was met before reads
// nothing but the copy of the stack.
type place struct {
	b *blob

	known     uint8  // which of these were asked for
	call      bool   // it is behind a call: see Runtime.returns
	arguments uint64 // see Runtime.arguments
	back      uint64 // of code out of line: where it goes on
	early     bool   // see Runtime.early
	out       uint64 // see Runtime.leads; leaves: it is known
	leaves    bool
	depth     uint64 // of the return address; made: that of the whole frame. See leafDepth and stubDepth.
	made      bool
	calls     []active // see Runtime.active
}

const (
	knownCall = 1 << iota
	knownArguments
	knownDepth
	knownCalls
	knownEarly
	knownOut
)

// active is one of the calls that are active at a place of a compiled method.
type active struct {
	m     *method // nil: it cannot be read
	bci   int
	order int
}

// placeOf is the place of the next instruction, where exact, or behind a call.
func (s *State) placeOf(r *Runtime, pc uint64, exact bool) (*place, error) {
	key, at := pc<<1, pc-1
	if exact {
		key, at = key|1, pc
	}
	if p := s.places[key]; p != nil && !p.b.gone.Load() {
		return p, nil
	}
	b, err := r.find(at)
	if err != nil {
		return nil, err
	}
	p := &place{b: b}
	if s.places == nil || len(s.places) >= maxPlaces {
		s.places = map[uint64]*place{}
	}
	s.places[key] = p
	return p, nil
}

// depthBy is what find, leafDepth or stubDepth, says of the place.
func (p *place) depthBy(find func(*blob, uint64) (uint64, bool), pc uint64) (depth uint64, ok bool) {
	if p.known&knownDepth == 0 {
		p.depth, ok = find(p.b, pc)
		p.made, p.known = !ok, p.known|knownDepth
	}
	return p.depth, !p.made
}

// uses notes that the walk takes b for granted.
func (s *State) uses(b *blob) {
	if n := len(s.used); !b.stays() && (n == 0 || s.used[n-1].b != b) {
		s.used = append(s.used, use{b: b})
	}
}

// frames appends the frames of the calls that are active at a place.
func (p *place) frames(cfa uint64, out []stack.Frame) []stack.Frame {
	for i := range p.calls {
		c := &p.calls[i]
		if c.m == nil {
			out = append(out, stack.Frame{Func: p.b.code, PC: uint64(stack.ReasonMemory), CFA: cfa, Kind: stack.KindError, Order: uint8(min(c.order, 255))})
			continue
		}
		out = append(out, java(c.m, c.bci, cfa, c.order))
	}
	return out
}

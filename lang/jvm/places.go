package jvm

import "github.com/sliverprof/sliver/stack"

// maxPlaces bounds the places that one walker caches. The cache is cleared when it is full.
const maxPlaces = 1 << 14

// place caches facts about the code around an address. It is valid as long as its blob is, which
// Still checks after each walk. So a walk through known code reads only the copy of the stack.
type place struct {
	b *blob

	known     uint8  // which of the facts below are known
	call      bool   // it follows a call: see Runtime.returns
	arguments uint64 // see Runtime.arguments
	back      uint64 // of code out of line: where it continues
	early     bool   // see Runtime.early
	out       uint64 // see Runtime.leads; leaves: out is known
	leaves    bool
	depth     uint64 // of the return address; made: use that of the whole frame. See leafDepth and stubDepth.
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

// active is one active call at a place of a compiled method.
type active struct {
	m     *method // nil: unreadable
	bci   int
	order int
}

// placeOf returns the place of the next instruction if exact is true, and of a return address
// otherwise.
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

// depthBy caches the result of find, which is leafDepth or stubDepth.
func (p *place) depthBy(find func(*blob, uint64) (uint64, bool), pc uint64) (depth uint64, ok bool) {
	if p.known&knownDepth == 0 {
		p.depth, ok = find(p.b, pc)
		p.made, p.known = !ok, p.known|knownDepth
	}
	return p.depth, !p.made
}

// uses records that the walk relies on b.
func (s *State) uses(b *blob) {
	if n := len(s.used); !b.stays() && (n == 0 || s.used[n-1].b != b) {
		s.used = append(s.used, use{b: b})
	}
}

// frames appends the frames of the active calls at a place.
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

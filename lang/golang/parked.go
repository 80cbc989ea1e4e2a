package golang

import (
	"encoding/binary"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	// parkedGuess is the first number of bytes to copy from a parked goroutine's stack. Most wait a
	// few calls deep.
	parkedGuess = 512
	// parkedNear is the maximum distance between two stacks that are read together. The cost of a
	// read depends on the number of pages.
	parkedNear = 4 << 10
	// parkedBatch is the approximate number of bytes copied at once. A batch is still in the CPU's
	// cache when it is walked.
	parkedBatch = 128 << 10
)

// Parked collects the distinct stacks of goroutines that no thread runs. The position of a return
// address in a Go frame depends on the PC alone. So a stack with the same return addresses as one
// that was walked before is equal to it and is not walked again. A Parked must be used by one
// goroutine.
type Parked struct {
	// Stacks are leaf first. Their frames have no CFA. Reasons holds why each stack ends early;
	// Stacks has no frame for that.
	Stacks  [][]stack.Frame
	Reasons []stack.Reason

	w     *unwind.Walker
	space *unwind.Space
	epoch uint64 // of the maps when Stacks were walked
	roots map[root]*place
	byKey map[string]int
	key   []byte
	spans []rule.Span
	off   []int
	buf   []byte
	first []int // index of the first goroutine of each span
	last  struct {
		at   root
		from *place // p.roots[at]
	}
}

// root is the position at which a parked goroutine continues.
type root struct {
	pc    uint64
	fresh bool // it has not started yet
}

// place is a position that a walk reached.
type place struct {
	off   uint64 // distance of the return address from the leaf's SP, in bytes
	stack int    // index in Parked.Stacks; -1: the walk continues
	first way    // the way seen first, usually the most frequent
	next  map[uint64]*place
}

// way is one continuation, selected by the return address.
type way struct {
	ra uint64
	to *place // nil: unknown
}

// by returns the place that a return address leads to, or nil if it is unknown.
func (x *place) by(ra uint64) *place {
	if x.first.ra == ra {
		return x.first.to
	}
	return x.next[ra]
}

// lead adds a way to a place.
func (x *place) lead(ra uint64, to *place) {
	switch {
	case x.first.to == nil:
		x.first = way{ra, to}
	case x.next == nil:
		x.next = map[uint64]*place{ra: to}
	default:
		x.next[ra] = to
	}
}

// NewParked returns an empty collection of stacks of a process.
func NewParked(s *unwind.Space) *Parked {
	return &Parked{w: unwind.NewWalker(s), space: s, epoch: s.Epoch(), roots: map[root]*place{}, byKey: map[string]int{}}
}

// maxParked bounds the number of stacks kept for later looks.
const maxParked = 1 << 12

// Holds reports whether p is still usable: the program's code is mapped where it was, and p is not
// too large. If not, use a new Parked.
func (p *Parked) Holds() bool {
	return p.epoch == p.space.Epoch() && len(p.Stacks) <= maxParked
}

// Walk finds the stacks of the goroutines all[i] for each i in which, from the target's current
// memory. It calls take with each i and the index of its stack in p.Stacks. A goroutine that moves
// during the walk gets a stack that ends early or shows its previous state, as with
// the function Walk. Reads are fastest if which is sorted by stack address.
func (p *Parked) Walk(all []gopcln.Goroutine, which []int, take func(i, stack int)) {
	for from := 0; from < len(which); {
		p.spans, p.first = p.spans[:0], p.first[:0]
		size, end, k := 0, uint64(0), from
		for ; k < len(which) && size < parkedBatch; k++ {
			g := &all[which[k]]
			if g.SP < g.Lo || g.SP >= g.Hi {
				p.spans = append(p.spans, rule.Span{Len: 1}) // an empty span
				p.first = append(p.first, k)
				end = 0
				continue
			}
			n := min(g.Hi-g.SP, parkedGuess)
			if last := len(p.spans) - 1; last >= 0 && end > 0 && g.SP >= end && g.SP-end <= parkedNear {
				size += int(g.SP + n - end)
				p.spans[last].Len += int(g.SP + n - end)
			} else {
				p.spans = append(p.spans, rule.Span{Addr: g.SP, Len: int(n)})
				p.first = append(p.first, k)
				size += int(n)
			}
			end = g.SP + n
		}
		p.off, p.buf = unwind.ReadAll(p.space.Memory(), p.spans, p.off, p.buf)
		for i, s := range p.spans {
			last := k
			if i+1 < len(p.spans) {
				last = p.first[i+1]
			}
			for _, j := range which[p.first[i]:last] {
				g := &all[j]
				var data []byte
				if p.off[i] >= 0 && s.Addr > 0 {
					data = p.buf[p.off[i]+int(g.SP-s.Addr):][:min(g.Hi-g.SP, parkedGuess)]
				}
				take(j, p.find(g, data))
			}
		}
		from = k
	}
}

// find returns the index of g's stack, whose top is in data.
func (p *Parked) find(g *gopcln.Goroutine, data []byte) int {
	at := root{g.PC, g.PC == g.Func}
	if at != p.last.at || p.last.from == nil { // most continue where the previous one does
		p.last.at, p.last.from = at, p.roots[at]
	}
	for x := p.last.from; x != nil; {
		if x.stack >= 0 {
			return x.stack
		}
		if x.off+8 > uint64(len(data)) {
			break
		}
		x = x.by(binary.LittleEndian.Uint64(data[x.off:]))
	}
	frames, reason := Walk(p.w, g)
	if reason != stack.ReasonNone && len(frames) > 0 {
		frames = frames[:len(frames)-1]
	}
	k := p.add(frames, reason)
	if reason == stack.ReasonNone {
		p.learn(at, g.SP, frames, k)
	}
	return k
}

// add appends a stack to p.Stacks and returns its index.
func (p *Parked) add(frames []stack.Frame, reason stack.Reason) int {
	p.key = append(p.key[:0], byte(reason))
	for i := range frames {
		p.key = binary.LittleEndian.AppendUint64(p.key, frames[i].PC)
		p.key = append(p.key, byte(frames[i].Trust))
	}
	k, ok := p.byKey[string(p.key)]
	if !ok {
		k = len(p.Stacks)
		p.byKey[string(p.key)] = k
		own := slices.Clone(frames)
		for i := range own {
			own[i].CFA = 0
		}
		p.Stacks, p.Reasons = append(p.Stacks, own), append(p.Reasons, reason)
	}
	return k
}

// learn records how the walk from at found the stack k. It requires that every step used Go's
// tables on one stack: only those find a return address by the stack pointer alone.
func (p *Parked) learn(at root, sp uint64, frames []stack.Frame, k int) {
	if p.w.Turns() > 0 || len(frames) == 0 {
		return
	}
	offs := make([]uint64, len(frames)-1)
	below := sp // SP inside the frame
	for i := range offs {
		f := &frames[i]
		if f.Kind != stack.KindGo || frames[i+1].Trust != stack.TrustTable || f.CFA < sp+8 {
			return
		}
		switch ra := frames[i+1].PC; {
		case isWord(p.w, f.CFA-8, ra): // amd64
			offs[i] = f.CFA - 8 - sp
		case isWord(p.w, below, ra): // arm64
			offs[i] = below - sp
		default:
			return
		}
		below = f.CFA
	}
	if frames[len(frames)-1].Kind != stack.KindGo {
		return
	}
	x := p.roots[at]
	if x == nil {
		x = &place{stack: -1}
		p.roots[at] = x
	}
	for i, off := range offs {
		if x.first.to == nil {
			x.off = off
		}
		if x.off != off {
			return
		}
		y := x.by(frames[i+1].PC)
		if y == nil {
			y = &place{stack: -1}
			x.lead(frames[i+1].PC, y)
		}
		x = y
	}
	if x.first.to == nil {
		x.stack = k
	}
}

// isWord reports whether the last walk's copy has v at addr.
func isWord(w *unwind.Walker, addr, v uint64) bool {
	got, ok := w.Word(addr)
	return ok && got == v
}

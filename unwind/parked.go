package unwind

import (
	"encoding/binary"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	// parkedGuess is copied of a parked goroutine's stack at first: most wait a few
	// calls deep.
	parkedGuess = 512
	// parkedNear is how far apart two stacks may lie that are read as one: what it takes
	// to read goes by pages.
	parkedNear = 4 << 10
	// parkedBatch is about how much is copied at once, so that it is still in a CPU's
	// cache when it is walked.
	parkedBatch = 128 << 10
)

// Parked are the stacks of goroutines that no thread runs, each once. Where a
// function of Go has its return address follows from the place in it alone; so a
// stack whose return addresses are those of one that was walked before is that
// stack, and is not walked. It belongs to one goroutine of ours.
type Parked struct {
	// Stacks are leaf first; their frames have no CFA. Reasons say why each ends early;
	// there is no frame for that.
	Stacks  [][]stack.Frame
	Reasons []stack.Reason

	w     *Walker
	epoch uint64 // of the maps that its stacks are of
	roots map[root]*place
	byKey map[string]int
	key   []byte
	spans []rule.Span
	off   []int
	buf   []byte
	first []int // the goroutine that each span begins with
	last  struct {
		at   root
		from *place // p.roots[at]
	}
}

// root is where a parked goroutine goes on.
type root struct {
	pc    uint64
	fresh bool // it has not run yet
}

// place is a place that a walk came to.
type place struct {
	off   uint64 // where the return address lies from there, in bytes above the leaf's SP
	stack int    // in Parked.Stacks; -1: the walk goes on
	first way    // where it goes on mostly: the one that was seen first
	next  map[uint64]*place
}

// way is one way on, by the return address.
type way struct {
	ra uint64
	to *place // nil: none is known
}

// by is where a walk goes on with that return address; nil: that is not known.
func (x *place) by(ra uint64) *place {
	if x.first.ra == ra {
		return x.first.to
	}
	return x.next[ra]
}

// lead adds a way on.
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

// Parked makes an empty collection of stacks that w walks.
func (w *Walker) Parked() *Parked {
	return &Parked{w: w, epoch: w.space.snap.Load().epoch, roots: map[root]*place{}, byKey: map[string]int{}}
}

// maxParked is how many stacks are remembered for later looks.
const maxParked = 1 << 12

// Holds reports whether what is known of stacks holds still, and is not too much: the
// program's code is mapped where it was. Else another Parked is to take its place.
func (p *Parked) Holds() bool {
	return p.epoch == p.w.space.snap.Load().epoch && len(p.Stacks) <= maxParked
}

// Walk finds the stacks of the goroutines that all[i] for i in which are, from the
// target's memory as it is now, and tells take of each where in p.Stacks it is. What
// moves meanwhile ends a stack early or shows as it was, as with Walker.Goroutine.
// In the order of their stacks' addresses they are read fastest.
func (p *Parked) Walk(all []gopcln.Goroutine, which []int, take func(i, stack int)) {
	for from := 0; from < len(which); {
		p.spans, p.first = p.spans[:0], p.first[:0]
		size, end, k := 0, uint64(0), from
		for ; k < len(which) && size < parkedBatch; k++ {
			g := &all[which[k]]
			if g.SP < g.Lo || g.SP >= g.Hi {
				p.spans = append(p.spans, rule.Span{Len: 1}) // brings nothing
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
		p.off, p.buf = readAll(p.w.space.mem, p.spans, p.off, p.buf)
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

// find gives g's stack, whose top is in data.
func (p *Parked) find(g *gopcln.Goroutine, data []byte) int {
	at := root{g.PC, g.PC == g.Func}
	if at != p.last.at || p.last.from == nil { // most are where the one before is
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
	frames, reason := p.w.Goroutine(g)
	if reason != stack.ReasonNone && len(frames) > 0 {
		frames = frames[:len(frames)-1]
	}
	k := p.add(frames, reason)
	if reason == stack.ReasonNone {
		p.learn(at, g.SP, frames, k)
	}
	return k
}

// add gives a stack its place in p.Stacks.
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

// learn notes how the walk from at found the stack k, if every step of it was by
// Go's tables, on one stack: those know a return address by the stack pointer alone.
func (p *Parked) learn(at root, sp uint64, frames []stack.Frame, k int) {
	if p.w.turns > 0 || len(frames) == 0 {
		return
	}
	offs := make([]uint64, len(frames)-1)
	below := sp // the stack pointer in the frame
	for i := range offs {
		f := &frames[i]
		if f.Kind != stack.KindGo || frames[i+1].Trust != stack.TrustTable || f.CFA < sp+8 {
			return
		}
		switch ra := frames[i+1].PC; {
		case p.w.isWord(f.CFA-8, ra): // amd64
			offs[i] = f.CFA - 8 - sp
		case p.w.isWord(below, ra): // arm64
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

// isWord reports whether the last walk had v at addr.
func (w *Walker) isWord(addr, v uint64) bool {
	got, ok := w.word(addr)
	return ok && got == v
}

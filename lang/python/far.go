package python

import (
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	// maxFar bounds the frames that are read at once during a stop: some 200 KiB. The first atOnce
	// of them are read first, because they often suffice.
	maxFar = 2500
	atOnce = 512
	// maxHoles bounds the retries after a frame turned out to be unmapped. Each retry skips the
	// frames that were freed with it, usually an arena of this many bytes (ARENA_SIZE in
	// Objects/obmalloc.c of 3.8).
	maxHoles = 6
	arena    = 256 << 10
)

// readFar reads frames from recent stacks in batches, and the data stack if it is not the one that
// was copied. It then captures the stack from these, and reads any remaining frames one by one.
func (in *interpreter) readFar(p *pyThread, mem *unwind.Copy) {
	pl := &p.plan
	if pl.reader.near == nil {
		pl.reader.near = map[uint64][]byte{}
	}
	pl.spans, pl.buf = pl.spans[:0], pl.buf[:0]
	if at := p.chunk(); at != 0 && at != pl.newest {
		pl.spans = p.dataStacks(p.live, pl.spans)
	}
	have := pl.eachFar(p.live, p.th.FrameSize(), func() bool {
		pl.reader.begin(mem, nil, pl.chunks)
		p.have = in.capture(p, &pl.reader, &p.stack)
		return !pl.reader.short
	})
	if !have {
		pl.reader.begin(mem, p.live, pl.chunks)
		p.have = in.capture(p, &pl.reader, &p.stack)
	}
}

// eachFar reads pl's spans, which are chunks of the data stack, and recent frames of size bytes,
// until enough returns true. It reports whether enough did.
func (pl *pyPlan) eachFar(live *meter.Meter, size int, enough func() bool) bool {
	chunks := len(pl.spans)
	for at, n, holes := 0, atOnce, 0; at < len(pl.far)+chunks && holes <= maxHoles; {
		n = min(n, len(pl.far)-at)
		read := pl.readNear(live, chunks, pl.far[at:at+n], size) - chunks
		chunks = 0
		if live.Spent() {
			break
		}
		if read < n {
			holes++
			at += max(read, 0)
			if read >= 0 {
				pl.far = gaveBack(pl.far, at)
			}
			continue
		}
		at, n = at+n, stack.MaxSpans
		if enough() {
			return true
		}
	}
	return false
}

// gaveBack removes from far the frame at i, which is unmapped, and the later frames in the same
// arena.
func gaveBack(far []uint64, i int) []uint64 {
	lost := far[i] / arena
	kept := slices.DeleteFunc(far[i:], func(at uint64) bool { return at/arena == lost })
	return far[:i+len(kept)]
}

// readNear reads the first chunks of pl's spans, and frames of each bytes, for pl's reader. It
// returns how many spans and frames it read before the first failure.
func (pl *pyPlan) readNear(live *meter.Meter, chunks int, frames []uint64, each int) int {
	pl.spans = pl.spans[:chunks]
	size := 0
	for _, s := range pl.spans {
		size += s.Len
	}
	for _, at := range frames {
		pl.spans = append(pl.spans, rule.Span{Addr: at, Len: each})
	}
	size += len(frames) * each
	used := len(pl.buf) // by earlier reads
	pl.buf = slices.Grow(pl.buf, size)[:used+size]
	b := pl.buf[used:]
	got := live.ReadSpans(pl.spans, b)
	for i, s := range pl.spans {
		if s.Len > got {
			return i
		}
		if i < chunks {
			pl.reader.data = append(pl.reader.data, unwind.Block{Addr: s.Addr, Data: b[:s.Len]})
		} else {
			pl.reader.near[s.Addr] = b[:s.Len]
		}
		b, got = b[s.Len:], got-s.Len
	}
	return len(pl.spans)
}

// keepFar records the frames of a stack whose copy lacked some.
func (pl *pyPlan) keepFar(s *Stack) {
	pl.was, pl.far = pl.far, pl.was[:0]
	if pl.seen == nil {
		pl.seen = map[uint64]struct{}{}
	}
	clear(pl.seen)
	add := func(at uint64) {
		if _, ok := pl.seen[at]; len(pl.far) < maxFar && !ok && !pl.inChunk(at) {
			pl.seen[at] = struct{}{}
			pl.far = append(pl.far, at)
		}
	}
	for i := range s.Frames {
		add(s.Frames[i].Addr)
	}
	for _, at := range pl.was {
		add(at)
	}
}

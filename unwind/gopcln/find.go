package gopcln

import (
	"debug/elf"
	"errors"
	"slices"

	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	maxGoData  = 256 << 20 // data and bss of a program
	maxReasons = 128       // the wait reasons; 1.26 has 47
	maxReason  = 64        // bytes of one
	dataChunk  = 1 << 20
)

// ErrNoGoroutines says that the runtime's list of goroutines was not found.
var ErrNoGoroutines = errors.New("the Go runtime's list of goroutines was not found")

// found holds where a runtime's list of goroutines is, and its texts of wait reasons.
type found struct {
	allgs   uint64
	reasons []string
}

// maxCandidates bounds the places in one piece of data that may be the list.
const maxCandidates = 1 << 12

// Find searches the program's data for the slice of all goroutines and for the array of wait
// reasons, unless another Census of the process has found them. Both are validated by their
// content, so no symbol is needed. If the program has just started, Find may fail with
// ErrNoGoroutines. Read calls Find if necessary.
func (c *Census) Find() error {
	if c.allgs != 0 {
		return nil
	}
	if l := c.rt.list.Load(); l != nil {
		c.allgs, c.reasons = l.allgs, l.reasons
		return nil
	}
	c.reasons = nil
	b := make([]byte, dataChunk+reasonsLen)
	var maybe []uint64 // positions in b that may be the list
search:
	for i := range c.rt.table.img.segs {
		s := &c.rt.table.img.segs[i]
		if s.Flags&elf.PF_X != 0 || s.Memsz > maxGoData {
			continue
		}
		for off := uint64(0); off < s.Memsz; off += dataChunk {
			n := min(uint64(len(b)), s.Memsz-off)
			at := s.Vaddr + off + c.rt.bias
			if c.read(b[:n], at) != nil {
				continue // a hole, or unmapped by now
			}
			maybe = maybe[:0]
			for d := (8 - at%8) % 8; d+24 <= n; d += 8 {
				if c.allgs == 0 && s.Flags&elf.PF_W != 0 && mayBeAllgs(b[d:n]) {
					maybe = append(maybe, d)
				}
				if c.reasons == nil && d+reasonsLen <= n && isReasons(b[d:n]) {
					c.reasons = c.readReasons(at + d)
				}
			}
			for len(maybe) > 0 && c.allgs == 0 {
				k := min(len(maybe), maxCandidates)
				if d, ok := c.allgsOf(b, maybe[:k]); ok {
					c.allgs = at + d
				}
				maybe = maybe[k:]
			}
			if c.allgs != 0 && c.reasons != nil {
				break search
			}
		}
	}
	if c.allgs == 0 {
		return ErrNoGoroutines
	}
	c.rt.list.Store(&found{c.allgs, c.reasons})
	return nil
}

// mayBeAllgs reports whether b may start with a slice of g's.
func mayBeAllgs(b []byte) bool {
	at, n, room := le(b, 0), le(b, 8), le(b, 16)
	return pointer(at) && n > 0 && n <= room && room <= 2*MaxGoroutines
}

// allgsOf returns which of some places in b is a slice of g's. Its first goroutine is number 1,
// which starts in runtime.main and never ends.
func (c *Census) allgsOf(b []byte, at []uint64) (d uint64, ok bool) {
	heads := make([]uint64, len(at))
	for i, d := range at {
		heads[i] = le(b, d)
	}
	first := make([]uint64, len(at))
	c.each(heads, 8, func(i int, b []byte) {
		if p := le(b, 0); pointer(p) {
			first[i] = p
		}
	})
	var of []int
	gs := heads[:0]
	for i, g := range first {
		if g != 0 {
			of, gs = append(of, i), append(gs, g)
		}
	}
	best := len(at)
	c.each(gs, c.f.length, func(i int, g []byte) {
		var f fn
		lo, hi := le(g, gStackLo), le(g, gStackHi)
		start := le(g, c.f.startpc) - c.rt.bias
		if le(g, c.rt.layout.goid) == 1 && lo < hi && hi-lo <= maxStack && c.rt.table.find(start, &f) == nil && f.entry == start {
			best = min(best, of[i])
		}
	})
	if best == len(at) {
		return 0, false
	}
	return at[best], true
}

// each reads size bytes at each of addrs, and calls do for those that are readable.
func (c *Census) each(addrs []uint64, size int, do func(i int, b []byte)) {
	spans := make([]rule.Span, len(addrs))
	for i, a := range addrs {
		spans[i] = rule.Span{Addr: a, Len: size}
	}
	b := make([]byte, len(addrs)*size)
	for from := 0; from < len(spans); from++ { // skips one that cannot be read
		got := c.readSpans(spans[from:], b)
		for k := 0; got >= size; k, got = k+1, got-size {
			do(from, b[k*size:(k+1)*size])
			from++
		}
	}
}

// Lengths of the first reasons in every version: "", "GC assist marking" and "IO wait".
var reasonLens = [...]uint64{0, 17, 7}

const reasonsLen = 16 * 3

func isReasons(b []byte) bool {
	for i, n := range reasonLens {
		if le(b, uint64(16*i+8)) != n || i > 0 && !pointerTo(le(b, uint64(16*i))) {
			return false
		}
	}
	return true
}

// pointerTo is pointer without the alignment check.
func pointerTo(p uint64) bool { return p >= minPointer && p <= maxPointer }

func (c *Census) readReasons(at uint64) (out []string) {
	var h [16]byte
	var s [maxReason]byte
	for i := range uint64(maxReasons) {
		if c.read(h[:], at+16*i) != nil {
			break
		}
		p, n := le(h[:], 0), le(h[:], 8)
		if n > maxReason || i > 0 && (n == 0 || !pointerTo(p)) || n > 0 && c.read(s[:n], p) != nil || !plainText(s[:n]) {
			break
		}
		out = append(out, string(s[:n]))
	}
	if !slices.Contains(out, "chan receive") || out[1] != "GC assist marking" || out[2] != "IO wait" {
		return nil
	}
	return out
}

func plainText(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

package unwind

import (
	"github.com/sliverprof/sliver/unwind/rule"
)

// maxBases bounds the cached results of frameBase.
const maxBases = 1 << 12

// A base is the distance from the stack pointer up to the frame pointer at one PC.
type base struct {
	delta uint64
	ok    bool
}

// frameBase computes the frame pointer of an amd64 function whose stack pointer is sp at pc. Of a
// blocked thread only pc and sp are known, and its callees have not saved the frame pointer. The
// code from the function's start to pc gives the distance between both registers, unless it moves
// SP by a run-time amount (alloca). The result is accepted only if e then finds a return address:
// after a call, in known code.
func (w *Walker) frameBase(e *entry, pc, sp uint64) (fp uint64, ok bool) {
	if w.arch != rule.AMD64 || int(e.cfaReg) != w.fp || e.raOff == 0 || e.fn == 0 || pc <= e.fn {
		return 0, false
	}
	b, known := w.bases[pc]
	if !known {
		if b.delta, b.ok, known = w.follow(e.fn, pc); !known {
			return 0, false
		}
		if w.bases == nil || len(w.bases) >= maxBases {
			w.bases = map[uint64]base{}
		}
		w.bases[pc] = b
	}
	if !b.ok {
		return 0, false
	}
	fp = sp + b.delta
	ra, ok := w.word(fp + uint64(int64(e.cfaOff)) - uint64(e.raOff)*8)
	return fp, ok && w.isCode(ra) && w.called(ra)
}

// follow scans every path from a function's start to pc and returns the distance from the stack
// pointer up to the frame pointer there. known is false if the code could not be read now.
func (w *Walker) follow(fn, pc uint64) (delta uint64, ok, known bool) {
	r := w.snap.find(fn)
	if r == nil || r.mod == nil || pc >= r.end {
		return 0, false, false
	}
	bias, loaded := r.mod.bias(r)
	if !loaded {
		return 0, false, false
	}
	w.scan(r.mod, r, bias, fn).run(func(p *path) bool {
		if p.pc != pc {
			return false
		}
		sp, fp := p.regs[rule.AMD64SP], p.regs[rule.AMD64FP]
		both := sp.kind == symAddr && fp.kind == symAddr && sp.base == rule.AMD64SP && fp.base == rule.AMD64SP
		delta, ok = uint64(fp.off-sp.off), both && fp.off >= sp.off && fp.off-sp.off <= maxFrame
		return true
	}, nil)
	return delta, ok, true
}

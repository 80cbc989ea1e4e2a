package unwind

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/rule"
)

// A slowRule is a rule that does not fit into an entry.
type slowRule struct {
	rule.Rule
	bias   uint64
	linear []linear // one per element of Exprs
}

type linear struct {
	cfi.Linear
	ok bool
}

// compile makes the entry for a lookup address that is not in the cache. pc is the code address
// that the rule describes: key or key+1. The reason is ReasonUnmapped if no code is known there.
func (w *Walker) compile(key, pc uint64) (*entry, stack.Reason) {
	if w.cache.full() {
		w.forget()
	}
	r := w.snap.find(key)
	e := entry{pc: key}
	for _, s := range w.with.steppers {
		if s.Covers(key) { // before the maps: the runtime's code grows
			e.op = opRuntime
			return w.cache.put(&e), stack.ReasonNone
		}
	}
	if key == 0 || r == nil || !r.exec && !r.made {
		// A trampoline may be the first thing in its mapping.
		if r = w.snap.find(pc); key != 0 && r != nil && r.exec && w.trampoline(nil, 0, pc) {
			e.op, e.fn, e.era = opSignal, pc, r.era
			return w.cache.put(&e), stack.ReasonNone
		}
		return nil, stack.ReasonUnmapped
	}
	e.era = r.era
	if r.mod == nil {
		e.op = opFP
		if w.trampoline(nil, 0, pc) {
			e.op, e.fn = opSignal, pc
		}
		return w.cache.put(&e), stack.ReasonNone
	}
	m := r.mod
	m.load()
	var loose uint8
	if m.failed || m.loose() {
		loose = flagLoose
	}
	bias, ok := m.bias(r)
	if !ok {
		e.op, e.flags = opFP, flagFile|loose
		return w.cache.put(&e), stack.ReasonNone
	}
	w.space.adopt(m, bias)
	w.tmp.bias = bias
	golang, err := m.rule(key-bias, &w.tmp.Rule)
	switch {
	case errors.Is(err, rule.ErrNoRule):
		e.op, e.flags = opFP, flagFile
	case err != nil:
		e.op = opBad
	default:
		w.compileRule(&e, golang)
	}
	// Signal trampolines are recognized by their code, as gdb and libgcc do. A handler returns to
	// the trampoline's first byte, and the byte before it belongs to other code. The tables of
	// arm64's vDSO are wrong where they exist; the trampolines of Go and musl have none.
	if err != nil || w.tmp.Signal || key != pc && w.tmp.Hi == pc-bias || m.mapping.Inode == 0 {
		if !(w.arch == rule.AMD64 && err == nil && w.tmp.Signal) && w.trampoline(m, bias, pc) {
			e = entry{pc: key, op: opSignal, fn: pc, era: r.era}
			if golang {
				e.flags |= flagGo
			}
		}
	}
	if e.op != opSignal && key != pc && (errors.Is(err, rule.ErrNoRule) || err == nil && w.tmp.Hi == pc-bias) && w.startsAt(m, bias, pc) {
		e = entry{pc: key, op: opStart, fn: pc, era: r.era}
	}
	if e.op == opFP && w.arch == rule.AMD64 {
		w.tmp.bias = bias
		found, lack := w.ahead(m, r, bias, pc, &w.tmp.Rule)
		switch {
		case found:
			w.compileRule(&e, false)
			e.fn, e.flags = 0, flagScan
		case lack != 0: // a longer copy may have the missing word
			return nil, w.lack(lack)
		case key != pc && w.last(m, bias, pc), key == pc && pc-bias == m.entry:
			e.flags |= flagLast
		}
	}
	e.flags |= loose
	return w.cache.put(&e), stack.ReasonNone
}

// compileRule fills e from w.tmp.
func (w *Walker) compileRule(e *entry, golang bool) {
	r := &w.tmp
	e.fn = r.Func + r.bias
	if golang {
		e.flags |= flagGo | flagTable
	}
	if r.Signal {
		e.flags |= flagSignal
	}
	if r.Part {
		e.flags |= flagPart
	}
	if w.fast(e) {
		e.op = opFast
		return
	}
	e.op = opRule
	e.slow = int32(len(w.rules))
	w.rules = append(w.rules, *r)
	s := &w.rules[e.slow]
	s.Exprs = append([][]byte(nil), r.Exprs...)
	s.linear = make([]linear, len(s.Exprs))
	for i, x := range s.Exprs {
		l := &s.linear[i]
		l.Linear, l.ok = cfi.LinearOf(x)
		l.ok = l.ok && l.Reg < numRegs
	}
}

// fast fills e from w.tmp and reports whether an entry can hold the rule.
func (w *Walker) fast(e *entry) bool {
	r := &w.tmp
	if r.CFAIsExpr || r.Special != rule.None || r.Signal || int(r.CFAReg) >= numRegs {
		return false
	}
	words := func(off int32) (uint16, bool) {
		n := -int64(off) / 8
		return uint16(n), off%8 == 0 && n > 0 && n <= 0xffff
	}
	e.cfaReg, e.cfaOff = r.CFAReg, r.CFAOff
	ok := false
	switch {
	case r.RA.Kind == rule.Offset:
		if e.raOff, ok = words(r.RA.Off); !ok {
			return false
		}
	case w.arch != rule.ARM64:
		return false
	case r.RA.Kind == rule.Same, r.RA.Kind == rule.Register && r.RA.Off == rule.ARM64RA:
		e.raOff = 0
	default:
		return false
	}
	for _, l := range r.Saved[:r.NSaved] {
		if l.Kind == rule.Same {
			continue
		}
		if l.Kind != rule.Offset || e.n == maxFast || int(l.Reg) == w.sp || int(l.Reg) >= numRegs {
			return false
		}
		if l.Reg == rule.ARM64RA && w.arch == rule.ARM64 {
			if l.Off != r.RA.Off {
				return false
			}
			continue // the return address itself
		}
		if e.off[e.n], ok = words(l.Off); !ok {
			return false
		}
		e.reg[e.n] = l.Reg
		e.n++
	}
	return true
}

// code reads code bytes at an address. It reads memory if that certainly holds the code that runs,
// and the file otherwise.
func (w *Walker) code(b []byte, m *module, bias, addr uint64) []byte {
	if w.space.mem != nil {
		if n, _ := w.space.mem.ReadAt(b, int64(addr)); n > 0 {
			return b[:n]
		}
	}
	if m != nil && m.file != nil {
		return b[:m.code(b, addr-bias)]
	}
	return nil
}

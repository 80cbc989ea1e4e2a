package unwind

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/rule"
)

// A Step is the position at which a walk continues after a frame.
type Step struct {
	PC     uint64
	Exact  bool // PC is the next instruction, not a return address
	Trust  stack.Trust
	End    bool         // that was the outermost frame
	Reason stack.Reason // why the walk cannot continue; ReasonNone: it can
}

// Stop returns the Step of a walk that cannot continue.
func Stop(r stack.Reason) Step { return Step{Reason: r} }

// slow walks over a frame that no fast entry describes. It appends the frame and leaves the
// caller's registers in w.
func (w *Walker) slow(e *entry, pc, sp uint64, exact bool, trust stack.Trust) Step {
	var s Step
	var f *stack.Frame
	if e.op != opRuntime {
		w.frames = append(w.frames, stack.Frame{Func: e.fn, PC: pc, Kind: e.kind(), Trust: trust, Exact: exact, Part: e.flags&flagPart != 0, Era: e.era})
		f = &w.frames[len(w.frames)-1]
	}
	switch e.op {
	case opRuntime:
		s = w.stepRuntime(e.pc, pc, exact)
	case opRule:
		s = w.byRule(f, &w.rules[e.slow], e)
	case opSignal:
		s = w.bySignalFrame(f)
	case opFP:
		s = w.byFramePointer(f, e)
	case opStart:
		f.Exact, f.CFA = true, sp
		s = Step{End: true}
	default:
		return Stop(stack.ReasonCorrupt)
	}
	if s.End || s.Reason != stack.ReasonNone {
		return s
	}
	if w.arch == rule.ARM64 {
		s.PC &= pacMask
	}
	now := w.regs[w.sp]
	if s.Exact && now-sp > maxSignalFrame {
		w.crossed = true // the handler has a stack of its own
	}
	switch {
	case s.PC == pc && !exact && e.op == opRule && w.rules[e.slow].RA.Kind == rule.Register:
		return Stop(stack.ReasonLoop) // it would return to itself
	case now > sp && !(s.Exact && now-w.addr >= uint64(len(w.data))):
	case s.Exact, e.op == opRule && w.rules[e.slow].Special != rule.None:
		// A signal handler may run on another stack than the function it interrupted.
		if w.turns++; w.turns > maxTurns {
			return Stop(stack.ReasonLoop)
		}
		w.turn = now
	case exact && now == sp: // a leaf that pushed nothing, or has popped its return address
	default:
		return Stop(stack.ReasonLoop)
	}
	if s.PC == 0 {
		if e.op == opRuntime { // called by machine code: this was not the return address
			return Stop(stack.ReasonCorrupt)
		}
		w.null = true
		return Step{End: true}
	}
	return s
}

// byRule executes a rule in full.
func (w *Walker) byRule(f *stack.Frame, r *slowRule, e *entry) Step {
	if w.arch == rule.AMD64 { // column of the return address: the PC in expressions
		w.regs[rule.AMD64RA] = f.PC
		w.known |= 1 << rule.AMD64RA
	}
	cfa, reason := w.cfa(r)
	if reason == stack.ReasonNone {
		f.CFA = cfa
	}
	switch {
	case r.Special == rule.End, r.Special == rule.None && r.RA.Kind == rule.Undef:
		return Step{End: true}
	case r.Special != rule.None:
		s, apply := w.cross(f, &r.Rule)
		if !apply {
			return s
		}
		cfa, reason = w.cfa(r)
	}
	if reason != stack.ReasonNone {
		return Stop(reason)
	}
	// Rules use the callee's registers: compute all values before changing any register.
	w.saved = w.regs
	known := w.known &^ (1 << w.sp)
	w.saved[w.sp] = cfa
	known |= 1 << w.sp
	for _, l := range r.Saved[:min(int(r.NSaved), len(r.Saved))] {
		if l.Reg >= numRegs {
			continue
		}
		v, reason := w.locate(r, l, l.Reg, cfa)
		if reason != stack.ReasonNone {
			if l.Kind != rule.Offset || !popped(cfa+uint64(int64(l.Off)), w.regs[w.sp]) {
				known &^= 1 << l.Reg
			}
			continue
		}
		w.saved[l.Reg] = v
		known |= 1 << l.Reg
	}
	pc, reason := w.locate(r, r.RA, uint8(w.ra), cfa)
	if reason != stack.ReasonNone {
		return Stop(reason)
	}
	w.regs, w.known = w.saved, known
	if known>>w.sp&1 == 0 {
		return Stop(stack.ReasonRegister)
	}
	f.Exact = f.Exact || r.Signal // see bySignalFrame
	return Step{PC: pc, Exact: r.Signal, Trust: e.trust()}
}

func (w *Walker) cfa(r *slowRule) (uint64, stack.Reason) {
	if r.CFAIsExpr {
		return w.eval(r, r.CFAOff, nil)
	}
	if int(r.CFAReg) >= numRegs || w.known>>r.CFAReg&1 == 0 {
		return 0, stack.ReasonRegister
	}
	return w.regs[r.CFAReg] + uint64(int64(r.CFAOff)), stack.ReasonNone
}

// locate computes the value of a caller's register.
func (w *Walker) locate(r *slowRule, l rule.Loc, reg uint8, cfa uint64) (uint64, stack.Reason) {
	at := cfa + uint64(int64(l.Off))
	switch l.Kind {
	case rule.ValOff:
		return at, stack.ReasonNone
	case rule.Same, rule.Register:
		if l.Kind == rule.Register {
			reg = uint8(min(uint32(l.Off), numRegs))
		}
		if reg >= numRegs || w.known>>reg&1 == 0 {
			return 0, stack.ReasonRegister
		}
		return w.regs[reg], stack.ReasonNone
	case rule.Offset:
	case rule.Expr, rule.ValExpr:
		v, reason := w.eval(r, l.Off, &cfa)
		if reason != stack.ReasonNone || l.Kind == rule.ValExpr {
			return v, reason
		}
		at = v
	default:
		return 0, stack.ReasonRegister
	}
	v, ok := w.word(at)
	if !ok {
		return 0, w.lack(at)
	}
	return v, stack.ReasonNone
}

func (w *Walker) eval(r *slowRule, i int32, cfa *uint64) (v uint64, reason stack.Reason) {
	if i < 0 || int(i) >= len(r.Exprs) {
		return 0, stack.ReasonCorrupt
	}
	if l := &r.linear[i]; l.ok {
		if w.known>>(l.Reg&63)&1 == 0 {
			return 0, stack.ReasonRegister
		}
		at := w.regs[l.Reg&63] + uint64(l.Off)
		if !l.Deref {
			return at, stack.ReasonNone
		}
		if v, ok := w.word(at); ok {
			return v, stack.ReasonNone
		}
		return 0, w.lack(at)
	}
	var err error
	if cfa != nil {
		v, err = cfi.Eval(r.Exprs[i], (*state)(w), r.bias, *cfa)
	} else {
		v, err = cfi.Eval(r.Exprs[i], (*state)(w), r.bias)
	}
	switch {
	case err == nil:
		return v, stack.ReasonNone
	case errors.Is(err, cfi.ErrRegister):
		return 0, stack.ReasonRegister
	case errors.Is(err, cfi.ErrMemory):
		return 0, w.lack(w.missing)
	}
	return 0, stack.ReasonCorrupt
}

// state is a Walker in the form that expressions use.
type state Walker

func (s *state) Register(n uint64) (uint64, bool) {
	if n >= numRegs || s.known>>n&1 == 0 {
		return 0, false
	}
	return s.regs[n], true
}

func (s *state) Read(addr uint64, size int) (uint64, bool) {
	w := (*Walker)(s)
	if v, ok := w.word(addr); ok {
		return v & (1<<(8*size) - 1), true
	}
	// The last bytes of a block may still hold a smaller number.
	if size < 8 {
		if v, ok := w.word(addr + uint64(size) - 8); ok {
			return v >> (64 - 8*size), true
		}
	}
	w.missing = addr
	return 0, false
}

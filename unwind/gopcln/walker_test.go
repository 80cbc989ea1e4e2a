package gopcln

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/rule"
)

// ruler is a table of rules: this package's, or call frame information.
type ruler interface {
	Rule(vaddr uint64, out *rule.Rule) error
}

// module is one mapped file.
type module struct {
	lo, hi uint64 // run-time addresses
	bias   uint64
	golang *Table // nil: no Go
	tables []ruler
}

// walker is the reference implementation of the use of rules, Cross and SignalContext.
type walker struct {
	arch    rule.Arch
	modules []module
	thread  *Thread
	mem     rule.Words // the copy; falls back to live memory only while the target is stopped
	live    rule.Words // for Begin, which validates its findings
}

type walked struct {
	pc    uint64
	exact bool
	name  string
	step  Step
}

const maxFrames = 20000

// walk returns the frames, innermost first. The error is nil if it reached a base.
func (w *walker) walk(leaf stack.Regs) (frames []walked, err error) {
	w.thread.Begin(&leaf, w.live)
	regs, exact := leaf, true
	for len(frames) < maxFrames {
		m := w.module(regs.PC)
		if m == nil {
			return frames, fmt.Errorf("%#x lies in no module", regs.PC)
		}
		lookup := regs.PC
		if !exact {
			lookup-- // a return address may be the first byte of the next function
		}
		f := walked{pc: regs.PC, exact: exact}
		if m.golang != nil {
			_, f.name, _ = m.golang.Func(lookup - m.bias)
		}
		frames = append(frames, f)
		r, err := m.rule(lookup - m.bias)
		if errors.Is(err, rule.ErrNoRule) && w.framePointer(&regs) {
			exact = false // C without call frame information
			continue
		}
		if err != nil {
			return frames, fmt.Errorf("at %#x: %w", regs.PC, err)
		}
		if r.Special == rule.End || r.Special == rule.None && r.RA.Kind == rule.Undef {
			return frames, nil
		}
		if r.CFAIsExpr && r.Signal && SignalContext(w.arch, regs.R[w.arch.SP()], w.mem, &regs) {
			exact = true // libc's trampoline
			continue
		}
		before := regs.R[w.arch.SP()]
		if r.Special != rule.None {
			step := w.thread.Cross(r, &regs, exact, w.mem)
			frames[len(frames)-1].step = step
			switch step {
			case Base:
				return frames, nil
			case Lost:
				return frames, fmt.Errorf("lost in %s at %#x", f.name, regs.PC)
			case Jump, Exact:
				exact = step == Exact
				continue
			}
		}
		if regs, err = w.apply(r, regs); err != nil {
			return frames, fmt.Errorf("at %#x: %w", f.pc, err)
		}
		if r.Special == rule.None && regs.R[w.arch.SP()] < before ||
			regs.R[w.arch.SP()] == before && !exact && !r.Signal {
			return frames, fmt.Errorf("stack does not rise at %#x", f.pc)
		}
		if exact = r.Signal; regs.PC == 0 {
			return frames, nil
		}
	}
	return frames, errors.New("too deep")
}

// framePointer steps over a function that no table covers.
func (w *walker) framePointer(regs *stack.Regs) bool {
	fp := regs.R[w.arch.FP()]
	next, ok1 := w.mem.Word(fp)
	pc, ok2 := w.mem.Word(fp + 8)
	if !ok1 || !ok2 || fp < regs.R[w.arch.SP()] {
		return false
	}
	regs.PC = pc
	regs.Set(w.arch.FP(), next)
	regs.Set(w.arch.SP(), fp+16)
	return true
}

func (w *walker) module(pc uint64) *module {
	for i := range w.modules {
		if m := &w.modules[i]; pc >= m.lo && pc < m.hi {
			return m
		}
	}
	return nil
}

func (m *module) rule(vaddr uint64) (*rule.Rule, error) {
	r, err := new(rule.Rule), error(rule.ErrNoRule)
	if m.golang != nil {
		if err = m.golang.Rule(vaddr, r); err == nil {
			return r, nil
		}
	}
	for _, t := range m.tables {
		if err = t.Rule(vaddr, r); err == nil {
			return r, nil
		}
	}
	return nil, err
}

// apply computes the caller's registers from a frame.
func (w *walker) apply(r *rule.Rule, regs stack.Regs) (stack.Regs, error) {
	var cfa uint64
	switch {
	case r.CFAIsExpr: // a linkage table, between a call and its function
		v, err := cfi.Eval(r.Exprs[r.CFAOff], exprState{w, &regs}, 0)
		if err != nil {
			return regs, fmt.Errorf("CFA: %w", err)
		}
		cfa = v
	case regs.Has(int(r.CFAReg)):
		cfa = regs.R[r.CFAReg] + uint64(int64(r.CFAOff))
	default:
		return regs, fmt.Errorf("no CFA from R%d", r.CFAReg)
	}
	value := func(l rule.Loc) (uint64, bool) {
		switch l.Kind {
		case rule.Offset:
			return w.mem.Word(cfa + uint64(int64(l.Off)))
		case rule.ValOff:
			return cfa + uint64(int64(l.Off)), true
		case rule.Register:
			return regs.R[l.Off], regs.Has(int(l.Off))
		}
		return 0, false
	}
	next := regs
	next.Set(w.arch.SP(), cfa)
	for _, l := range r.Saved[:r.NSaved] {
		if l.Kind == rule.Same {
			continue
		}
		if v, ok := value(l); ok {
			next.Set(int(l.Reg), v)
		} else {
			next.Known &^= 1 << l.Reg
		}
	}
	pc, ok := value(r.RA)
	if !ok {
		return regs, fmt.Errorf("return address %+v, CFA %#x: %w", r.RA, cfa, io.ErrUnexpectedEOF)
	}
	next.PC = pc
	return next, nil
}

// exprState is the input of call frame information's expressions.
type exprState struct {
	w    *walker
	regs *stack.Regs
}

func (p exprState) Register(n uint64) (uint64, bool) {
	if p.w.arch == rule.AMD64 && n == 16 { // the return address's column
		return p.regs.PC, true
	}
	return p.regs.R[n&31], n < 32 && p.regs.Has(int(n))
}

func (p exprState) Read(addr uint64, size int) (uint64, bool) {
	v, ok := p.w.mem.Word(addr)
	return v & (1<<(8*size-1)<<1 - 1), ok
}

// sampled is one walk.
type sampled struct {
	tid    int
	frames []walked
	err    error
	copied string // how the walk over a copy differs; "": it does not
	asked  int    // how often More returned spans
	id     uint64 // goroutine
}

func (s sampled) has(name string) bool { return s.count(name) > 0 }

func (s sampled) count(name string) (n int) {
	for _, f := range s.frames {
		if f.name == name {
			n++
		}
	}
	return n
}

func (s sampled) String() string {
	var b strings.Builder
	for i, f := range s.frames {
		if i > 20 {
			b.WriteString("\n\t…")
			break
		}
		fmt.Fprintf(&b, "\n\t%#x %s", f.pc, f.name)
		if f.step != Apply {
			fmt.Fprintf(&b, " (%v)", f.step)
		}
		if f.exact {
			b.WriteString(" exact")
		}
	}
	fmt.Fprintf(&b, "\n\t%v", s.err)
	return b.String()
}

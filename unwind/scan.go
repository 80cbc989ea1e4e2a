package unwind

import (
	"bytes"

	"golang.org/x/arch/x86/x86asm"

	"github.com/sliverprof/sliver/unwind/rule"
)

// Code without tables and without frame pointer (musl, hand-written assembly) is unwound by
// symbolic execution: from the PC to the function's return, to find where the return address is and
// which registers are restored.

// Limits of the scan.
const (
	maxScan     = 4096 // instructions
	maxBranches = 64   // pending branches
	maxStores   = 64   // tracked words of the frame
	scanChunk   = 512  // bytes of code per read
	// nativeMore multiplies the limits in a GraalVM native image. Inlining makes its functions long,
	// and no other data describes their frames.
	nativeMore = 8
)

// A sym is a value relative to the registers at the PC.
type sym struct {
	kind uint8
	base uint8 // DWARF number of a register
	off  int64
}

const (
	symUnknown uint8 = iota
	symAddr          // R[base] + off
	symWord          // *(R[base] + off)
)

type store struct {
	at, val sym
}

// path is the state of one path through the code.
type path struct {
	pc     uint64
	regs   [16]sym
	stores []store
}

func (p *path) load(at sym) sym {
	if at.kind != symAddr {
		return sym{}
	}
	for i := len(p.stores) - 1; i >= 0; i-- {
		if p.stores[i].at == at {
			return p.stores[i].val
		}
	}
	return sym{kind: symWord, base: at.base, off: at.off}
}

func (p *path) store(at, v sym) bool {
	if at.kind != symAddr {
		return true // not in the frame, as far as known
	}
	for i := range p.stores {
		if p.stores[i].at == at {
			p.stores[i].val = v
			return true
		}
	}
	p.stores = append(p.stores, store{at, v})
	return len(p.stores) <= maxStores
}

// followed lists the registers that an amd64 function must preserve.
var followed = [...]uint8{3, 6, rule.AMD64SP, 12, 13, 14, 15}

// number returns the DWARF number of a 64-bit register.
func number(r x86asm.Reg) (uint8, bool) {
	if r < x86asm.RAX || r > x86asm.R15 {
		return 0, false
	}
	return [...]uint8{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15}[r-x86asm.RAX], true
}

// widest returns the DWARF number of the 64-bit register that contains r.
func widest(r x86asm.Reg) (uint8, bool) {
	switch {
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return number(r - x86asm.EAX + x86asm.RAX)
	case r >= x86asm.AX && r <= x86asm.R15W:
		return number(r - x86asm.AX + x86asm.RAX)
	case r >= x86asm.AL && r <= x86asm.BL:
		return number(r - x86asm.AL + x86asm.RAX)
	case r >= x86asm.AH && r <= x86asm.BH:
		return number(r - x86asm.AH + x86asm.RAX)
	case r >= x86asm.SPB && r <= x86asm.R15B:
		return number(r - x86asm.SPB + x86asm.RSP)
	}
	return number(r)
}

// scanner reads code and holds the pending paths.
type scanner struct {
	w    *Walker
	m    *module
	r    *region
	bias uint64
	buf  [scanChunk]byte
	at   uint64
	code []byte
	todo []path
	seen map[uint64]bool
	more int    // factor on the limits
	lack uint64 // address of an unreadable return address; 0: none
}

// scan returns a scanner that starts at pc with unchanged registers.
func (w *Walker) scan(m *module, r *region, bias, pc uint64) *scanner {
	first := path{pc: pc}
	for _, n := range followed {
		first.regs[n] = sym{kind: symAddr, base: n}
	}
	s := &scanner{w: w, m: m, r: r, bias: bias, seen: map[uint64]bool{}, todo: []path{first}, more: 1}
	if m != nil && m.whole {
		s.more = nativeMore
	}
	return s
}

// run follows all paths through the code and visits each instruction once. It calls at before each
// instruction and ret after each return, if they are not nil. It returns true as soon as one of
// them does.
func (s *scanner) run(at, ret func(p *path) bool) bool {
	for steps := 0; len(s.todo) > 0; {
		p := s.todo[len(s.todo)-1]
		s.todo = s.todo[:len(s.todo)-1]
		for ; steps < s.more*maxScan && !s.seen[p.pc]; steps++ {
			if at != nil && at(&p) {
				return true
			}
			s.seen[p.pc] = true
			returns, ok := s.step(&p)
			if ok && returns && ret != nil && ret(&p) {
				return true
			}
			if returns || !ok {
				break
			}
		}
	}
	return false
}

func (s *scanner) bytes(pc uint64) []byte {
	const longest = 15
	if o := pc - s.at; o >= uint64(len(s.code)) || uint64(len(s.code))-o < longest {
		if pc < s.r.start || pc >= s.r.end {
			return nil
		}
		n := min(scanChunk, s.r.end-pc)
		s.at, s.code = pc, s.w.code(s.buf[:n], s.m, s.bias, pc)
	}
	if len(s.code) == 0 {
		return nil
	}
	return s.code[pc-s.at:]
}

// ahead makes a rule for amd64 code without tables by following it to its return. The rule is
// accepted only if the word that it finds is a return address: after a call, in known code. Apart
// from this check it does not use the walk's registers and memory. Without a rule, lack is the
// address of an unreadable word that might have given one, or 0.
func (w *Walker) ahead(m *module, r *region, bias, pc uint64, out *rule.Rule) (ok bool, lack uint64) {
	s := w.scan(m, r, bias, pc)
	ok = s.run(nil, func(p *path) bool { return s.accept(p, out) })
	if ok {
		return true, 0
	}
	return false, s.lack
}

// accept makes a rule from a path that reached its return instruction.
func (s *scanner) accept(p *path, out *rule.Rule) bool {
	w := s.w
	sp := p.regs[rule.AMD64SP]
	if sp.kind != symAddr || sp.base != rule.AMD64SP && sp.base != rule.AMD64FP || w.known>>sp.base&1 == 0 ||
		sp.off < -maxFrame || sp.off > MaxStack {
		return false
	}
	at := w.regs[sp.base] + uint64(sp.off)
	ra, ok := w.word(at)
	if !ok && at >= w.regs[w.sp] {
		s.lack = at
	}
	if !ok || at < w.regs[w.sp] || !w.isCode(ra) || !w.called(ra) {
		return false
	}
	// A tail call that leaves the frame by both registers.
	if fp := p.regs[rule.AMD64FP]; sp.base == rule.AMD64SP && fp == (sym{kind: symWord, base: rule.AMD64FP}) &&
		w.known>>rule.AMD64FP&1 != 0 && w.regs[rule.AMD64FP]+8 == at {
		sp = sym{kind: symAddr, base: rule.AMD64FP, off: 8}
	}
	*out = rule.Rule{CFAReg: sp.base, CFAOff: int32(sp.off + 8), RA: rule.Loc{Kind: rule.Offset, Off: -8}, Exprs: out.Exprs[:0]}
	for _, n := range followed {
		if n == rule.AMD64SP {
			continue
		}
		v, l := p.regs[n], rule.Loc{Reg: n, Kind: rule.Undef}
		switch {
		case v == sym{kind: symAddr, base: n}:
			continue
		case v.kind == symWord && v.base == sp.base && v.off < sp.off && v.off > sp.off-maxFrame:
			l.Kind, l.Off = rule.Offset, int32(v.off-sp.off-8)
		}
		out.Saved[out.NSaved] = l
		out.NSaved++
	}
	return true
}

// step executes one instruction. ret reports that it is a return.
func (s *scanner) step(p *path) (ret, ok bool) {
	code := s.bytes(p.pc)
	if bytes.HasPrefix(code, []byte{0xf3, 0x0f, 0x1e, 0xfa}) { // endbr64
		p.pc += 4
		return false, true
	}
	in, err := x86asm.Decode(code, 64)
	if err != nil {
		return false, false
	}
	p.pc += uint64(in.Len)
	sp := &p.regs[rule.AMD64SP]
	switch in.Op {
	case x86asm.RET:
		return true, true
	case x86asm.JMP:
		rel, ok := in.Args[0].(x86asm.Rel)
		p.pc += uint64(int64(rel))
		return false, ok
	case x86asm.CALL, x86asm.SYSCALL, x86asm.CMP, x86asm.TEST, x86asm.NOP, x86asm.BT:
		return false, true
	case x86asm.HLT, x86asm.UD1, x86asm.UD2, x86asm.INT, x86asm.IRET, x86asm.IRETQ, x86asm.LRET, x86asm.ENTER:
		return false, false
	case x86asm.PUSH:
		if sp.kind != symAddr {
			return false, false
		}
		sp.off -= 8
		return false, p.store(*sp, p.value(in.Args[0]))
	case x86asm.POP:
		if sp.kind != symAddr {
			return false, false
		}
		v := p.load(*sp)
		sp.off += 8
		p.set(in.Args[0], v)
		return false, true
	case x86asm.LEAVE:
		*sp = p.regs[rule.AMD64FP]
		if sp.kind != symAddr {
			return false, false
		}
		p.regs[rule.AMD64FP] = p.load(*sp)
		sp.off += 8
		return false, true
	case x86asm.MOV:
		if m, ok := in.Args[0].(x86asm.Mem); ok {
			return false, p.store(p.address(m), p.value(in.Args[1]))
		}
		p.set(in.Args[0], p.value(in.Args[1]))
		return false, true
	case x86asm.LEA:
		m, _ := in.Args[1].(x86asm.Mem)
		p.set(in.Args[0], p.address(m))
		return false, true
	case x86asm.ADD, x86asm.SUB:
		imm, isImm := in.Args[1].(x86asm.Imm)
		v := p.value(in.Args[0])
		if _, isReg := in.Args[0].(x86asm.Reg); isReg && isImm && v.kind == symAddr {
			if in.Op == x86asm.SUB {
				imm = -imm
			}
			v.off += int64(imm)
			p.set(in.Args[0], v)
			return false, true
		}
	case x86asm.XCHG, x86asm.XADD:
		p.set(in.Args[1], sym{})
	}
	if rel, ok := in.Args[0].(x86asm.Rel); ok { // conditional jump
		if len(s.todo) < s.more*maxBranches {
			other := *p
			other.pc += uint64(int64(rel))
			other.stores = append([]store(nil), p.stores...)
			s.todo = append(s.todo, other)
		}
		return false, true
	}
	// The first operand of any other instruction becomes unknown.
	p.set(in.Args[0], sym{})
	return false, true
}

// address returns the address of a memory operand.
func (p *path) address(m x86asm.Mem) sym {
	n, ok := number(m.Base)
	if !ok || m.Index != 0 || m.Segment != 0 {
		return sym{}
	}
	v := p.regs[n]
	if v.kind != symAddr {
		return sym{}
	}
	v.off += m.Disp
	return v
}

func (p *path) value(a x86asm.Arg) sym {
	switch a := a.(type) {
	case x86asm.Reg:
		if n, ok := number(a); ok {
			return p.regs[n]
		}
	case x86asm.Mem:
		return p.load(p.address(a))
	}
	return sym{}
}

// set changes a register. Memory outside of the frame is ignored.
func (p *path) set(a x86asm.Arg, v sym) {
	switch a := a.(type) {
	case x86asm.Reg:
		if n, ok := widest(a); ok {
			if _, whole := number(a); !whole {
				v = sym{}
			}
			p.regs[n] = v
		}
	case x86asm.Mem:
		p.store(p.address(a), v)
	}
}

// last reports whether the code at a return address passes the result on to another function:
// exit(main(…)), pthread_exit(start(…)). If that code has no other way to return, it is a thread's
// first function.
func (w *Walker) last(m *module, bias, ra uint64) bool {
	var buf [8]byte
	c := w.code(buf[:], m, bias, ra)
	return bytes.HasPrefix(c, []byte{0x89, 0xc7, 0xe8}) || // mov %eax, %edi; call
		bytes.HasPrefix(c, []byte{0x48, 0x89, 0xc7, 0xe8}) // mov %rax, %rdi; call
}

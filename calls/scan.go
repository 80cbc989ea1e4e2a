package calls

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Bounds of Scan, on code that a hostile file may claim to have.
const (
	// MaxCode is how many bytes of one function are looked through.
	MaxCode = 1 << 20
	// MaxExits is how many exits a function may have.
	MaxExits = 1 << 12
)

// Arch is a machine that Scan knows.
type Arch uint8

// The machines.
const (
	AMD64 Arch = iota
	ARM64
)

// ArchOf is the machine by its name as GOARCH has it.
func ArchOf(goarch string) (a Arch, ok bool) {
	switch goarch {
	case "amd64":
		return AMD64, true
	case "arm64":
		return ARM64, true
	}
	return 0, false
}

// Part is one contiguous range of a function's code. Compilers place cold code in a range of its own.
type Part struct {
	Vaddr uint64 // of the file
	Code  []byte
}

// Exit is a place at which a function is left.
type Exit struct {
	Vaddr uint64
	Where Where // Return or Jump
}

// Code is what Scan finds in a function.
type Code struct {
	// Entry is where the function is entered, once in each call, with the stack pointer as it was
	// at the function's first instruction: that one, or one shortly behind it.
	Entry uint64
	// Cheap: the kernel can carry out the instruction at Entry for a thread that hits a breakpoint
	// there. It has to single-step the others, at ten times the price (arch/x86/kernel/uprobes.c,
	// push_setup_xol_ops).
	Cheap bool
	// Second is the instruction that a thread carries out after the one at Entry, whatever comes: that one neither
	// branches nor faults. 0: there is none of that kind.
	Second uint64
	Exits  []Exit
	// Blind are conditional jumps out of the function. They cannot be probed: a probe would also hit
	// where the jump is not taken. A call that leaves by one is Left.
	Blind int
	// Loops: the function itself jumps to Entry, so that a hit there with the frame of an open call
	// is the same call.
	Loops bool
}

// Scan finds where a function is entered and left. parts are its code; the first part contains its
// first instruction. goFunc is set for code of the Go compiler: such a function restarts after its
// stack was copied, so Entry is behind that check.
func Scan(arch Arch, parts []Part, goFunc bool) (Code, error) {
	if len(parts) == 0 || len(parts[0].Code) == 0 {
		return Code{}, fmt.Errorf("scan function: no code")
	}
	size := 0
	for _, p := range parts {
		size += len(p.Code)
	}
	if size > MaxCode {
		return Code{}, fmt.Errorf("scan function at %#x: %d bytes of code; at most %d are looked through", parts[0].Vaddr, size, MaxCode)
	}
	s := scanner{parts: parts, out: Code{Entry: parts[0].Vaddr}}
	for i := range parts {
		var err error
		if arch == ARM64 {
			s.arm64(&parts[i])
		} else {
			err = s.amd64(&parts[i], goFunc && i == 0)
		}
		if err != nil {
			return s.out, fmt.Errorf("scan function at %#x: %w", parts[0].Vaddr, err)
		}
		if len(s.out.Exits) > MaxExits {
			return s.out, fmt.Errorf("scan function at %#x: more than %d exits", parts[0].Vaddr, MaxExits)
		}
	}
	s.finish()
	s.out.Second = second(arch, &parts[0], s.out.Entry)
	return s.out, nil
}

type scanner struct {
	parts   []Part
	out     Code
	push    uint64   // a push of a register that is the first instruction behind a landing pad; 0: none
	targets []uint64 // of jumps inside the function
	guarded bool     // Entry is behind Go's check of the stack
}

// inside reports whether an address is in the function.
func (s *scanner) inside(a uint64) bool {
	return slices.ContainsFunc(s.parts, func(p Part) bool { return a >= p.Vaddr && a-p.Vaddr < uint64(len(p.Code)) })
}

func (s *scanner) finish() {
	if s.push != 0 && !s.guarded && !slices.Contains(s.targets, s.push) {
		s.out.Entry, s.out.Cheap = s.push, true
	}
	s.out.Loops = slices.Contains(s.targets, s.out.Entry)
}

func (s *scanner) exit(vaddr uint64, w Where) { s.out.Exits = append(s.out.Exits, Exit{vaddr, w}) }

// window is how many instructions before an indirect jump are looked at.
const window = 6

func (s *scanner) amd64(p *Part, goFunc bool) error {
	var last [window]insn
	guard := goGuard{on: goFunc}
	for i, n := 0, 0; i < len(p.Code); n++ {
		at := p.Vaddr + uint64(i)
		x, err := decode(p.Code[i:])
		if err != nil {
			if err == errShort && n > 0 { // padding that the symbol's size cuts
				return nil
			}
			return fmt.Errorf("offset %d: % x: %w", i, p.Code[i:min(i+8, len(p.Code))], err)
		}
		end := at + uint64(x.size)
		if p.Vaddr == s.parts[0].Vaddr && (n == 0 || n == 1 && last[0].landing()) && x.pushes() {
			s.push = at
		}
		if e, ok := guard.step(&x, end); ok {
			s.out.Entry, s.guarded = e, true
			if y, err := decode(p.Code[i+x.size:]); err == nil {
				s.out.Cheap = y.pushes()
			}
		}
		switch {
		case x.space == 0 && (x.op == 0xc3 || x.op == 0xc2):
			s.exit(at, Return)
		case x.branch && !(x.space == 0 && x.op == 0xe8):
			switch target := end + uint64(x.rel); {
			case s.inside(target):
				s.targets = append(s.targets, target)
			case x.space == 0 && (x.op == 0xe9 || x.op == 0xeb):
				s.exit(at, Jump)
			default:
				s.out.Blind++
			}
		case x.space == 0 && x.op == 0xff && x.modrm>>3&7 == 4 && !x.table(last[:min(n, window)]):
			s.exit(at, Jump)
		}
		copy(last[1:], last[:])
		last[0] = x
		i += x.size
	}
	return nil
}

// landing reports endbr64, where an indirect branch may land.
func (x *insn) landing() bool { return x.space == 1 && x.op == 0x1e && x.rep && x.modrm == 0xfa }

// pushes reports a push of a register.
func (x *insn) pushes() bool { return x.space == 0 && x.op&0xf8 == 0x50 && !x.opsize }

// table reports whether an indirect jump goes on in its own function, by a table of a switch, and
// not to another one. before are the instructions in front of it, the nearest first.
func (x *insn) table(before []insn) bool {
	if x.notrack {
		return true
	}
	mod, rm := x.modrm>>6, x.modrm&7
	if mod != 3 { // through memory: a table's has a scaled index
		return rm == 4 && x.sib>>3&7 != 4 && x.sib>>6 == 3
	}
	reg := rm | x.rex&1<<3
	for i := range before {
		y := &before[i]
		if y.space != 0 {
			continue
		}
		to, from := y.modrm>>3&7|y.rex&4<<1, y.modrm&7|y.rex&1<<3
		switch {
		case y.op == 0x03 && to == reg, y.op == 0x01 && y.modrm>>6 == 3 && from == reg: // add: an entry counts from its table
			return true
		case y.op == 0x8b && to == reg: // mov: loaded whole, from a table where the index is scaled
			return y.modrm>>6 != 3 && y.modrm&7 == 4 && y.sib>>3&7 != 4 && y.sib>>6 == 3
		}
	}
	return false
}

// goGuard finds the check of the stack's size that most Go functions begin with: a comparison with
// g's stackguard0, then a jump to where the stack is made larger (cmd/internal/obj/x86/obj6.go,
// stacksplit; the same from Go 1.17 to 1.26).
type goGuard struct {
	on   bool
	n    int
	seen bool
}

// maxGuard is how many instructions the check has at most.
const maxGuard = 8

// step takes the next instruction. ok: the function goes on at entry when the check is done.
func (g *goGuard) step(x *insn, end uint64) (entry uint64, ok bool) {
	if !g.on {
		return 0, false
	}
	if g.n++; g.n > maxGuard {
		g.on = false
		return 0, false
	}
	if x.space == 0 && x.op == 0x3b && x.modrm&0xc7 == 0x46 && x.rex&1 != 0 { // cmp REG, disp8(R14)
		g.seen = true
		return 0, false
	}
	jbe := x.space == 0 && x.op == 0x76 || x.space == 1 && x.op == 0x86
	if g.seen && jbe {
		g.on = false
		return end, true
	}
	return 0, false
}

// arm64 goes through code of 4-byte instructions (Arm ARM C4.1, branches).
func (s *scanner) arm64(p *Part) {
	for i := 0; i+4 <= len(p.Code); i += 4 {
		w, at := binary.LittleEndian.Uint32(p.Code[i:]), p.Vaddr+uint64(i)
		branch := func(shift, bits int) uint64 {
			off := int64(w) << (64 - shift - bits) >> (64 - bits)
			return at + uint64(off<<2)
		}
		switch {
		case w&0xfffffc1f == 0xd65f0000, w == 0xd65f0bff, w == 0xd65f0fff: // ret, retaa, retab
			s.exit(at, Return)
		case w>>26 == 5: // b
			if t := branch(0, 26); s.inside(t) {
				s.targets = append(s.targets, t)
			} else {
				s.exit(at, Jump)
			}
		case w>>24 == 0x54, w>>25&0x3f == 0x1a: // b.cond, cbz, cbnz
			s.conditional(branch(5, 19))
		case w>>25&0x3f == 0x1b: // tbz, tbnz
			s.conditional(branch(5, 14))
		case w == 0xd61f0200, w == 0xd61f0220: // br x16, x17: only a call's place is called through these
			s.exit(at, Jump)
		}
	}
}

func (s *scanner) conditional(t uint64) {
	if s.inside(t) {
		s.targets = append(s.targets, t)
	} else {
		s.out.Blind++
	}
}

package cfi

// Pointer encodings: Linux Standard Base Core, section 10.5.1 (DWARF exception
// header encoding), and DW_EH_PE_aligned from GCC's unwind-pe.h.
const (
	peAbs     = 0x00
	peULEB    = 0x01
	peU2      = 0x02
	peU4      = 0x03
	peU8      = 0x04
	peSigned  = 0x08
	peSLEB    = 0x09
	peS2      = 0x0a
	peS4      = 0x0b
	peS8      = 0x0c
	pePC      = 0x10
	peText    = 0x20
	peData    = 0x30
	peFunc    = 0x40
	peAligned = 0x50
	peIndir   = 0x80
	peOmit    = 0xff
)

// maxEntry bounds one CIE or FDE, in bytes.
const maxEntry = 16 << 20

// bases holds the base addresses of encoded pointers.
type bases struct {
	text, data uint64
	// indirect reads a pointer at a vaddr of the file.
	indirect func(vaddr uint64) (uint64, error)
}

// pointer reads one encoded pointer. at is the vaddr of c.b[0].
func (c *cursor) pointer(enc byte, at uint64, b *bases) uint64 {
	if enc == peOmit || c.err != nil {
		return 0
	}
	if enc == peAligned {
		if r := (at + uint64(c.pos)) % 8; r != 0 {
			c.take(8 - r)
		}
		return c.u64()
	}
	here := at + uint64(c.pos)
	var v uint64
	switch enc & 0x0f {
	case peAbs, peU8, peS8, peSigned:
		v = c.u64()
	case peULEB:
		v = c.uleb()
	case peSLEB:
		v = uint64(c.sleb())
	case peU2:
		v = uint64(c.u16())
	case peS2:
		v = uint64(int16(c.u16()))
	case peU4:
		v = uint64(c.u32())
	case peS4:
		v = uint64(int32(c.u32()))
	default:
		c.err = errEncoding
	}
	if v == 0 {
		return 0 // a null pointer in every encoding
	}
	switch enc & 0x70 {
	case peAbs, peFunc: // relative to the function: only within its LSDA
	case pePC:
		v += here
	case peText:
		v += b.text
	case peData:
		v += b.data
	default:
		c.err = errEncoding
	}
	if enc&peIndir != 0 && c.err == nil {
		if b.indirect == nil {
			c.err = errEncoding
			return 0
		}
		v, c.err = b.indirect(v)
	}
	return v
}

// A cie is a decoded common information entry.
type cie struct {
	off       uint64
	codeAlign uint64
	dataAlign int64
	ra        uint64
	enc       byte // encoding of an FDE's addresses
	lsda      byte
	augData   bool // FDEs carry the length of their augmentation data
	signal    bool
	instr     []byte
}

// An fde is a decoded frame description entry. It covers [lo, hi).
type fde struct {
	cie    cie
	lo, hi uint64
	instr  []byte
}

// head is the header of an entry.
type head struct {
	off   uint64 // offset of the entry in its section
	next  uint64 // offset of the next entry
	body  uint64 // offset after the id
	isCIE bool
	cie   uint64 // offset of the CIE that an FDE references
	end   bool   // the zero length that terminates .eh_frame
}

func (f *frames) head(off uint64) (h head, err error) {
	s := f.sec
	h.off = off
	b, err := s.bytes(off, 4)
	if err != nil {
		return h, err
	}
	c := cursor{b: b}
	n, idSize := uint64(c.u32()), uint64(4)
	at := off + 4
	switch {
	case n == 0:
		h.end, h.next = true, at
		return h, nil
	case n == 0xffffffff:
		if b, err = s.bytes(at, 8); err != nil {
			return h, err
		}
		c = cursor{b: b}
		n = c.u64()
		at += 8
		if !f.eh {
			idSize = 8
		}
	case n >= 0xfffffff0:
		return h, s.errorf(off, "reserved length %#x", n)
	}
	if n > maxEntry || n < idSize || n > s.size-at {
		return h, s.errorf(off, "an entry of %#x bytes does not fit", n)
	}
	h.next, h.body = at+n, at+idSize
	if b, err = s.bytes(at, idSize); err != nil {
		return h, err
	}
	c = cursor{b: b}
	if idSize == 8 {
		id := c.u64()
		h.isCIE, h.cie = id == ^uint64(0), id
		return h, nil
	}
	id := uint64(c.u32())
	if f.eh {
		h.isCIE, h.cie = id == 0, at-id
		if id > at {
			return h, s.errorf(off, "the CIE pointer %#x leads before the section", id)
		}
		return h, nil
	}
	h.isCIE, h.cie = id == 0xffffffff, id
	return h, nil
}

func (f *frames) parseCIE(off uint64, out *cie) error {
	h, err := f.head(off)
	if err != nil {
		return err
	}
	if !h.isCIE || h.end {
		return f.sec.errorf(off, "a CIE is expected here")
	}
	b, err := f.sec.bytes(h.body, h.next-h.body)
	if err != nil {
		return err
	}
	c := cursor{b: b}
	*out = cie{off: off, enc: peAbs, lsda: peOmit}
	version := c.u8()
	aug := c.cstring()
	if c.err == nil && version != 1 && version != 3 && version != 4 {
		return f.sec.errorf(off, "CIE version %d is not known", version)
	}
	if version == 4 {
		if size, seg := c.u8(), c.u8(); c.err == nil && (size != 8 || seg != 0) {
			return f.sec.errorf(off, "addresses of %d bytes, segments of %d", size, seg)
		}
	}
	if len(aug) >= 2 && aug[:2] == "eh" { // GCC 2: a pointer follows
		c.u64()
		aug = aug[2:]
	}
	out.codeAlign = c.uleb()
	out.dataAlign = c.sleb()
	if version == 1 {
		out.ra = uint64(c.u8())
	} else {
		out.ra = c.uleb()
	}
	if len(aug) > 0 && aug[0] == 'z' {
		n := c.uleb()
		start := c.pos
		out.augData = true
		data := cursor{b: c.take(n)}
		at := f.sec.addr + h.body + uint64(start)
	letters:
		for i := 1; i < len(aug); i++ {
			switch aug[i] {
			case 'R':
				out.enc = data.u8()
			case 'L':
				out.lsda = data.u8()
			case 'P':
				// The address of the personality routine is not needed, and an indirect one may be
				// outside of the file's mappings.
				data.pointer(data.u8()&^peIndir, at, &f.bases)
			case 'S':
				out.signal = true
			case 'B', 'G': // arm64: key B signs return addresses; the stack is tagged
			default:
				break letters // the augmentation data has a length: skip unknown letters
			}
		}
		if data.err != nil && c.err == nil {
			c.err = data.err
		}
	} else {
		for i := range len(aug) {
			switch aug[i] {
			case 'S':
				out.signal = true
			case 'B', 'G':
			default:
				return f.sec.errorf(off, "augmentation %q is not known", aug)
			}
		}
	}
	if c.err != nil {
		return f.sec.errorf(h.body+uint64(c.pos), "CIE: %w", c.err)
	}
	out.instr = b[c.pos:]
	return nil
}

// rng reads the address range of the FDE at off and leaves c after it.
func (f *frames) rng(h *head, c *cursor, enc byte, b *bases) (lo, hi uint64) {
	lo = c.pointer(enc, f.sec.addr+h.body, b)
	n := c.pointer(enc&0x0f, 0, b)
	return lo, lo + n
}

func (f *frames) parseFDE(off uint64, out *fde) error {
	h, err := f.head(off)
	if err != nil {
		return err
	}
	if h.isCIE || h.end {
		return f.sec.errorf(off, "an FDE is expected here")
	}
	if err := f.parseCIE(h.cie, &out.cie); err != nil {
		return err
	}
	b, err := f.sec.bytes(h.body, h.next-h.body)
	if err != nil {
		return err
	}
	c := cursor{b: b}
	out.lo, out.hi = f.rng(&h, &c, out.cie.enc, &f.bases)
	if out.cie.augData {
		c.take(c.uleb())
	}
	if c.err != nil {
		return f.sec.errorf(h.body+uint64(c.pos), "FDE: %w", c.err)
	}
	if out.hi < out.lo {
		return f.sec.errorf(off, "FDE of %#x to %#x", out.lo, out.hi)
	}
	out.instr = b[c.pos:]
	return nil
}

package python

import (
	"bytes"
	"math"

	"github.com/sliverprof/sliver/unwind"
)

// Code objects that a copy has with its frames, as the kernel makes them (stack.Links). Those of modules are freed at
// the end of an import, and another one may be at their address when the copy is walked.

// within returns n bytes of memory that are whole in one block of a copy, nil if they are not.
func within(mem *unwind.Copy, addr, n uint64) []byte {
	for i := len(mem.Blocks) - 1; i >= 0; i-- {
		data := mem.Blocks[i].Data
		if off := addr - mem.Blocks[i].Addr; off < uint64(len(data)) && n <= uint64(len(data))-off {
			return data[off : off+n]
		}
	}
	return nil
}

// blocks is a copy as memory.
type blocks struct{ mem *unwind.Copy }

// ReadAt implements io.ReaderAt.
func (x blocks) ReadAt(b []byte, addr int64) (int, error) {
	if m := within(x.mem, uint64(addr), uint64(len(b))); m != nil {
		return copy(b, m), nil
	}
	return 0, ErrMissing
}

// headIn returns what identifies the code object at addr, as a copy has it; nil: the copy does not, or is nil.
func (r *Runtime) headIn(mem *unwind.Copy, addr uint64) []byte {
	if mem == nil {
		return nil
	}
	b := within(mem, addr, min(r.l.coSize, maxCodeSize))
	if b == nil || le(b, obType) != r.types.code {
		return nil
	}
	return r.head(b)
}

// readCopied reads a code object that a copy has the head of: whole if the copy has all of it or it still is at its address,
// and else its name and its file. It returns nil if the copy lacks these.
func (in *interpreter) readCopied(p *pyThread, mem *unwind.Copy, x *seenCode) *held {
	c, err := in.rt.Code(blocks{mem}, x.code)
	if err != nil {
		done := p.live.FirstLook()
		c, err = in.rt.Code(p.live, x.code)
		done()
		if err != nil || !bytes.Equal(c.head, x.head) || c.contradicts(mem) {
			if c, err = in.rt.partOf(mem, x.code); err != nil {
				return nil
			}
		}
	}
	return in.hold(p, x.code, c)
}

// contradicts reports whether a copy has other names or lines at the places of c's: the code object and all that it refers to
// may be freed together, and those of the next import have the same places then.
func (c *Code) contradicts(mem *unwind.Copy) bool {
	for i := range c.pieces {
		p := &c.pieces[i]
		if b := within(mem, p.addr+obType, uint64(p.size())); b != nil && !p.is(b) {
			return true
		}
	}
	return false
}

// partOf reads the code object at addr from a copy that may lack its lines and its bytecode.
func (r *Runtime) partOf(mem *unwind.Copy, addr uint64) (*Code, error) {
	c, b, err := r.names(blocks{mem}, addr)
	if err != nil {
		return nil, err
	}
	c.Size = 1
	if r.l.coCode != none {
		c.Size = min(max(2*(le(b, obSize)&math.MaxUint32), 1), maxBytecode)
	}
	if c.lines, err = r.byteString(blocks{mem}, le(b, r.l.coLines), maxLines); err != nil {
		c.lines, c.Size = nil, 1 // its first line is known
	}
	return c, nil
}

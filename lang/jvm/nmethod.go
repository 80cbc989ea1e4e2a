package jvm

import (
	"errors"
	"fmt"
	"sort"
	"sync"

	"github.com/sliverprof/sliver/unwind/meter"
)

const (
	// maxTables bounds the tables of one compiled method, in bytes: the limit on first looks of one
	// walk.
	maxTables = meter.MaxLooks
	// maxInlined bounds the depth of inlining.
	maxInlined = 256
)

// nmethod holds the parts of a compiled method outside of its blob.
type nmethod struct {
	method            uint64
	origPC            uint64 // offset in its frame of the saved PC of a frame marked for deoptimization
	deopt, deoptMH    uint64 // return addresses of such frames
	osr               uint64
	pcs, pcsEnd       uint64 // addresses of the PC descriptors
	scopes, scopesEnd uint64
	meta, metaEnd     uint64

	mu      sync.Mutex // guards the fields below
	methods map[uint64]*method
	tables  *scopes // nil: not read yet
	err     error   // error of the read
}

// resolve returns the method at addr. It must be the compiled method's own or one inlined in it:
// these stay as long as the compiled method does.
func (n *nmethod) resolve(r *Runtime, addr uint64) (*method, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.methods[addr]; m != nil {
		return m, nil
	}
	m, err := r.freshMethod(addr)
	if err != nil {
		return nil, err
	}
	if n.methods == nil {
		n.methods = map[uint64]*method{}
	}
	n.methods[addr] = m
	return m, nil
}

// scopes are the tables of a compiled method that list the active calls at each place. They are
// immutable.
type scopes struct {
	desc []pcDesc // by offset
	data []byte
	mds  []uint64
}

// pcDesc locates the active scopes at one place of the code.
type pcDesc struct {
	off   int32
	scope uint32
}

func (r *Runtime) nmethodOf(b *blob, head []byte) (*nmethod, error) {
	l := r.l
	if uint64(len(head)) < l.nmethod+room {
		return nil, fmt.Errorf("compiled method at %#x is cut off", b.addr)
	}
	b.compileID = u32(head, l.nmCompileID)
	n := &nmethod{method: u64(head, l.nmMethod), osr: u64(head, l.nmOSR)}
	if o := int32(u32(head, l.nmOrigPC)); o > 0 && o < 8*maxFrameWords {
		n.origPC = uint64(o)
	}
	pcs := uint64(u32(head, l.nmPcs))
	if l.major >= 23 {
		n.deopt, n.deoptMH = offset(b.addr, u32(head, l.nmDeopt)), offset(b.addr, u32(head, l.nmDeoptMH))
		im, size := u64(head, l.nmImmutable), uint64(u32(head, l.nmImmutableSize))
		data := uint64(u32(head, l.nmData))
		n.pcs, n.pcsEnd, n.scopes, n.scopesEnd = im+pcs, im+data, im+data, im+size
		mut, reloc := u64(head, l.blobMutable), uint64(u32(head, l.blobRelocation))
		n.meta, n.metaEnd = mut+reloc, mut+uint64(u32(head, l.blobMutableSize))
	} else {
		n.deopt, n.deoptMH = u64(head, l.nmDeopt), u64(head, l.nmDeoptMH)
		n.scopes = u64(head, l.nmData)
		n.pcs, n.pcsEnd = b.addr+pcs, b.addr+uint64(u32(head, l.nmDependencies))
		n.scopesEnd = n.pcs
		n.meta, n.metaEnd = b.addr+uint64(u32(head, l.nmMetadata)), n.scopes
	}
	size := uint64(0)
	for _, x := range [...][2]uint64{{n.pcs, n.pcsEnd}, {n.scopes, n.scopesEnd}, {n.meta, n.metaEnd}} {
		if x[1] < x[0] || x[1]-x[0] > maxTables {
			return nil, fmt.Errorf("compiled method at %#x: a table at %#x-%#x", b.addr, x[0], x[1])
		}
		if size += x[1] - x[0]; size > maxTables {
			return nil, fmt.Errorf("compiled method at %#x: %d bytes of tables", b.addr, size)
		}
	}
	return n, nil
}

// offset returns base plus a signed number, or 0 if that number is negative (absent).
func offset(base uint64, off uint32) uint64 {
	if int32(off) <= 0 {
		return 0
	}
	return base + uint64(off)
}

// load reads the tables once.
func (n *nmethod) load(r *Runtime) (*scopes, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tables != nil || n.err != nil {
		return n.tables, n.err
	}
	t, err := n.read(r)
	if errors.Is(err, meter.ErrSpent) { // the next walk may read them
		return nil, err
	}
	n.tables, n.err = t, err
	return t, err
}

func (n *nmethod) read(r *Runtime) (*scopes, error) {
	defer r.firstLook()()
	t := &scopes{}
	l := r.l
	b := make([]byte, n.pcsEnd-n.pcs)
	if len(b) > 0 {
		if err := read(r.mem, b, n.pcs); err != nil {
			return nil, fmt.Errorf("pc descriptors: %w", err)
		}
	}
	for i := uint64(0); i+l.pcDesc <= uint64(len(b)); i += l.pcDesc {
		d := pcDesc{int32(u32(b, i+l.pcOffset)), u32(b, i+l.pcScope)}
		if k := len(t.desc); k > 0 && d.off < t.desc[k-1].off {
			break // they are sorted: this is other data
		}
		t.desc = append(t.desc, d)
	}
	t.data = make([]byte, n.scopesEnd-n.scopes)
	if len(t.data) > 0 {
		if err := read(r.mem, t.data, n.scopes); err != nil {
			return nil, fmt.Errorf("scopes: %w", err)
		}
	}
	b = make([]byte, n.metaEnd-n.meta)
	if len(b) > 0 {
		if err := read(r.mem, b, n.meta); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
	}
	for i := uint64(0); i+8 <= uint64(len(b)); i += 8 {
		t.mds = append(t.mds, u64(b, i))
	}
	return t, nil
}

// at returns the descriptor for a place in the code, in bytes from its beginning. It is exact
// for every return address. Other places get the next descriptor.
func (t *scopes) at(off int32) (d pcDesc, exact, ok bool) {
	i := sort.Search(len(t.desc), func(i int) bool { return t.desc[i].off >= off })
	if i == len(t.desc) {
		return pcDesc{}, false, false
	}
	return t.desc[i], t.desc[i].off == off, true
}

// scope is one active call at a place.
type scope struct {
	method uint64
	bci    int
}

// chain appends the calls at a place of the code, innermost first: the inlined ones, then the
// method itself.
func (t *scopes) chain(method uint64, d pcDesc, plain bool, out []scope) []scope {
	at, limit := d.scope, uint32(len(t.data))
	for k := 0; at != 0 && at < limit && k < maxInlined; k++ {
		limit = at // each refers to an earlier one
		in := stream{b: t.data[at:], plain: plain}
		sender, index, bci := in.next(), in.next(), in.next()
		if in.bad || index > uint32(len(t.mds)) {
			break
		}
		m := method
		if index > 0 {
			m = t.mds[index-1]
		}
		out = append(out, scope{m, int(bci) - 1}) // -1: at the entry
		at = sender
	}
	return out
}

// stream decodes HotSpot's compressed numbers (src/hotspot/share/utilities/unsigned5.hpp of 21;
// code/compressedStream.cpp of 17, which does not avoid zero bytes: plain).
type stream struct {
	b     []byte
	plain bool
	bad   bool
}

func (s *stream) byte() uint32 {
	if len(s.b) == 0 {
		s.bad = true
		return 0
	}
	c := s.b[0]
	s.b = s.b[1:]
	return uint32(c)
}

func (s *stream) next() uint32 {
	const low, bits = 192, 6 // a byte below low ends a number
	least := uint32(1)
	if s.plain {
		least = 0
	}
	c := s.byte()
	if c < least {
		s.bad = true
		return 0
	}
	sum := c - least
	for shift := bits; c >= low && shift < 5*bits && !s.bad; shift += bits {
		if c = s.byte(); c < least {
			s.bad = true
			return 0
		}
		sum += (c - least) << shift
	}
	return sum
}

// signed decodes a number whose sign is in the lowest bit.
func (s *stream) signed() int32 {
	v := s.next()
	return int32(v>>1) ^ -int32(v&1)
}

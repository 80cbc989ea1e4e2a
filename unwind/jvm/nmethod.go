package jvm

import (
	"errors"
	"fmt"
	"sort"
	"sync"

	"github.com/sliverprof/sliver/unwind/meter"
)

const (
	// maxTables bounds the tables of one compiled method, in bytes: what one walk may read
	// of what it sees for the first time.
	maxTables = meter.MaxLooks
	// maxInlined bounds the calls that are inlined into each other.
	maxInlined = 256
)

// nmethod is what is known of a compiled method besides its blob.
type nmethod struct {
	method            uint64
	origPC            uint64 // where in its frame the PC of a frame to be deoptimized is kept
	deopt, deoptMH    uint64 // that then return here
	osr               uint64
	pcs, pcsEnd       uint64 // addresses of its tables
	scopes, scopesEnd uint64
	meta, metaEnd     uint64

	mu      sync.Mutex // guards what follows
	methods map[uint64]*method
	tables  *scopes // nil: they were not read yet
	err     error   // or why they cannot be
}

// resolve is the method at addr, one of the compiled method's own or of those that are
// inlined in it: they stay as long as it does.
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

// scopes are the tables of a compiled method that tell which calls are active where;
// immutable.
type scopes struct {
	desc []pcDesc // by offset
	data []byte
	mds  []uint64
}

// pcDesc says which scopes are active where in the code.
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

// offset is base plus a signed number; 0 where that is negative: it is not there.
func offset(base uint64, off uint32) uint64 {
	if int32(off) <= 0 {
		return 0
	}
	return base + uint64(off)
}

// load reads the tables, once.
func (n *nmethod) load(r *Runtime) (*scopes, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tables != nil || n.err != nil {
		return n.tables, n.err
	}
	t, err := n.read(r)
	if errors.Is(err, meter.ErrSpent) { // the next walk may
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
			break // they are sorted: what follows is something else
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

// at is the descriptor for a place in the code, in bytes from its beginning: that of
// exactly there, which each return address has, else the next one.
func (t *scopes) at(off int32) (d pcDesc, exact, ok bool) {
	i := sort.Search(len(t.desc), func(i int) bool { return t.desc[i].off >= off })
	if i == len(t.desc) {
		return pcDesc{}, false, false
	}
	return t.desc[i], t.desc[i].off == off, true
}

// scope is one of the calls that are active at a place.
type scope struct {
	method uint64
	bci    int
}

// chain appends the calls at a place of the code, innermost first: those that are
// inlined, then that of the method itself.
func (t *scopes) chain(method uint64, d pcDesc, plain bool, out []scope) []scope {
	at, limit := d.scope, uint32(len(t.data))
	for k := 0; at != 0 && at < limit && k < maxInlined; k++ {
		limit = at // each refers to one before it
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

// stream decodes HotSpot's compressed numbers (src/hotspot/share/utilities/unsigned5.hpp
// of 21; code/compressedStream.cpp of 17, which does not leave zero bytes out: plain).
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

// signed decodes a number whose sign is its lowest bit.
func (s *stream) signed() int32 {
	v := s.next()
	return int32(v>>1) ^ -int32(v&1)
}

package graph

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/sliverprof/sliver/heap/hprof"
)

// ConstantLength is how many elements an array has at least that counts as one of a single value.
const ConstantLength = 16

// DigestBytes bounds what a digest uses of an array's content. Longer arrays differ by that and their length.
const DigestBytes = 64 << 10

// digests are what a report needs of arrays' contents, noted while the objects are read.
type digests struct {
	seed maphash.Seed
	// of has by object: of an array of references how many are null. Of an array of primitives a hash of type, length
	// and content, with the lowest bit cleared; if it has one value, the value or a hash of it, and that bit.
	of []uint64
}

// Digest is what a report needs of an array's content.
type Digest struct {
	Hash  uint64 // of type, length and content; of an array of one value, of the value
	Nulls int    // of an array of references
	// Constant says that all elements of an array of primitives have one value. Value has it if an element has 4 bytes
	// or fewer.
	Constant bool
	Value    uint64
}

// HasDigests reports whether the graph has digests: see Options.Report.
func (g *Graph) HasDigests() bool { return g.digests.of != nil }

// Digest returns the digest of an array. It may be called beside other methods.
func (g *Graph) Digest(o Object) Digest {
	d := g.digests.of[o]
	if g.Kind(o) != KindPrimitiveArray {
		return Digest{Nulls: int(d)}
	}
	return Digest{Hash: d, Constant: d&1 != 0, Value: d >> 1}
}

// digest notes that of a primitive array.
func (w *worker) digest(o uint32, it *hprof.Item) error {
	g, a := w.g, &w.a
	*a = Array{Type: it.Type, Length: int(it.Count), Bytes: a.Bytes[:0], Same: true}
	size := it.Type.Size(g.header.IDSize)
	if err := a.read(w.r, size, DigestBytes); err != nil {
		return err
	}
	constant := a.Same && a.Length >= ConstantLength
	if constant && size <= 4 {
		g.digests.of[o] = bitsOf(a.Bytes, size)<<1 | 1
		return nil
	}
	var head [9]byte
	head[0] = byte(a.Type)
	if constant {
		a.Bytes = a.Bytes[:size]
	} else {
		binary.LittleEndian.PutUint64(head[1:], uint64(a.Length))
	}
	w.hash.SetSeed(g.digests.seed)
	w.hash.Write(head[:])
	w.hash.Write(a.Bytes)
	d := w.hash.Sum64() &^ 1
	if constant {
		d |= 1
	}
	g.digests.of[o] = d
	return nil
}

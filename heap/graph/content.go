package graph

import (
	"context"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/heap/hprof"
)

// An Array is what Arrays hands out: valid during the call.
type Array struct {
	Offset int64
	ID     uint64
	Object Object // 0 where the level has no index
	Class  *Class
	Type   hprof.Type
	Length int
	Size   int64
	// Bytes are the first of its content, at most as many as were asked for; those of
	// an object array are IDs.
	Bytes []byte
	Whole bool // Bytes are all of it
	Nulls int  // of an object array: elements that are null, of all of it
	Same  bool // of a primitive array: all of its elements are the same
}

// Arrays reads all arrays in the order of the file, at any level, in memory that does not
// grow with their number.
func (g *Graph) Arrays(ctx context.Context, max int, f func(*Array)) error {
	return g.arrays(ctx, max, func(a *Array) bool {
		f(a)
		return true
	})
}

// Sample reads the first n arrays.
func (g *Graph) Sample(n int, f func(*Array)) error {
	return g.arrays(context.Background(), 0, func(a *Array) bool {
		f(a)
		n--
		return n > 0
	})
}

func (g *Graph) arrays(ctx context.Context, max int, f func(*Array) bool) error {
	var r hprof.Reader
	ids := g.header.IDSize
	var a Array
	for i, c := range g.survey.chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i%64 == 0 {
			g.progress("reading arrays", float64(i)/float64(len(g.survey.chunks)))
		}
		r.Reset(io.NewSectionReader(g.file, c.offset, c.bytes), g.header, c.offset, c.bytes, c.heap)
		for {
			it, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return fmt.Errorf("%w: %w", errChanged, err)
			}
			if it.Tag != hprof.SubObjectArray && it.Tag != hprof.SubPrimitiveArray {
				continue
			}
			a = Array{Offset: it.Offset, ID: it.ID, Object: g.Find(it.ID), Type: it.Type, Length: int(it.Count), Bytes: a.Bytes[:0], Same: true}
			if it.Tag == hprof.SubObjectArray {
				a.Class = g.classes.find(it.Ref)
			} else {
				a.Class = g.classes.prim[it.Type&15]
			}
			if a.Class == nil {
				return errChanged
			}
			a.Size = g.sizes.array(it.Type, int64(it.Count))
			if err := a.read(&r, it.Type.Size(ids), max); err != nil {
				return err
			}
			if !f(&a) {
				return nil
			}
		}
	}
	return nil
}

// read goes through the content.
func (a *Array) read(r *hprof.Reader, size, max int) error {
	var first [8]byte
	seen := 0 // bytes of the content
	value := 0
	zero := true // the bytes of the element so far
	for {
		b, err := r.Chunk()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if room := max - len(a.Bytes); room > 0 {
			a.Bytes = append(a.Bytes, b[:min(room, len(b))]...)
		}
		if a.Type != hprof.TypeObject {
			for i := 0; i < len(b) && a.Same; i++ {
				if at := (seen + i) % size; seen+i < size {
					first[at] = b[i]
				} else if b[i] != first[at] {
					a.Same = false
				}
			}
			seen += len(b)
			continue
		}
		for _, c := range b {
			zero = zero && c == 0
			if value++; value == size {
				if zero {
					a.Nulls++
				}
				value, zero = 0, true
			}
		}
		seen += len(b)
	}
	a.Whole = len(a.Bytes) == seen
	a.Same = a.Same && a.Type != hprof.TypeObject && a.Length > 1
	return nil
}

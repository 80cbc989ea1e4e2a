package graph

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sort"

	"github.com/sliverprof/sliver/heap/hprof"
	"github.com/sliverprof/sliver/internal/ordered"
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
	return EachArray(ctx, g, max, func(a *Array, _ *struct{}) { f(a) }, nil)
}

// EachArray reads all arrays, at any level, by Options.Workers goroutines if merge is not nil. collect receives
// an array and the worker's batch. merge receives each batch, of the arrays of about 2 MB, one after another in
// the order of the file, and empties it: it is used again.
func EachArray[Batch any](ctx context.Context, g *Graph, max int, collect func(*Array, *Batch), merge func(*Batch)) error {
	workers := g.opts.Workers
	if merge == nil {
		workers, merge = 1, func(*Batch) {}
	}
	type state struct {
		r     fileReader
		a     Array
		batch Batch
	}
	return ordered.Each(ctx, workers, len(g.survey.chunks), func(i int, s *state) error {
		return g.chunkArrays(&s.r, g.survey.chunks[i], &s.a, max, func(a *Array) bool {
			collect(a, &s.batch)
			return true
		})
	}, func(i int, s *state) {
		if i%64 == 0 {
			g.progress("reading arrays", float64(i)/float64(len(g.survey.chunks)))
		}
		merge(&s.batch)
	})
}

// Sample reads the first n arrays.
func (g *Graph) Sample(n int, f func(*Array)) error {
	var r fileReader
	var a Array
	for _, c := range g.survey.chunks {
		if n <= 0 {
			break
		}
		err := g.chunkArrays(&r, c, &a, 0, func(a *Array) bool {
			f(a)
			n--
			return n > 0
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ArrayAt reads the array at an offset that an Array had, up to max bytes of its content. ok is false if there
// is none.
func (g *Graph) ArrayAt(offset int64, max int) (found Array, ok bool) {
	chunks := g.survey.chunks
	i := sort.Search(len(chunks), func(i int) bool { return chunks[i].offset > offset }) - 1
	if i < 0 {
		return Array{}, false
	}
	var r fileReader
	var a Array
	err := g.chunkArrays(&r, chunks[i], &a, max, func(a *Array) bool {
		if a.Offset == offset {
			found, ok = *a, true
		}
		return a.Offset < offset
	})
	return found, ok && err == nil
}

// chunkArrays reads the arrays of a chunk into a, one after another, until f returns false.
func (g *Graph) chunkArrays(file *fileReader, c chunk, a *Array, max int, f func(*Array) bool) error {
	ids := g.header.IDSize
	r := g.objects(file, c)
	for {
		it, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errChanged, err)
		}
		if it.Tag != hprof.SubObjectArray && it.Tag != hprof.SubPrimitiveArray {
			continue
		}
		*a = Array{Offset: it.Offset, ID: it.ID, Object: g.Find(it.ID), Type: it.Type, Length: int(it.Count), Bytes: a.Bytes[:0], Same: true}
		if it.Tag == hprof.SubObjectArray {
			a.Class = g.classes.find(it.Ref)
		} else {
			a.Class = g.classes.prim[it.Type&15]
		}
		if a.Class == nil {
			return errChanged
		}
		a.Size = g.sizes.array(it.Type, int64(it.Count))
		if err := a.read(r, it.Type.Size(ids), max); err != nil {
			return err
		}
		if !f(a) {
			return nil
		}
	}
}

// read goes through the content.
func (a *Array) read(r hprof.ObjectReader, size, max int) error {
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
		if size == 8 && value == 0 { // whole elements, as nearly always
			for ; len(b) >= size; b = b[size:] {
				if binary.BigEndian.Uint64(b) == 0 {
					a.Nulls++
				}
				seen += size
			}
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

package hprof

import (
	"fmt"
	"io"
)

// Amount is a number of items and their bytes in the dump, heads included.
type Amount struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

func (a *Amount) add(n int64) {
	a.Count++
	a.Bytes += n
}

// maxDumps bounds the dumps of a stream that are reported on their own. What
// comes after is counted in the last.
const maxDumps = 64

// Info is what a heap dump consists of.
type Info struct {
	Header
	Cut     bool // stripped by KOOM's rule: primitive arrays have no values
	Offset  int64
	Records [256]Amount // by tag, without what heap dump records contain
	Subs    [256]Amount // by tag
	Arrays  [12]Amount  // primitive arrays by Type
	Heaps   []HeapInfo  // ART's, in order of appearance
	Roots   Amount      // all kinds of roots
	own     bool        // a header precedes it
}

// HeapInfo is one of ART's heaps.
type HeapInfo struct {
	ID      uint32 `json:"id"`
	Name    string `json:"name"`
	Objects Amount `json:"objects"`
}

// Objects returns the instances and arrays of all kinds. Classes are not among them.
func (i *Info) Objects() Amount {
	var a Amount
	for _, tag := range [...]uint8{SubInstance, SubObjectArray, SubPrimitiveArray, SubPrimitiveBare} {
		a.Count += i.Subs[tag].Count
		a.Bytes += i.Subs[tag].Bytes
	}
	return a
}

// heapName is the name that ART gives the heap.
func heapName(id uint32) string {
	switch id {
	case HeapDefault:
		return "default"
	case HeapApp:
		return "app"
	case HeapZygote:
		return "zygote"
	case HeapImage:
		return "image"
	}
	return fmt.Sprintf("heap %d", id)
}

// ReadInfo counts the items of a stream of dumps: one Info for each dump. If the stream is
// damaged, the Infos have what came before, and the error is an *Error.
func ReadInfo(src io.Reader) ([]*Info, error) {
	r, err := NewReader(src)
	if err != nil {
		return nil, err
	}
	c := counter{}
	for {
		it, err := r.Next()
		if err == nil {
			err = c.count(r, it)
		}
		if err != nil {
			c.finish(r)
			c.settle()
			if err == io.EOF {
				err = nil
			}
			return c.infos, err
		}
	}
}

// counter adds items to Infos.
type counter struct {
	infos []*Info
	dump  int
	heap  *HeapInfo
}

func (c *counter) current(r *Reader, it *Item) *Info {
	if len(c.infos) == 0 || it.Dump != c.dump && len(c.infos) < maxDumps {
		c.finish(r)
		c.infos = append(c.infos, &Info{Header: r.header, Offset: it.Offset})
		c.dump, c.heap = it.Dump, nil
	}
	return c.infos[len(c.infos)-1]
}

func (c *counter) finish(r *Reader) {
	if n := len(c.infos); n > 0 {
		c.infos[n-1].Cut = c.infos[n-1].Cut || r.cut
	}
}

// settle counts records behind the last heap dump as part of it: no other came.
func (c *counter) settle() {
	n := len(c.infos)
	if n < 2 || c.infos[n-1].Records[TagHeapDump].Count+c.infos[n-1].Records[TagHeapSegment].Count > 0 {
		return
	}
	last := c.infos[n-1]
	if last.own {
		return
	}
	c.infos = c.infos[:n-1]
	for tag, a := range last.Records {
		c.infos[n-2].Records[tag].Count += a.Count
		c.infos[n-2].Records[tag].Bytes += a.Bytes
	}
}

func (c *counter) count(r *Reader, it *Item) error {
	i := c.current(r, it)
	n := int64(len(it.Head)) + it.Body
	switch it.Kind {
	case KindHeader:
		i.own = true
		return nil
	case KindRecord:
		i.Records[it.Tag].add(n)
		i.Cut = r.cut
		return nil
	}
	i.Subs[it.Tag].add(n)
	switch it.Tag {
	case SubPrimitiveArray, SubPrimitiveBare:
		i.Arrays[it.Type].add(n)
	case SubInstance, SubObjectArray, SubClass:
	case SubHeapInfo:
		c.heap = nil
		for k := range i.Heaps {
			if i.Heaps[k].ID == it.Heap {
				c.heap = &i.Heaps[k]
			}
		}
		if c.heap == nil && len(i.Heaps) < maxHeaps {
			i.Heaps = append(i.Heaps, HeapInfo{ID: it.Heap, Name: heapName(it.Heap)})
			c.heap = &i.Heaps[len(i.Heaps)-1]
		}
		return nil
	default:
		i.Roots.add(n)
		return nil
	}
	if c.heap != nil && it.Tag != SubClass {
		c.heap.Objects.add(n)
	}
	return nil
}

// maxHeaps bounds the heaps that are counted separately. ART has four.
const maxHeaps = 64

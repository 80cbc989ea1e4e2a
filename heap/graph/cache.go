package graph

import (
	"io"
)

// A cache keeps the last blocks of a file that were read, so that looking at many small
// objects in the order of the file costs a call of the kernel for each block and not for
// each object.
type cache struct {
	file   io.ReaderAt
	size   int64
	blocks map[int64]int // number of a block: its place
	order  []int64       // by place: its number
	data   [][]byte
	next   int // place that is used next
}

const (
	cacheBlock  = 64 << 10
	cacheBlocks = 256
)

func newCache(file io.ReaderAt, size int64) *cache {
	return &cache{file: file, size: size, blocks: map[int64]int{}}
}

// ReadAt reads as io.ReaderAt says. Reads larger than a block bypass the cache.
func (c *cache) ReadAt(p []byte, at int64) (n int, err error) {
	if len(p) > cacheBlock || at < 0 {
		return c.file.ReadAt(p, at)
	}
	for n < len(p) {
		b, err := c.block((at + int64(n)) / cacheBlock)
		if err != nil {
			return n, err
		}
		from := (at + int64(n)) % cacheBlock
		if from >= int64(len(b)) {
			return n, io.EOF
		}
		n += copy(p[n:], b[from:])
	}
	return n, nil
}

func (c *cache) block(i int64) ([]byte, error) {
	if at, ok := c.blocks[i]; ok {
		return c.data[at], nil
	}
	if len(c.data) < cacheBlocks {
		c.data = append(c.data, make([]byte, cacheBlock))
		c.order = append(c.order, -1)
		c.next = len(c.data) - 1
	} else {
		delete(c.blocks, c.order[c.next])
	}
	place := c.next
	c.next = (c.next + 1) % cacheBlocks
	b := c.data[place][:cacheBlock]
	n, err := c.file.ReadAt(b, i*cacheBlock)
	if n == 0 && err != nil {
		c.order[place] = -1
		return nil, err
	}
	c.data[place], c.order[place] = b[:n], i
	c.blocks[i] = place
	return c.data[place], nil
}

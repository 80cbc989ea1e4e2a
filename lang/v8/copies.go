package v8

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// V8's file contains machine code: the interpreter and the built-in functions. If the memory for
// generated code cannot be close enough to the file for short calls, V8 copies this code next to it
// (CodeRange::RemapEmbeddedBuiltins, src/heap/code-range.cc, V8 10.2). Frames in the copy have no
// names, and no data shows where its functions begin.

const (
	// headBytes is the length of the prefix that identifies a copy.
	headBytes = 64
	// V8's own code has 1.3 to 2 MB in the known versions. Generated code rarely has a quarter of a
	// MB in one piece.
	leastCopy = 512 << 10
	mostCopy  = 64 << 20
	searchBuf = 1 << 20
	smallPage = 4 << 10
	// maxStrange bounds the recorded prefixes of other memory.
	maxStrange = 256
)

// copies finds the copies of a file's code.
type copies struct {
	of      unwind.Code // a mapping of the file
	off     uint64      // file offset of the copied code
	head    [headBytes]byte
	found   bool
	strange map[[headBytes]byte]bool // prefixes of memory that does not hold a copy
}

// Maps returns maps with V8's copies of its own code presented as mappings of its file.
func (e *engine) Maps(maps []stack.Mapping) []stack.Mapping {
	shared := true
	for i := range maps {
		m := &maps[i]
		if !m.Exec || m.Write || m.Inode != 0 || m.Path != "" || m.End-m.Start < leastCopy || m.End-m.Start > mostCopy {
			continue
		}
		off, ok := e.copies.find(e.mem, m)
		if !ok {
			continue
		}
		if shared {
			maps, shared = slices.Clone(maps), false
			m = &maps[i]
		}
		file := e.copies.of.Mapping()
		m.Off, m.Dev, m.Inode, m.Path, m.Deleted, m.Gen = off, file.Dev, file.Inode, file.Path, file.Deleted, file.Gen
	}
	return maps
}

// find returns the file offset of the code that m is a copy of.
func (c *copies) find(mem unwind.Memory, m *stack.Mapping) (off uint64, ok bool) {
	var head [headBytes]byte
	if n, _ := mem.ReadAt(head[:], int64(m.Start)); n < len(head) || c.strange[head] {
		return 0, false
	}
	if c.found && head == c.head {
		return c.off, true
	}
	if !c.found && c.search(mem, m, head) {
		return c.off, true
	}
	if len(c.strange) >= maxStrange || c.strange == nil {
		c.strange = map[[headBytes]byte]bool{}
	}
	c.strange[head] = true
	return 0, false
}

// search looks for m's content in the file's code.
func (c *copies) search(mem unwind.Memory, m *stack.Mapping, head [headBytes]byte) bool {
	// Only part of the last page is code.
	content := make([]byte, m.End-m.Start-smallPage)
	if n, _ := mem.ReadAt(content, int64(m.Start)); n < len(content) {
		return false
	}
	buf := make([]byte, searchBuf)
	file, segments := c.of.File()
	for i := range segments {
		p := &segments[i]
		if p.Flags&elf.PF_X == 0 {
			continue
		}
		for at := p.Off; at+uint64(len(content)) <= p.Off+p.Filesz; {
			n, err := file.ReadAt(buf[:min(uint64(len(buf)), p.Off+p.Filesz-at)], int64(at))
			if err != nil && !errors.Is(err, io.EOF) || n < headBytes {
				break
			}
			k := bytes.Index(buf[:n], head[:])
			if k < 0 {
				at += uint64(n - headBytes + 1)
				continue
			}
			at += uint64(k)
			if sameBytes(file, content, int64(at), buf) {
				c.off, c.head, c.found = at, head, true
				return true
			}
			at++
		}
	}
	return false
}

// sameBytes reports whether f holds b at off.
func sameBytes(f io.ReaderAt, b []byte, off int64, buf []byte) bool {
	for len(b) > 0 {
		n, _ := f.ReadAt(buf[:min(len(buf), len(b))], off)
		if n == 0 || !bytes.Equal(buf[:n], b[:n]) {
			return false
		}
		b, off = b[n:], off+int64(n)
	}
	return true
}

package cfi

import (
	"fmt"
	"io"
	"sync/atomic"
)

const (
	// pageSize is the number of bytes per read. A lookup touches a few distant places (binary
	// search) and then neighbours.
	pageSize = 16 << 10
	// maxSection bounds a section that is read page by page.
	maxSection = 4 << 30
	// maxInflated bounds the inflated size of a compressed section. maxRatio bounds the compression
	// ratio if that size exceeds anyRatio bytes.
	maxInflated = 256 << 20
	maxRatio    = 256
	anyRatio    = 1 << 20
)

// A section is a part of a file that is read page by page on first access, or bytes that are
// already in memory. Methods may be called concurrently: two calls that miss the same page both
// read it.
type section struct {
	name  string
	addr  uint64 // vaddr of the first byte
	size  uint64
	open  bool // the end is unknown: a terminator marks it
	data  []byte
	file  io.ReaderAt
	off   int64
	pages []atomic.Pointer[[]byte]
}

func fileSection(name string, r io.ReaderAt, addr, off, size uint64) (*section, error) {
	if size > maxSection || off > 1<<62 {
		return nil, fmt.Errorf("%s: %#x bytes at file offset %#x: too large", name, size, off)
	}
	return &section{name: name, addr: addr, size: size, file: r, off: int64(off),
		pages: make([]atomic.Pointer[[]byte], (size+pageSize-1)/pageSize)}, nil
}

func bytesSection(name string, addr uint64, b []byte) *section {
	return &section{name: name, addr: addr, size: uint64(len(b)), data: b}
}

// bytes returns n bytes at offset off. The result must not be modified and stays valid.
func (s *section) bytes(off, n uint64) ([]byte, error) {
	if off > s.size || n > s.size-off {
		return nil, s.errorf(off, "%d bytes wanted, the section ends at %#x", n, s.size)
	}
	if s.data != nil || n == 0 {
		return s.data[off : off+n : off+n], nil
	}
	if off/pageSize == (off+n-1)/pageSize {
		p, err := s.page(off / pageSize)
		if err != nil {
			return nil, err
		}
		i := off % pageSize
		return p[i : i+n : i+n], nil
	}
	// n is at most s.size, but the file may be shorter: grow while reading.
	var out []byte
	for n > 0 {
		p, err := s.page(off / pageSize)
		if err != nil {
			return nil, err
		}
		p = p[off%pageSize:]
		if uint64(len(p)) > n {
			p = p[:n]
		}
		out = append(out, p...)
		off += uint64(len(p))
		n -= uint64(len(p))
	}
	return out, nil
}

func (s *section) page(i uint64) ([]byte, error) {
	if p := s.pages[i].Load(); p != nil {
		return *p, nil
	}
	b := make([]byte, min(pageSize, s.size-i*pageSize))
	if n, err := s.file.ReadAt(b, s.off+int64(i*pageSize)); n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, s.errorf(i*pageSize+uint64(n), "read: %w", err)
	}
	s.pages[i].Store(&b)
	return b, nil
}

func (s *section) errorf(off uint64, format string, args ...any) error {
	return fmt.Errorf("%s+%#x: "+format, append([]any{s.name, off}, args...)...)
}

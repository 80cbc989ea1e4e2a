package jvm

import (
	"encoding/binary"
	"fmt"
	"io"
)

// pageSize is the size of one read by pages.
const pageSize = 64 << 10

// maxPages bounds the cached pages: 16 MiB.
const maxPages = 256

// pages reads memory in large pieces and caches them. It is for the tables at attach, whose
// thousands of entries and strings are close together.
type pages struct {
	mem  io.ReaderAt
	kept map[uint64][]byte
}

// ReadAt implements io.ReaderAt.
func (p *pages) ReadAt(b []byte, addr int64) (n int, err error) {
	for n < len(b) {
		at := uint64(addr) + uint64(n)
		page := at &^ (pageSize - 1)
		data, ok := p.kept[page]
		if !ok {
			if len(p.kept) >= maxPages {
				clear(p.kept)
			}
			data = make([]byte, pageSize)
			k, _ := p.mem.ReadAt(data, int64(page))
			data = data[:max(k, 0)]
			p.kept[page] = data
		}
		off := int(at - page)
		if off >= len(data) {
			// The piece is not fully mapped: read the part after a hole directly.
			k, err := p.mem.ReadAt(b[n:], int64(at))
			return n + max(k, 0), err
		}
		n += copy(b[n:], data[off:])
	}
	return n, nil
}

// read fills b from addr, or returns an error that names the address.
func read(mem io.ReaderAt, b []byte, addr uint64) error {
	if addr == 0 || addr > 1<<63-1 {
		return fmt.Errorf("read %d bytes at %#x: no address", len(b), addr)
	}
	n, err := mem.ReadAt(b, int64(addr))
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %#x: %w", len(b), addr, err)
}

func word(mem io.ReaderAt, addr uint64) (uint64, error) {
	var b [8]byte
	err := read(mem, b[:], addr)
	return binary.LittleEndian.Uint64(b[:]), err
}

func half(mem io.ReaderAt, addr uint64) (uint32, error) {
	var b [4]byte
	err := read(mem, b[:], addr)
	return binary.LittleEndian.Uint32(b[:]), err
}

// maxString bounds the names in HotSpot's data, in bytes.
const maxString = 512

// cstring reads a string that ends with 0.
func cstring(mem io.ReaderAt, addr uint64) (string, error) {
	var b [maxString]byte
	for n := 0; n < len(b); {
		// Do not cross a page: the next one may be unmapped.
		part := b[n:min(len(b), n+64)]
		if left := 4096 - int((addr+uint64(n))&4095); left < len(part) {
			part = part[:left]
		}
		if err := read(mem, part, addr+uint64(n)); err != nil {
			return "", err
		}
		for i, c := range part {
			if c == 0 {
				return string(b[:n+i]), nil
			}
		}
		n += len(part)
	}
	return string(b[:]), nil
}

// Accessors of read data. Offsets were checked against the buffer's size.
func u64(b []byte, off uint64) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
func u32(b []byte, off uint64) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
func u16(b []byte, off uint64) uint16 { return binary.LittleEndian.Uint16(b[off:]) }

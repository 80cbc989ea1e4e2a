// Package jfr reads recordings of Java Flight Recorder (JDK Flight Recorder): chunks of the format's version 2, with
// their own description of types, constants and events. It knows no event: names and fields come from the caller,
// their layout from the file. What an event means, and where a file comes from, is not its business.
//
// The format is that of OpenJDK's jdk.jfr.internal.consumer (ChunkHeader, MetadataReader, ChunkParser, ParserFactory)
// in version 25. A hostile process may have written the file: all lengths are checked before memory is taken for them.
//
// A Chunk is for one goroutine.
package jfr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

const (
	magic      = "FLR\x00"
	headerSize = 68
	// MaxChunk bounds the bytes of one chunk. HotSpot begins another one after 12 MB unless JFR.configure says otherwise.
	MaxChunk = 128 << 20
	// maxChunks bounds the chunks of one file.
	maxChunks = 1 << 16
)

// Header is the beginning of a chunk.
type Header struct {
	Major, Minor int
	Size         int64 // bytes of the chunk
	Start        int64 // ns since 1970
	Duration     int64 // ns
	StartTicks   int64
	TicksPerSec  int64
	Final        bool // the last one of its recording

	pools      int64 // offset of the last checkpoint event
	metadata   int64 // offset of the event that describes the types
	compressed bool  // integers are LEB128
}

// Time converts ticks to ns since 1970. A value out of range is the nearest one in it.
func (h *Header) Time(ticks int64) int64 {
	if ticks < h.StartTicks {
		return h.Start - h.Nanos(h.StartTicks-ticks)
	}
	return add(h.Start, h.Nanos(ticks-h.StartTicks))
}

// Nanos converts a number of ticks to ns; a negative one to 0.
func (h *Header) Nanos(ticks int64) int64 {
	if ticks <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(ticks), 1e9)
	if hi >= uint64(h.TicksPerSec) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(h.TicksPerSec))
	return int64(min(q, math.MaxInt64))
}

func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// parseHeader reads the first headerSize bytes of a chunk.
func parseHeader(b []byte) (Header, error) {
	var h Header
	if len(b) < headerSize {
		return h, fmt.Errorf("chunk of %d bytes; its header has %d", len(b), headerSize)
	}
	if string(b[:4]) != magic {
		return h, fmt.Errorf("not a JFR chunk: it begins with %q", b[:4])
	}
	at := func(off int) int64 { return int64(binary.BigEndian.Uint64(b[off:])) }
	h = Header{Major: int(binary.BigEndian.Uint16(b[4:])), Minor: int(binary.BigEndian.Uint16(b[6:])), Size: at(8), pools: at(16), metadata: at(24),
		Start: at(32), Duration: at(40), StartTicks: at(48), TicksPerSec: at(56), compressed: b[67]&1 != 0, Final: b[67]&2 != 0}
	switch {
	case h.Major != 2:
		return h, fmt.Errorf("JFR format %d.%d; only version 2 is known", h.Major, h.Minor)
	case b[64] != 0:
		return h, fmt.Errorf("the chunk is still being written (state %d)", b[64])
	case h.Size < headerSize || h.Size > MaxChunk:
		return h, fmt.Errorf("chunk of %d bytes; %d to %d are allowed", h.Size, headerSize, int64(MaxChunk))
	case h.metadata < headerSize || h.metadata >= h.Size:
		return h, fmt.Errorf("metadata at offset %d of a chunk of %d bytes", h.metadata, h.Size)
	case h.pools != 0 && (h.pools < headerSize || h.pools >= h.Size):
		return h, fmt.Errorf("constants at offset %d of a chunk of %d bytes", h.pools, h.Size)
	case h.TicksPerSec <= 0 || h.StartTicks < 0 || h.Start < 0 || h.Duration < 0:
		return h, fmt.Errorf("clock of %d ticks a second from %d, %d ns since 1970 for %d ns", h.TicksPerSec, h.StartTicks, h.Start, h.Duration)
	}
	return h, nil
}

// Each reads the chunks of a file of a size in bytes, in their order. want decides by its header whether a chunk is
// read; nil: all are. A chunk that is damaged ends it: the error has its offset in the file.
func Each(r io.ReaderAt, size int64, want func(*Header) bool, use func(*Chunk) error) error {
	var b [headerSize]byte
	var buf []byte
	n := 0
	for off := int64(0); off < size; n++ {
		if n == maxChunks {
			return fmt.Errorf("JFR file: more than %d chunks", maxChunks)
		}
		got, err := r.ReadAt(b[:], off)
		if err != nil && !(errors.Is(err, io.EOF) && got == len(b)) {
			return fmt.Errorf("JFR chunk at %d: read %d bytes: %w", off, len(b), err)
		}
		h, err := parseHeader(b[:])
		if err == nil && h.Size > size-off {
			err = fmt.Errorf("chunk of %d bytes; the file has %d more", h.Size, size-off)
		}
		if err != nil {
			return fmt.Errorf("JFR chunk at %d: %w", off, err)
		}
		if want == nil || want(&h) {
			if int64(cap(buf)) < h.Size {
				buf = make([]byte, h.Size)
			}
			buf = buf[:h.Size]
			if got, err := r.ReadAt(buf, off); err != nil && !(errors.Is(err, io.EOF) && got == len(buf)) {
				return fmt.Errorf("JFR chunk at %d: read %d bytes: %w", off, len(buf), err)
			}
			c, err := Parse(buf)
			if err == nil {
				err = use(c)
			}
			if err != nil {
				return fmt.Errorf("JFR chunk at %d: %w", off, err)
			}
		}
		off += h.Size
	}
	return nil
}

// Chunk is one chunk of a recording. It refers to the bytes that it was parsed from.
type Chunk struct {
	Header
	types map[int64]*Type
	names map[string]*Type
	data  []byte
	pools map[*Type]map[int64]Value
	kept  int // values in pools
	seen  int // values decoded, in pools and events
}

// Parse reads the header and the types of a chunk.
func Parse(data []byte) (*Chunk, error) {
	h, err := parseHeader(data)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) < h.Size {
		return nil, fmt.Errorf("chunk of %d bytes, of which %d are there", h.Size, len(data))
	}
	c := &Chunk{Header: h, data: data[:h.Size], types: map[int64]*Type{}, names: map[string]*Type{}}
	if err := c.readTypes(); err != nil {
		return nil, err
	}
	return c, nil
}

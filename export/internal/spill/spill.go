// Package spill buffers bytes whose final length is unknown: in memory first, in a
// temporary file beyond a threshold. A Buffer is for one goroutine.
package spill

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// Buffer stores bytes and writes them out again. The zero value keeps DefaultMemory.
type Buffer struct {
	Memory int // bytes that are kept in memory; 0: DefaultMemory

	held []byte // bytes that are not in the file
	file *os.File
	n    int64
	sum  uint32
}

// DefaultMemory is how many bytes a Buffer keeps in memory by default.
const DefaultMemory = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write appends b.
func (s *Buffer) Write(b []byte) (int, error) {
	limit := s.Memory
	if limit == 0 {
		limit = DefaultMemory
	}
	if len(s.held) > 0 && len(s.held)+len(b) > limit {
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	s.held = append(s.held, b...)
	s.n += int64(len(b))
	s.sum = crc32.Update(s.sum, castagnoli, b)
	return len(b), nil
}

// flush moves the buffered bytes to the unnamed file.
func (s *Buffer) flush() error {
	if s.file == nil {
		f, err := os.CreateTemp("", "sliver-export-")
		if err != nil {
			return fmt.Errorf("keep what does not fit into memory: %w", err)
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return fmt.Errorf("keep what does not fit into memory: %w", err)
		}
	}
	if _, err := s.file.Write(s.held); err != nil {
		return fmt.Errorf("keep what does not fit into memory: %w", err)
	}
	s.held = s.held[:0]
	return nil
}

// Len returns the number of bytes written so far.
func (s *Buffer) Len() int64 { return s.n }

// Sum returns the CRC-32C of the bytes written so far.
func (s *Buffer) Sum() uint32 { return s.sum }

// WriteTo writes everything to w and empties the Buffer.
func (s *Buffer) WriteTo(w io.Writer) (int64, error) {
	var n int64
	if s.file != nil {
		from := s.n - int64(len(s.held))
		copied, err := io.Copy(w, io.NewSectionReader(s.file, 0, from))
		if n = copied; err == nil && n < from {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return n, err
		}
	}
	k, err := w.Write(s.held)
	if err == nil {
		s.Close()
	}
	return n + int64(k), err
}

// Close frees memory and disk space.
func (s *Buffer) Close() {
	if s.file != nil {
		s.file.Close()
	}
	*s = Buffer{Memory: s.Memory}
}

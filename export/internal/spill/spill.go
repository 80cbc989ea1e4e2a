// Package spill keeps bytes until it is known how many there are: in memory at
// first, in a temporary file from some size on. A Buffer is for one goroutine.
package spill

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// Buffer takes bytes and gives them back. The zero value keeps DefaultMemory.
type Buffer struct {
	Memory int // bytes that are kept in memory; 0: DefaultMemory

	held []byte // what is not in the file
	file *os.File
	n    int64
	sum  uint32
}

// DefaultMemory is what a Buffer keeps in memory, in bytes.
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

// flush moves what is held to the file, which has no name.
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

// Len is the number of bytes written so far.
func (s *Buffer) Len() int64 { return s.n }

// Sum is the CRC-32C of what was written so far.
func (s *Buffer) Sum() uint32 { return s.sum }

// WriteTo writes everything to w, and empties the Buffer.
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

// Close gives back memory and disk.
func (s *Buffer) Close() {
	if s.file != nil {
		s.file.Close()
	}
	*s = Buffer{Memory: s.Memory}
}

package hprof

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Salvaged is what a damaged dump has before its damage, as a dump that is whole:
// the last heap dump record has the length of the sub-records that could be read.
type Salvaged struct {
	Damage *Error // why the dump ends where it does, nil if it is whole
	src    io.ReaderAt
	head   int64 // offset of the changed record's head, or the end
	patch  [recordHeadBytes]byte
	end    int64 // end of the used part of src
	tail   []byte
	at     int64 // of the next Read
}

// Salvage reads a dump for its damage. size is that of src.
func Salvage(src io.ReaderAt, size int64) (*Salvaged, error) {
	s := &Salvaged{src: src, head: size, end: size}
	r, err := NewReader(io.NewSectionReader(src, 0, size))
	if err != nil {
		return nil, err
	}
	for err == nil {
		_, err = r.Next()
	}
	if err == io.EOF {
		return s, nil
	}
	if !errors.As(err, &s.Damage) {
		return nil, err
	}
	s.head, s.end = s.Damage.Offset, s.Damage.Offset
	if d := &r.dump; d.inside {
		s.head = d.start - recordHeadBytes
		if _, err := src.ReadAt(s.patch[:], s.head); err != nil {
			return nil, err
		}
		binary.BigEndian.PutUint32(s.patch[5:], uint32(s.end-d.start+d.gap))
		if d.tag == TagHeapSegment {
			s.tail = make([]byte, recordHeadBytes)
			s.tail[0] = TagHeapDumpEnd
		}
	}
	return s, nil
}

// Size returns the bytes of the dump.
func (s *Salvaged) Size() int64 { return s.end + int64(len(s.tail)) }

// ReadAt implements io.ReaderAt.
func (s *Salvaged) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off >= s.Size() {
		return 0, io.EOF
	}
	if off < s.end {
		n, err = s.src.ReadAt(p[:min(int64(len(p)), s.end-off)], off)
		if s.head < s.end {
			for i := max(off, s.head); i < min(off+int64(n), s.head+recordHeadBytes); i++ {
				p[i-off] = s.patch[i-s.head]
			}
		}
		if err != nil && off+int64(n) < s.end {
			return n, err
		}
	}
	if n < len(p) {
		more, _ := bytes.NewReader(s.tail).ReadAt(p[n:], off+int64(n)-s.end)
		n += more
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Read implements io.Reader, and Seek io.Seeker.
func (s *Salvaged) Read(p []byte) (int, error) {
	n, err := s.ReadAt(p, s.at)
	s.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Seek implements io.Seeker.
func (s *Salvaged) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.Size()
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	s.at = offset
	return offset, nil
}

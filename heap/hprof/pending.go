package hprof

import (
	"encoding/binary"
	"io"
	"os"
)

// maxPending bounds the memory for a segment whose length is not known yet. A longer
// one goes to a temporary file.
const maxPending = 8 << 20

// pending is a record whose length is not known yet: a rewriter may drop some of
// its sub-records.
type pending struct {
	open bool
	head [recordHeadBytes]byte
	buf  []byte
	file *os.File
	size int64 // bytes in file
	cut  int64 // bytes that count in the length and are not there
	temp string
}

func (p *pending) Write(b []byte) (int, error) {
	if len(p.buf)+len(b) > maxPending {
		if err := p.spill(); err != nil {
			return 0, err
		}
		if len(b) > maxPending/2 {
			n, err := p.file.Write(b)
			p.size += int64(n)
			return n, err
		}
	}
	p.buf = append(p.buf, b...)
	return len(b), nil
}

func (p *pending) spill() error {
	if p.file == nil {
		f, err := nameless(p.temp)
		if err != nil {
			return err
		}
		p.file = f
	}
	n, err := p.file.Write(p.buf)
	p.size += int64(n)
	p.buf = p.buf[:0]
	return err
}

// segmented is a rewriter that holds heap dump records back until their length is
// known.
type segmented struct {
	*rewriter
	pending pending
}

// beginSegment holds back the record that it begins.
func (s *segmented) beginSegment(it *Item) error {
	copy(s.pending.head[:], it.Head)
	if err := s.dropItem(); err != nil {
		return err
	}
	s.pending.open, s.pending.cut = true, 0
	s.tap.w = &s.pending
	return nil
}

// endSegment writes the record that was held back with its length. The last head
// bytes that were read are not part of it.
func (s *segmented) endSegment(head int) error {
	p := &s.pending
	if !p.open {
		return nil
	}
	p.open = false
	if err := s.tap.flush(s.buf, s.pos-head); err != nil {
		return err
	}
	s.tap.w = s.out
	binary.BigEndian.PutUint32(p.head[5:], uint32(int64(len(p.buf))+p.size+p.cut))
	if _, err := s.out.Write(p.head[:]); err != nil {
		return err
	}
	if p.file != nil {
		if _, err := p.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(s.out, io.LimitReader(p.file, p.size)); err != nil {
			return err
		}
		if err := p.file.Truncate(0); err != nil {
			return err
		}
		if _, err := p.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		p.size = 0
	}
	_, err := s.out.Write(p.buf)
	p.buf = p.buf[:0]
	return err
}

func (p *pending) close() {
	if p.file != nil {
		p.file.Close()
	}
}

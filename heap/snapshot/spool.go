package snapshot

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Bounds of a spool, in bytes.
const (
	spoolChunk = 1 << 20
	// spoolRaw bytes are kept uncompressed; chunks beyond that are compressed. A fast reader never pays for it.
	spoolRaw = 16 << 20
	// spoolLimit bounds all chunks as they are kept. Compressed, a dump of a gigabyte or two fits.
	spoolLimit = 256 << 20
)

// spool is a queue in memory between HotSpot and a slow writer: the process goes on before its dump is packed.
type spool struct {
	limit int64
	enc   *zstd.Encoder
	dec   *zstd.Decoder
	fill  []byte // the next chunk, of the writer's goroutine

	mu    sync.Mutex
	moved sync.Cond
	queue []chunk
	held  int64 // bytes of queue
	done  bool  // no chunk will come
	err   error // of the slow writer, or why it is left
}

type chunk struct {
	b    []byte
	size int // of its content; 0: b is not compressed
}

func newSpool(limit int64) (*spool, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(4*spoolChunk))
	if err != nil {
		return nil, err
	}
	s := &spool{limit: limit, enc: enc, dec: dec}
	s.moved.L = &s.mu
	return s, nil
}

// Write appends b. It waits only while the spool is full.
func (s *spool) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if s.fill == nil {
			s.fill = make([]byte, 0, spoolChunk)
		}
		k := min(len(b)-n, cap(s.fill)-len(s.fill))
		s.fill = append(s.fill, b[n:n+k]...)
		n += k
		if len(s.fill) == cap(s.fill) {
			if err := s.push(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// push queues the chunk that is being filled.
func (s *spool) push() error {
	c := chunk{b: s.fill}
	if len(c.b) == 0 {
		return nil
	}
	s.fill = nil
	s.mu.Lock()
	raw := s.held+int64(len(c.b)) <= min(spoolRaw, s.limit)
	s.mu.Unlock()
	if !raw {
		c = chunk{b: s.enc.EncodeAll(c.b, make([]byte, 0, len(c.b)/4)), size: len(c.b)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.held > 0 && s.held+int64(len(c.b)) > s.limit {
		s.moved.Wait()
	}
	if s.err != nil {
		return s.err
	}
	s.queue, s.held = append(s.queue, c), s.held+int64(len(c.b))
	s.moved.Broadcast()
	return nil
}

// end says that nothing more is written.
func (s *spool) end() error {
	err := s.push()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	s.moved.Broadcast()
	return err
}

// leave ends both sides with an error.
func (s *spool) leave(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.queue, s.held = nil, 0
	s.moved.Broadcast()
}

// pop returns the oldest chunk; false: there is none and none will come.
func (s *spool) pop() (c chunk, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && len(s.queue) == 0 && !s.done {
		s.moved.Wait()
	}
	if s.err != nil || len(s.queue) == 0 {
		return chunk{}, false
	}
	c, s.queue = s.queue[0], s.queue[1:]
	s.held -= int64(len(c.b))
	s.moved.Broadcast()
	return c, true
}

// drain writes all chunks to w until the end, and returns how it ended.
func (s *spool) drain(w io.Writer) error {
	for {
		c, ok := s.pop()
		if !ok {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.err
		}
		b := c.b
		if c.size > 0 {
			var err error
			if b, err = s.dec.DecodeAll(c.b, make([]byte, 0, c.size)); err != nil || len(b) != c.size {
				err = errors.Join(fmt.Errorf("a dump's chunk of %d bytes is damaged in memory", c.size), err)
				s.leave(err)
				return err
			}
		}
		if _, err := w.Write(b); err != nil {
			s.leave(err)
			return err
		}
	}
}

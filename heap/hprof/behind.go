package hprof

import (
	"io"
	"sync/atomic"
)

const (
	behindBytes   = 256 << 10
	behindBuffers = 3
)

// behind is a writer that writes from a goroutine of its own, so that a dump is
// parsed while what came before is written. Close ends the goroutine.
type behind struct {
	buf        []byte
	full, free chan []byte
	err        atomic.Pointer[error]
}

func newBehind(w io.Writer) *behind {
	b := &behind{buf: make([]byte, 0, behindBytes), full: make(chan []byte, behindBuffers), free: make(chan []byte, behindBuffers)}
	for range behindBuffers - 1 {
		b.free <- make([]byte, 0, behindBytes)
	}
	go func() {
		defer close(b.free)
		for buf := range b.full {
			if b.err.Load() == nil {
				if _, err := w.Write(buf); err != nil {
					b.err.Store(&err)
				}
			}
			b.free <- buf[:0]
		}
	}()
	return b
}

func (b *behind) failed() error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (b *behind) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		have := len(b.buf)
		b.buf = b.buf[:have+copy(b.buf[have:cap(b.buf)], p)]
		p = p[len(b.buf)-have:]
		if len(b.buf) == cap(b.buf) {
			b.full <- b.buf
			b.buf = <-b.free
			if err := b.failed(); err != nil {
				return n - len(p), err
			}
		}
	}
	return n, nil
}

// Close writes the rest and waits for it.
func (b *behind) Close() error {
	b.full <- b.buf
	close(b.full)
	for range b.free { // until the goroutine has written all
		continue
	}
	return b.failed()
}

package live

import (
	"bytes"
	"io"
	"sync"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/rule"
)

// maxInMemory limits the images without a file that are shared: the kernel has a vDSO for programs of 64 bits, and one or two
// for those of 32. maxInMemoryBytes limits the size of each.
const (
	maxInMemory      = 4
	maxInMemoryBytes = 1 << 20
)

// inMemory is an image without a file that several processes have, with all that is read of it. To parse the vDSO of each
// process for its tables, its segments and its build ID takes as long as all of its system calls.
type inMemory struct {
	content []byte
	image   struct {
		once sync.Once
		img  *unwind.Image
	}
	head fileHead
}

// inMemory returns the image with this content; nil: there are too many.
func (s *Shared) inMemory(content []byte) *inMemory {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.memory {
		if bytes.Equal(x.content, content) {
			return x
		}
	}
	if len(s.memory) >= maxInMemory || len(content) > maxInMemoryBytes {
		return nil
	}
	x := &inMemory{content: bytes.Clone(content)}
	s.memory = append(s.memory, x)
	return x
}

func (x *inMemory) imageFor(arch rule.Arch) *unwind.Image {
	x.image.once.Do(func() {
		x.image.img = unwind.NewMemoryImage(x.content, arch, stacks()...)
		x.image.img.Share()
	})
	return x.image.img
}

// HeadOf is SharedFile.Head for a file that is not shared, or an image without a file. s may be nil.
func (s *Shared) HeadOf(f target.File) (segs [][3]uint64, buildID string, err error) {
	var own fileHead
	if b := target.InMemory(f); s != nil && b != nil {
		if x := s.inMemory(b); x != nil {
			return x.head.of(f)
		}
	}
	return own.of(f)
}

// fileHead is what SharedFile.Head returns, read once.
type fileHead struct {
	once    sync.Once
	segs    [][3]uint64
	err     error
	buildID string
}

// of returns the head of f, which has the same content in each call.
func (h *fileHead) of(f io.ReaderAt) (segs [][3]uint64, buildID string, err error) {
	h.once.Do(func() {
		h.buildID, _ = symbol.BuildID(f)
		h.segs, h.err = Segments(f)
	})
	return h.segs, h.buildID, h.err
}

package store

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// InMemory is how many slices a store with a file keeps in memory: about 130 MB.
const InMemory = 4 << 20

// MaxInFile is the maximum number of slices in a store's file: 8 GB.
const MaxInFile = 256 << 20

const (
	segmentLen = 64 << 20 // bytes of the file that are mapped at once
	leaveFree  = 1 << 30  // free bytes to leave on the file's disk

	fallocPunchHole = 2
	fallocKeepSize  = 1
)

// errFull ends the use of a file that would fill its disk.
var errFull = errors.New("its disk has no room left")

// spill is an unnamed file of chunks, mapped for reading, so that the kernel caches what
// is read as memory permits. A chunk's space in the file is freed when no reader holds it
// any more, and is not reused, so that no reader sees another chunk in its place.
type spill struct {
	folder string
	memory int64        // slices that stay out of the file
	held   atomic.Int64 // slices in the file

	mu   sync.Mutex
	f    *os.File // created when the first chunk is written
	next int64    // offset of the next chunk
	seg  []byte   // mapping at next
	err  error    // why no more chunks go into the file
}

// Overflow gives s a file in folder for the slices beyond memory (0: InMemory). It
// creates the folder if necessary. Call it before the first event.
func (s *Store) Overflow(folder string, memory int) {
	if memory <= 0 {
		memory = InMemory
	}
	s.spill = &spill{folder: folder, memory: int64(memory)}
}

// InFile returns how many slices are in the store's file, and why no more can be added
// (nil: they can).
func (s *Store) InFile() (slices int, err error) {
	if s.spill == nil {
		return 0, nil
	}
	s.spill.mu.Lock()
	defer s.spill.mu.Unlock()
	return int(s.spill.held.Load()), s.spill.err
}

// over returns by how many slices the limit is exceeded.
func (s *Store) over() int64 {
	held := s.held.Load()
	if s.spill == nil {
		return held - s.limit
	}
	in := s.spill.held.Load()
	return max(held-in-max(s.limit, s.spill.memory), in-MaxInFile)
}

// settle moves a full chunk to the file if enough slices are in memory.
func (s *Store) settle(c *chunk) {
	p := s.spill
	if p == nil || s.held.Load()-p.held.Load() < p.memory || p.held.Load() >= MaxInFile {
		return
	}
	if at, kept := p.put(c.s); kept != nil {
		c.s, c.inFile = kept, true
		p.held.Add(chunkLen)
		runtime.AddCleanup(c, p.free, at)
	}
}

// put writes full chunks; it returns nil after an error.
func (p *spill) put(c []Slice) (at int64, kept []Slice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, nil
	}
	b := bytesOf(c)
	if p.next%segmentLen == 0 {
		if p.err = p.extend(); p.err != nil {
			return 0, nil
		}
	}
	at = p.next
	if _, p.err = p.f.WriteAt(b, at); p.err != nil {
		return 0, nil
	}
	p.next += int64(len(b))
	from := at % segmentLen
	return at, slicesIn(p.seg[from : from+int64(len(b))])
}

// create creates the file and unlinks it.
func (p *spill) create() error {
	if err := os.MkdirAll(p.folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(p.folder, ".timeline-*")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return err
	}
	p.f = f
	return nil
}

// extend maps the next part of the file, which may be longer than the file.
func (p *spill) extend() error {
	if p.f == nil {
		if err := p.create(); err != nil {
			return fmt.Errorf("a file for a long timeline: %w", err)
		}
	}
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(int(p.f.Fd()), &fs); err != nil {
		return err
	}
	if int64(fs.Bavail)*fs.Bsize < segmentLen+leaveFree {
		return errFull
	}
	seg, err := syscall.Mmap(int(p.f.Fd()), p.next, segmentLen, syscall.PROT_READ, syscall.MAP_SHARED)
	p.seg = seg
	return err
}

// free returns a chunk's disk space.
func (p *spill) free(at int64) {
	// If this fails, the space is freed when the program exits.
	_ = syscall.Fallocate(int(p.f.Fd()), fallocPunchHole|fallocKeepSize, at, int64(chunkLen*sliceSize))
}

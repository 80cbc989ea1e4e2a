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

// InMemory is how many slices a store with a file keeps in memory of its own:
// some 130 MB.
const InMemory = 4 << 20

// MaxInFile is how many slices a store's file has at most: 8 GB.
const MaxInFile = 256 << 20

const (
	segmentLen = 64 << 20 // bytes of the file that are mapped at once
	leaveFree  = 1 << 30  // bytes of the file's disk that others keep

	fallocPunchHole = 2
	fallocKeepSize  = 1
)

// errFull ends the use of a file that would fill its disk.
var errFull = errors.New("its disk has no room left")

// spill is a file without a name in which chunks are kept, mapped for reading:
// the kernel has as much of it in memory as is read, and there is room for.
// Its place in the file is given back when nobody holds a chunk any more, and
// not used again, so that no reader sees another chunk in its place.
type spill struct {
	folder string
	memory int64        // slices that stay out of the file
	held   atomic.Int64 // slices in the file

	mu   sync.Mutex
	f    *os.File // made when there is something to put into it
	next int64    // offset of the next chunk
	seg  []byte   // where that is mapped
	err  error    // why there will be no more in the file
}

// Overflow gives s a file in folder, which is made where it is not there, for
// what is beyond so many slices (0: InMemory). It is for before the first event.
func (s *Store) Overflow(folder string, memory int) {
	if memory <= 0 {
		memory = InMemory
	}
	s.spill = &spill{folder: folder, memory: int64(memory)}
}

// InFile is how many of the slices held are in the store's file, and why there
// will be no more of them (nil: there may).
func (s *Store) InFile() (slices int, err error) {
	if s.spill == nil {
		return 0, nil
	}
	s.spill.mu.Lock()
	defer s.spill.mu.Unlock()
	return int(s.spill.held.Load()), s.spill.err
}

// over is how many slices there are too many.
func (s *Store) over() int64 {
	held := s.held.Load()
	if s.spill == nil {
		return held - s.limit
	}
	in := s.spill.held.Load()
	return max(held-in-max(s.limit, s.spill.memory), in-MaxInFile)
}

// settle moves a full chunk to the file where there is enough in memory.
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

// put writes full chunks; nil where that is no longer possible.
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

// create makes the file, which has no name from then on.
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

// free gives the room of a chunk back to the disk.
func (p *spill) free(at int64) {
	// What cannot be given back goes with the program.
	_ = syscall.Fallocate(int(p.f.Fd()), fallocPunchHole|fallocKeepSize, at, int64(chunkLen*sliceSize))
}

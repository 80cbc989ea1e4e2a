package graph

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// An arena holds the big arrays of a graph outside of Go's heap, so that the
// collector neither scans nor doubles them, and each is unmapped after its last use. With a folder, the arrays are parts of an unlinked file there: the kernel may
// then write them out where memory is short. One goroutine allocates and frees; the
// arrays themselves may be shared.
type arena struct {
	file *os.File // nil: anonymous memory
	end  int64    // bytes of the file in use, frees aside

	mu    sync.Mutex
	live  map[*byte][]byte
	spare map[*byte]int64 // by array: bytes of it that are not counted
	lazy  bool
	used  int64 // bytes in use
	peak  int64
}

// newArena returns an arena in memory, or in an unlinked file of the folder dir.
func newArena(dir string) (*arena, error) {
	a := &arena{live: map[*byte][]byte{}, spare: map[*byte]int64{}}
	if dir == "" {
		return a, nil
	}
	f, err := os.CreateTemp(dir, ".sliver-heap-*")
	if err != nil {
		return nil, fmt.Errorf("make the file of the graph's arrays: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("unlink the file of the graph's arrays: %w", err)
	}
	a.file = f
	return a, nil
}

const pageBytes = 4096

// hugePage is the size from which the kernel may use large pages for an array: they
// spare most of the misses of the translation buffer that random access has.
const hugePage = 2 << 20

// madvHugepage is MADV_HUGEPAGE of Linux's uapi/asm-generic/mman-common.h.
const madvHugepage = 14

// bytes returns n zeroed bytes.
func (a *arena) bytes(n int64) ([]byte, error) {
	if n <= 0 {
		return nil, nil
	}
	size := (n + pageBytes - 1) / pageBytes * pageBytes
	var b []byte
	var err error
	if a.file == nil {
		b, err = syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
		if err == nil && size >= hugePage {
			syscall.Madvise(b, madvHugepage) // without it all works, slower
		}
	} else {
		if err = a.file.Truncate(a.end + size); err == nil {
			b, err = syscall.Mmap(int(a.file.Fd()), a.end, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
			a.end += size
		}
	}
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for the graph: %w", size, err)
	}
	a.mu.Lock()
	a.live[&b[0]] = b
	a.used += size
	if a.lazy {
		a.used -= size
		a.spare[&b[0]] = size
	}
	a.peak = max(a.peak, a.used)
	a.mu.Unlock()
	return b[:n:n], nil
}

func (a *arena) u32s(n int64) ([]uint32, error) {
	b, err := a.bytes(n * 4)
	if len(b) == 0 {
		return nil, err
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), n), nil
}

func (a *arena) u64s(n int64) ([]uint64, error) {
	b, err := a.bytes(n * 8)
	if len(b) == 0 {
		return nil, err
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), n), nil
}

// shrink32 gives back what of an array is behind its first n entries.
func (a *arena) shrink32(s *[]uint32, n int64) {
	if len(*s) > 0 && n > 0 {
		a.shrink((*byte)(unsafe.Pointer(&(*s)[0])), n*4)
		*s = (*s)[:n:n]
	}
}

func (a *arena) shrink64(s *[]uint64, n int64) {
	if len(*s) > 0 && n > 0 {
		a.shrink((*byte)(unsafe.Pointer(&(*s)[0])), n*8)
		*s = (*s)[:n:n]
	}
}

// shrink counts the first n bytes of the array at p as in use and the others not: they
// were not written, and Linux has memory for pages that were touched alone.
func (a *arena) shrink(p *byte, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	size := int64(len(a.live[p]))
	spare := size - min((n+pageBytes-1)/pageBytes*pageBytes, size)
	a.used += a.spare[p] - spare
	a.spare[p] = spare
	a.peak = max(a.peak, a.used)
}

// reserve counts the next array by what of it is written, which is said with shrink.
func (a *arena) reserve(f func() error) error {
	a.lazy = true
	err := f()
	a.lazy = false
	return err
}

// release unmaps the array that begins at p.
func (a *arena) release(p *byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b, ok := a.live[p]; ok {
		delete(a.live, p)
		a.used -= int64(len(b)) - a.spare[p]
		delete(a.spare, p)
		syscall.Munmap(b)
	}
}

func (a *arena) free32(arrays ...*[]uint32) {
	for _, s := range arrays {
		if len(*s) > 0 {
			a.release((*byte)(unsafe.Pointer(&(*s)[0])))
		}
		*s = nil
	}
}

func (a *arena) free64(arrays ...*[]uint64) {
	for _, s := range arrays {
		if len(*s) > 0 {
			a.release((*byte)(unsafe.Pointer(&(*s)[0])))
		}
		*s = nil
	}
}

// close returns all that is left.
func (a *arena) close() {
	a.mu.Lock()
	for p, b := range a.live {
		syscall.Munmap(b)
		delete(a.live, p)
	}
	a.used = 0
	a.mu.Unlock()
	if a.file != nil {
		a.file.Close()
	}
}

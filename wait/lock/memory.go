package lock

import "encoding/binary"

// memory reads words and keeps the first error. Both architectures are little-endian.
type memory struct {
	m   Memory
	err error
	// The surroundings of the word, read at once, so that probes in them need no read.
	win   []byte
	winAt uint64
}

// The window around the word, which covers most probes.
const (
	winBefore = 32
	winSize   = 128
)

// window reads the surroundings of the word, if all of them are readable, and the word.
// Words near the edge of a mapping are read alone.
func (m *memory) window(word uint64) (uint32, bool) {
	b := make([]byte, winSize)
	if word >= winBefore && m.probe(b, word-winBefore) {
		m.win, m.winAt = b, word-winBefore
		return u32(b[winBefore:]), true
	}
	return m.u32(word)
}

func (m *memory) read(b []byte, addr uint64) bool {
	n, err := m.m.ReadAt(b, addr)
	if n == len(b) && err == nil {
		return true
	}
	if err == nil {
		err = errShort
	}
	if m.err == nil {
		m.err = err
	}
	return false
}

// probe reads an address that may be unmapped: a failure is a result, not an error.
func (m *memory) probe(b []byte, addr uint64) bool {
	if off := addr - m.winAt; addr >= m.winAt && off < uint64(len(m.win)) && uint64(len(b)) <= uint64(len(m.win))-off {
		copy(b, m.win[off:])
		return true
	}
	n, err := m.m.ReadAt(b, addr)
	return n == len(b) && err == nil
}

func (m *memory) u32(addr uint64) (uint32, bool) {
	var b [4]byte
	ok := m.read(b[:], addr)
	return u32(b[:]), ok
}

func (m *memory) probe64(addr uint64) (uint64, bool) {
	var b [8]byte
	ok := m.probe(b[:], addr)
	return u64(b[:]), ok
}

func (m *memory) probe32(addr uint64) (uint32, bool) {
	var b [4]byte
	ok := m.probe(b[:], addr)
	return u32(b[:]), ok
}

func u32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func u64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

type shortError struct{}

func (shortError) Error() string { return "short read" }

var errShort = shortError{}

// stackScan is how many bytes of a sleeping thread's stack are searched for data of its
// innermost functions: libc's wait functions have frames of at most a few hundred
// bytes.
const stackScan = 2048

// stack returns the words above SP, fewer if the stack ends sooner.
func (r *recogniser) stack() []uint64 {
	if r.w == nil || r.w.SP == 0 || r.w.SP&7 != 0 {
		return nil
	}
	var b [stackScan]byte
	n, _ := r.m.m.ReadAt(b[:], r.w.SP)
	words := make([]uint64, 0, stackScan/8)
	for i := 0; i+8 <= n; i += 8 {
		words = append(words, u64(b[i:]))
	}
	return words
}

package ringfile

import (
	"sync/atomic"
	"unsafe"
)

// words returns n words of the mapping at off, which must be a multiple of 8 and inside the
// mapping.
func (m *Memory) words(off int64, n int) []atomic.Uint64 {
	b := m.b[off : off+int64(n)*8]
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&b[0])), n)
}

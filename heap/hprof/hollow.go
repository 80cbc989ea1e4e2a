package hprof

import (
	"io"
	"os"
)

// HollowFrom is the length in bytes from which Hollow overwrites the values of a primitive array.
const HollowFrom = 4 << 10

// Hollow writes a dump with zeros for the values of its large primitive arrays, which hold no references.
// All positions stay. It reads src once.
//
// If the dump is damaged, w has what came before, and the error is an *Error.
func Hollow(w io.Writer, src io.Reader) error {
	r, err := newRewriter(w, src)
	if err != nil {
		return err
	}
	for err == nil {
		var it *Item
		if it, err = r.Next(); err == nil && it.Kind == KindSub && it.Tag == SubPrimitiveArray && it.Body >= HollowFrom {
			err = r.overwrite(it.Body, zeros)
		}
	}
	return r.finish(err)
}

// holes writes a file from its beginning. Blocks of zeros become holes, which need no space.
type holes struct {
	f    *os.File
	size int64
}

// holeBlock is the size of a hole, that of a page.
const holeBlock = 4 << 10

// Write writes b. Only the last of all may have another length than a multiple of holeBlock.
func (h *holes) Write(b []byte) error {
	for from := 0; from < len(b); {
		to := from
		for to < len(b) && !isZero(b[to:min(to+holeBlock, len(b))]) {
			to = min(to+holeBlock, len(b))
		}
		if to > from {
			if _, err := h.f.WriteAt(b[from:to], h.size+int64(from)); err != nil {
				return err
			}
		}
		for to < len(b) && isZero(b[to:min(to+holeBlock, len(b))]) {
			to = min(to+holeBlock, len(b))
		}
		from = to
	}
	h.size += int64(len(b))
	return nil
}

// end gives the file its length: it may end with a hole.
func (h *holes) end() error { return h.f.Truncate(h.size) }

func isZero(b []byte) bool {
	for len(b) >= len(noBytes) {
		if [len(noBytes)]byte(b) != noBytes {
			return false
		}
		b = b[len(noBytes):]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

var noBytes [64]byte

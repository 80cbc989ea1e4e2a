package hprof

import (
	"io"
	"os"
)

// hollowFrom is the length in bytes from which Keep overwrites the values of a primitive array.
const hollowFrom = 4 << 10

// Kept is a dump in a file that has no name.
type Kept struct {
	File             *os.File
	Objects, Classes int64 // objects without the classes
}

// Keep writes a dump into a file without a name, in the folder temp ("" is the system's). The values of large primitive
// arrays, which hold no references, become holes of the file, so that no full dump is on the disk. All positions stay.
// It keeps no file if src fails or the dump is damaged.
func Keep(src io.Reader, temp string) (k Kept, err error) {
	if k.File, err = nameless(temp); err != nil {
		return k, err
	}
	h := &holes{f: k.File}
	if err = k.hollow(h, src); err == nil {
		err = h.end()
	}
	if err != nil {
		k.File.Close()
		k.File = nil
	}
	return k, err
}

// hollow writes a dump with zeros for the values of its large primitive arrays, and counts its objects.
func (k *Kept) hollow(w io.Writer, src io.Reader) error {
	r, err := newRewriter(w, src)
	if err != nil {
		return err
	}
	for err == nil {
		var it *Item
		if it, err = r.Next(); err != nil || it.Kind != KindSub {
			continue
		}
		switch it.Tag {
		case SubClass:
			k.Classes++
		case SubInstance, SubObjectArray, SubPrimitiveBare:
			k.Objects++
		case SubPrimitiveArray:
			if k.Objects++; it.Body >= hollowFrom {
				err = r.overwrite(it.Body, zeros)
			}
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

// Write writes b.
func (h *holes) Write(b []byte) (int, error) {
	for from := 0; from < len(b); {
		to := from
		for to < len(b) && !isZero(b[to:min(to+holeBlock, len(b))]) {
			to = min(to+holeBlock, len(b))
		}
		if to > from {
			if _, err := h.f.WriteAt(b[from:to], h.size+int64(from)); err != nil {
				return 0, err
			}
		}
		for to < len(b) && isZero(b[to:min(to+holeBlock, len(b))]) {
			to = min(to+holeBlock, len(b))
		}
		from = to
	}
	h.size += int64(len(b))
	return len(b), nil
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

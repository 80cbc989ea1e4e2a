package hprof

import (
	"bytes"
	"errors"
	"io"
)

// ErrNotCut is the error of Fill for a dump that has the values of its primitive
// arrays.
var ErrNotCut = errors.New("no gaps to fill: the dump was not stripped by KOOM's rule")

// Fill puts zeros where a strip by KOOM's rule has left out the values of
// primitive arrays, of this package or KOOM's own. The result is the original
// with zeros in its arrays, without ART's zygote and image heaps.
//
// If the dump is damaged, w has what came before, and the error is an *Error.
func Fill(w io.Writer, src io.Reader) error {
	r, err := newRewriter(w, src)
	if err != nil {
		return err
	}
	r.forced = true
	marked := false
	for err == nil {
		var it *Item
		if it, err = r.Next(); err != nil {
			break
		}
		switch {
		case it.Kind == KindRecord && it.Tag == TagString && it.ID == 0 && it.Body == int64(len(mark)):
			var text []byte
			head := len(it.Head)
			if text, err = r.Bytes(); err == nil && string(text) == mark {
				err = r.tap.flush(r.buf, r.pos-head-len(text))
				r.tap.from = r.pos
				marked = true
			}
		case it.Kind == KindSub && it.Tag == SubPrimitiveArray:
			if it.Head[0] == subKeptArray {
				it.Head[0] = SubPrimitiveArray
				break
			}
			err = r.zeros(int64(it.Count) * int64(it.Type.Size(r.header.IDSize)))
		}
	}
	var damage *Error
	if errors.As(err, &damage) && !marked && damage.Err == nil {
		_ = r.finish(err)
		return &Error{damage.Offset, damage.What + " (" + ErrNotCut.Error() + ")", ErrNotCut}
	}
	return r.finish(err)
}

// zeros writes n zeros behind the consumed bytes.
func (r *Reader) zeros(n int64) error {
	for n > 0 {
		b := zeros[:min(n, int64(len(zeros)))]
		if err := r.insert(b); err != nil {
			return err
		}
		n -= int64(len(b))
	}
	return nil
}

// LooksCut reports whether a stream begins like one that KOOM has stripped: its
// first objects can be read if the values of primitive arrays are not there, and
// cannot if they are.
func LooksCut(src io.Reader) bool {
	start := make([]byte, looksBytes)
	n, err := io.ReadFull(src, start)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false
	}
	return looksCut(start[:n])
}

// looksCut is LooksCut of a stream that begins with start.
func looksCut(start []byte) bool {
	try := func(cut bool) (ok bool, arrays int) {
		r, err := NewReader(onlyRead{bytes.NewReader(start)})
		if err != nil {
			return false, 0
		}
		r.forced = cut
		for {
			it, err := r.Next()
			if err != nil {
				return err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF), arrays
			}
			if it.Kind == KindSub && it.Tag == SubPrimitiveArray && it.Count > 0 {
				arrays++
			}
		}
	}
	whole, _ := try(false)
	if whole {
		return false
	}
	ok, arrays := try(true)
	return ok && arrays > 0
}

// looksBytes is what LooksCut reads: several segments with arrays.
const looksBytes = 2 << 20

// onlyRead hides the size of a stream, of which there is more.
type onlyRead struct{ io.Reader }

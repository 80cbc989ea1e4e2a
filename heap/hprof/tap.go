package hprof

import "io"

// tap hands on the bytes that a Reader has consumed to a writer, in runs of the
// window: what a rewriter keeps is not copied. Bytes may be changed in the window
// until the Reader moves on.
type tap struct {
	w    io.Writer
	from int  // start in the window of the run that is not written yet
	drop bool // drop the bytes consumed until the next item
}

// flush writes the run up to the position upto.
func (t *tap) flush(buf []byte, upto int) error {
	from := t.from
	t.from = upto
	if t.drop || from >= upto {
		return nil
	}
	_, err := t.w.Write(buf[from:upto])
	return err
}

// dropItem leaves the current item out, head and body.
func (r *Reader) dropItem() error {
	if err := r.tap.flush(r.buf, r.pos-len(r.item.Head)); err != nil {
		return err
	}
	r.tap.drop = true
	return nil
}

// dropBody leaves the current item's body out.
func (r *Reader) dropBody() error {
	if err := r.tap.flush(r.buf, r.pos); err != nil {
		return err
	}
	r.tap.drop = true
	return nil
}

// insert writes b behind the consumed bytes.
func (r *Reader) insert(b []byte) error {
	if err := r.tap.flush(r.buf, r.pos); err != nil {
		return err
	}
	_, err := r.tap.w.Write(b)
	return err
}

// overwrite replaces n bytes of the current body by repetitions of pattern, which
// begin in phase with the body. Its length is a power of two.
func (r *Reader) overwrite(n int64, pattern []byte) error {
	var done int64
	for done < n {
		b, err := r.Chunk()
		if err != nil {
			return err
		}
		b = b[:min(int64(len(b)), n-done)]
		for at := 0; at < len(b); {
			at += copy(b[at:], pattern[(done+int64(at))&int64(len(pattern)-1):])
		}
		done += int64(len(b))
	}
	return nil
}

// patterns of overwrite.
const patternBytes = 4096

func pattern(unit ...byte) []byte {
	b := make([]byte, patternBytes)
	for i := range b {
		b[i] = unit[i%len(unit)]
	}
	return b
}

package hprof

import "io"

// tap hands on the bytes that a Reader has consumed, in as few writes as there
// can be: runs of the window that are kept as they are.
type tap struct {
	w    io.Writer
	from int // start of the run in the Reader's window that is not written yet
}

// flush writes the run up to the position upto.
func (t *tap) flush(buf []byte, upto int) error {
	if t.from >= upto {
		t.from = upto
		return nil
	}
	_, err := t.w.Write(buf[t.from:upto])
	t.from = upto
	return err
}

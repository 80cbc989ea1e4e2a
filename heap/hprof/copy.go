package hprof

import "io"

// rewriter is a Reader whose bytes go to a writer, as they are unless an item is
// changed, dropped or added to.
type rewriter struct {
	*Reader
	out *behind
}

func newRewriter(w io.Writer, src io.Reader) (*rewriter, error) {
	r, err := NewReader(src)
	if err != nil {
		return nil, err
	}
	out := newBehind(w)
	r.tap = &tap{w: out}
	return &rewriter{r, out}, nil
}

// finish writes the rest and must be called. err is that of Next; io.EOF means success.
func (r *rewriter) finish(err error) error {
	if e := r.tap.flush(r.buf, r.pos); e != nil && err == io.EOF {
		err = e
	}
	if e := r.out.Close(); e != nil && (err == nil || err == io.EOF) {
		err = e
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// Copy parses a dump and writes it again, byte for byte. If the dump is damaged, w
// has what came before, and the error is an *Error.
func Copy(w io.Writer, src io.Reader) error {
	r, err := newRewriter(w, src)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = r.Next()
	}
	return r.finish(err)
}

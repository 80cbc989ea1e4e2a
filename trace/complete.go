package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Growing is the file of a recording whose recorder stopped early.
type Growing interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
}

// ErrNoRoom is the error of Complete if even a shortened recording leaves no room for its names.
var ErrNoRoom = errors.New("no room for the names of the recording")

// tailSlack is how many bytes more than the tail Complete frees: file systems store whole blocks.
const tailSlack = 8 << 10

// Complete ends recording rec of one process in f after an error of writing, such as a full disk. It appends s, e
// and the names that name returns. If they do not fit, it drops rec's last chunks, at most half of the file, and
// calls name again with the rest. It returns the recording that f then has, also with an error: f is then a
// recording without an end.
func Complete(f Growing, rec *Recording, s Stats, e End, name func(*Recording) *Symbols) (*Recording, error) {
	whole := rec.end
	for {
		tail, err := tailOf(rec, s, e, name)
		if err != nil {
			return rec, err
		}
		if err := f.Truncate(rec.end); err != nil {
			return rec, err
		}
		n := int64(len(tail))
		if _, err := f.WriteAt(tail, rec.end); err == nil {
			rec, err = Open(f, rec.end+n)
			return rec, err
		}
		if err := f.Truncate(rec.end); err != nil {
			return rec, err
		}
		to, err := lastChunk(f, min(rec.end, whole-n-tailSlack))
		if err != nil {
			return rec, err
		}
		if to < whole/2 || to >= rec.end {
			return rec, ErrNoRoom
		}
		shorter, err := Open(f, to)
		if err != nil {
			return rec, err
		}
		rec = shorter
	}
}

// tailOf returns the chunks that complete rec.
func tailOf(rec *Recording, s Stats, e End, name func(*Recording) *Symbols) ([]byte, error) {
	_, e.At = rec.Span()
	var tail []byte
	for _, x := range []struct {
		typ string
		v   any
	}{{chunkStats, s}, {chunkEnd, e}} {
		b, err := json.Marshal(x.v)
		if err != nil {
			return nil, err
		}
		tail = appendChunk(tail, x.typ, b)
	}
	w := bytes.NewBuffer(tail)
	err := AppendSymbols(w, name(rec))
	return w.Bytes(), err
}

// lastChunk returns the offset of the chunk of r that contains offset limit: where the last whole chunk before
// limit ends.
func lastChunk(r io.ReaderAt, limit int64) (int64, error) {
	off := int64(headerLen)
	for off < limit {
		_, n, _, err := chunkAt(r, off, off+chunkHead+MaxChunk)
		if err != nil {
			return 0, err
		}
		next := off + chunkHead + int64(n)
		if next > limit {
			break
		}
		off = next
	}
	return off, nil
}

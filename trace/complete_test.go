package trace

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
)

// small is a file on a disk with room for max bytes.
type small struct {
	b   []byte
	max int
}

func (f *small) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(f.b).ReadAt(p, off) }

func (f *small) WriteAt(p []byte, off int64) (int, error) {
	n := min(len(p), max(f.max-int(off), 0))
	f.b = append(f.b[:off], p[:n]...)
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (f *small) Truncate(n int64) error {
	f.b = f.b[:n]
	return nil
}

// TestComplete: a recording that stopped early gets its end and names; on a full disk it loses its last chunks
// for them, but never more than half.
func TestComplete(t *testing.T) {
	for _, c := range []struct {
		what       string
		room, name int // bytes beyond the recording's, and of a name
		err        error
		shorter    bool
	}{
		{"a disk with room", 1 << 20, 100, nil, false},
		{"a full disk", 0, 100, nil, true},
		{"a full disk, with a torn chunk", 7, 100, nil, true},
		{"names larger than half of the file", 0, 400 << 10, ErrNoRoom, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			var b bytes.Buffer
			w, err := NewWriter(&b)
			if err == nil {
				err = w.Process(Process{PID: 7, Comm: "x"})
			}
			if err == nil {
				_, err = b.Write(appendChunk(nil, chunkThread, []byte(`{"seq":0,"tid":7,"name":"x"}`)))
			}
			for i := 0; i < 100 && err == nil; i++ {
				_, err = b.Write(appendChunk(nil, "zzzz", make([]byte, 1000)))
			}
			if err != nil {
				t.Fatal(err)
			}
			whole := int64(b.Len())
			f := &small{max: b.Len() + c.room}
			f.b = append(b.Bytes(), "EVNT\xff\xff"[:min(c.room, 6)]...)
			rec, err := Open(f, int64(len(f.b)))
			if err != nil || rec.Tail() != whole {
				t.Fatalf("%v, tail %d, want %d", err, rec.Tail(), whole)
			}
			name := func(*Recording) *Symbols {
				s := &Symbols{}
				s.FuncID(Func{Name: strings.Repeat("f", c.name), Module: -1})
				return s
			}
			got, err := Complete(f, rec, Stats{}, End{Reason: "full"}, name)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			again, err := Open(f, int64(len(f.b)))
			if err != nil || len(again.Problems) > 0 || again.Tail() != int64(len(f.b)) || again.Tail() != got.Tail() {
				t.Fatalf("%v %v, tail %d and %d of %d", err, again.Problems, again.Tail(), got.Tail(), len(f.b))
			}
			if c.err != nil {
				if again.End != nil || again.Tail() != whole {
					t.Errorf("end %v, %d bytes of %d", again.End, again.Tail(), whole)
				}
				return
			}
			if again.End == nil || again.End.Reason != "full" || again.Symbols == nil || len(again.Symbols.Funcs) != 1 {
				t.Errorf("end %v, names %v", again.End, again.Symbols)
			}
			if shorter := again.Tail() < whole; shorter != c.shorter || again.Tail() < whole/2 {
				t.Errorf("%d bytes of %d", again.Tail(), whole)
			}
		})
	}
}

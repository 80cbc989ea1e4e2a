package spill

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Data comes back unchanged, from memory or from the file.
func TestBuffer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []int{1, 100, 1 << 20} {
		s := &Buffer{Memory: limit}
		for range 2 { // an emptied buffer is reusable
			var want, got bytes.Buffer
			for range 500 {
				b := make([]byte, r.IntN(60))
				for i := range b {
					b[i] = byte(r.Uint32())
				}
				want.Write(b)
				if n, err := s.Write(b); n != len(b) || err != nil {
					t.Fatal(n, err)
				}
			}
			if s.Len() != int64(want.Len()) || s.Sum() != crc32.Checksum(want.Bytes(), crc32.MakeTable(crc32.Castagnoli)) {
				t.Errorf("limit %d: %d bytes with sum %x", limit, s.Len(), s.Sum())
			}
			if filed := s.file != nil; filed != (limit < want.Len()) {
				t.Errorf("limit %d: in a file: %v", limit, filed)
			}
			if n, err := s.WriteTo(&got); n != int64(want.Len()) || err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) || s.Len() != 0 {
				t.Errorf("limit %d: %d bytes came out, %v", limit, n, err)
			}
		}
	}
}

// An unwritable temporary folder returns an error that names its purpose.
func TestNoDisk(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "gone"))
	s := &Buffer{Memory: 10}
	s.Write(make([]byte, 8))
	if _, err := s.Write(make([]byte, 8)); err == nil || !os.IsNotExist(unwrap(err)) {
		t.Errorf("error %v", err)
	}
}

func unwrap(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		if _, path := err.(*os.PathError); path {
			return err
		}
		err = u.Unwrap()
	}
}

package safefile

import (
	"os"
	"path/filepath"
	"testing"
)

// The cost of opening and reading a file through the helper, compared with doing so in this
// process; start is the cost of starting a helper.
func BenchmarkFile(b *testing.B) {
	p := filepath.Join(b.TempDir(), "f")
	if err := os.WriteFile(p, make([]byte, 64<<20), 0o600); err != nil {
		b.Fatal(err)
	}
	open := func(b *testing.B, remote bool) *File {
		b.Helper()
		q := Root("").request(request{Op: opOpen, Path: p, Remote: remote})
		a, fd, err := helpers.ask(Root(""), q)
		if err != nil {
			b.Fatal(err)
		}
		f := &File{q: q, info: a.Info, helper: a.helper, handle: a.Handle}
		if fd >= 0 {
			f.local = os.NewFile(uintptr(fd), p)
		}
		return f
	}
	b.Run("open/direct", func(b *testing.B) {
		for b.Loop() {
			q := Root("").request(request{Op: opOpen, Path: p})
			_, fd, err := direct(Root(""), q)
			if err != nil {
				b.Fatal(err)
			}
			os.NewFile(uintptr(fd), p).Close()
		}
	})
	b.Run("open/helper", func(b *testing.B) {
		for b.Loop() {
			open(b, false).Close()
		}
	})
	for name, remote := range map[string]bool{"read/direct": false, "read/helper": true} {
		b.Run(name, func(b *testing.B) {
			f := open(b, remote)
			defer f.Close()
			buf := make([]byte, blockSize)
			b.SetBytes(blockSize)
			off := int64(0)
			for b.Loop() {
				if _, err := f.ReadAt(buf, off); err != nil {
					b.Fatal(err)
				}
				off = (off + blockSize) % (64 << 20)
			}
		})
	}
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			h, err := newHelper()
			if err != nil {
				b.Fatal(err)
			}
			h.conn.Close()
			h.cmd.Wait()
		}
	})
}

package cache

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sliverprof/sliver/symbol"
)

const id = "8cbd3a00112233445566778899aabbccddeeff01"

func table(n int) Table {
	t := Table{}
	for i := range n {
		a := uint64(0x1000 + i*16)
		t[a] = []symbol.Frame{{Func: fmt.Sprintf("inner%d", i%100), File: "/src/a.h", Line: i + 1, Inlined: true, Start: a &^ 0xff},
			{Func: fmt.Sprintf("f%d", i/16), Linkage: "_Z1fv", File: "/src/a.cc", Line: i, StartFile: "/src/a.cc", StartLine: 3, Start: a &^ 0xff}}
	}
	t[0x10] = []symbol.Frame{}
	return t
}

func open(t testing.TB, max int64) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "a", "b"), max)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRoundTrip(t *testing.T) {
	d := open(t, 1<<30)
	want := table(1000)
	if err := d.Store(id, false, want); err != nil {
		t.Fatal(err)
	}
	if got := d.Load(id, false); !reflect.DeepEqual(got, want) {
		t.Errorf("%d addresses, want %d", len(got), len(want))
	}
	if d.Load(id, true) != nil || d.Load("aabbccdd", false) != nil {
		t.Error("another file's names")
	}
	for _, bad := range []string{"", "..", "../../etc/passwd", "zz", "aa", strings.Repeat("a", 300)} {
		if err := d.Store(bad, false, want); err != nil || d.Load(bad, false) != nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
	// Names without lines are not stored.
	if err := d.Store("aabbccdd", false, Table{1: {{Func: "f"}}}); err != nil || d.Load("aabbccdd", false) != nil {
		t.Errorf("%v", err)
	}
}

// A damaged file is treated as missing, and removed.
func TestDamaged(t *testing.T) {
	d := open(t, 1<<30)
	if err := d.Store(id, false, table(50)); err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(d.path, id+".short")
	whole, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i <= len(whole); i += 1 + i/20 {
		b := bytes.Clone(whole)
		if i < len(b) {
			b[i] ^= 0x55
		} else {
			b = b[:len(b)-1]
		}
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if d.Load(id, false) != nil {
			t.Fatalf("byte %d is wrong, and the table is taken", i)
		}
		if _, err := os.Stat(p); err == nil {
			t.Fatalf("byte %d is wrong, and the file is kept", i)
		}
	}
}

// The folder stays within its bound; the most recently used files remain.
func TestBound(t *testing.T) {
	d := open(t, 10_000)
	put := func(name string, n int) error {
		f, err := d.Put(name, func(w io.Writer) error { _, err := w.Write(make([]byte, n)); return err })
		if err == nil {
			f.Close()
		}
		return err
	}
	for i := range 8 {
		name := fmt.Sprint("f", i)
		if err := put(name, 1000); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(filepath.Join(d.path, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	f, err := d.File("f0") // used
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := put("big", 6000); err != nil {
		t.Fatal(err)
	}
	es, _ := os.ReadDir(d.path)
	var names []string
	for _, e := range es {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "big f0 f5 f6 f7" {
		t.Errorf("left: %s", got)
	}
	if err := put("huge", 20_000); !errors.Is(err, ErrFull) {
		t.Errorf("a file larger than all: %v", err)
	}
	if es, _ := os.ReadDir(d.path); len(es) != 5 {
		t.Errorf("%d files", len(es))
	}
}

// Concurrent readers and writers of one file see it complete or not at all.
func TestShared(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			d, err := Open(dir, 1<<20)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 50 {
				if k%2 == 0 {
					if err := d.Store(id, false, table(100+i)); err != nil {
						t.Error(err)
					}
				} else if got := d.Load(id, false); got != nil && len(got) < 101 {
					t.Errorf("%d addresses", len(got))
				}
			}
		}()
	}
	wg.Wait()
	d, _ := Open(dir, 1<<20)
	if d.Load(id, false) == nil {
		t.Error("nothing is left")
	}
}

func FuzzParse(f *testing.F) {
	b := encode(table(3))
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := parse(b); err == nil {
			if _, err := parse(encode(x)); err != nil {
				t.Fatal(err)
			}
		}
		// And with a matching checksum, as an attacker would write it.
		e := encode(nil)
		copy(e, magic)
		r := append(e[:len(magic)+4:len(magic)+4], b...)
		fix(r)
		_, _ = parse(r)
	})
}

func fix(b []byte) {
	sum := crc32.Checksum(b[len(magic)+4:], castagnoli)
	for i := range 4 {
		b[len(magic)+i] = byte(sum >> (8 * i))
	}
}

func BenchmarkLoad(b *testing.B) {
	d := open(b, 1<<30)
	if err := d.Store(id, false, table(20_000)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if len(d.Load(id, false)) < 20_000 {
			b.Fatal("lost")
		}
	}
}

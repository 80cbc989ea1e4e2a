package hprof

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// corpus returns the real dumps of the folder SLIVER_HPROF_CORPUS, by name. They
// are not in the repository: test.sh names the folder where it is there.
func corpus(t testing.TB) map[string]string {
	t.Helper()
	folder := os.Getenv("SLIVER_HPROF_CORPUS")
	files := map[string]string{}
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		if strings.Contains(e.Name(), "hprof") {
			files[e.Name()] = filepath.Join(folder, e.Name())
		}
	}
	if folder != "" && (err != nil || len(files) == 0) {
		t.Fatalf("no dumps in SLIVER_HPROF_CORPUS: %v", err)
	}
	if folder == "" {
		for name := range strings.SplitSeq(os.Getenv("SLIVER_REQUIRE"), ",") {
			if slices.Contains([]string{"all", "corpus"}, strings.TrimSpace(name)) {
				t.Fatal("SLIVER_REQUIRE needs the dumps, and SLIVER_HPROF_CORPUS does not name their folder")
			}
		}
		t.Skip("SLIVER_HPROF_CORPUS is not set: no real dumps")
	}
	return files
}

// plain returns the decompressed content of a dump.
func plain(t testing.TB, path string) []byte {
	t.Helper()
	f, err := Open(path, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Damage != nil {
		t.Fatal(f.Damage)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The heads and bodies of all items, in order, are the dump.
func TestCorpusItemsAreContiguous(t *testing.T) {
	for name, path := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			want := plain(t, path)
			r, err := NewReader(bytes.NewReader(want))
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			var objects, classes int
			var class Class
			for {
				it, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if it.Offset != int64(got.Len()) {
					t.Fatalf("item at %d, %d bytes came before", it.Offset, got.Len())
				}
				got.Write(it.Head)
				if it.Kind == KindSub {
					switch it.Tag {
					case SubClass:
						classes++
						if err := r.Class(&class); err != nil {
							t.Fatal(err)
						}
					case SubInstance, SubObjectArray, SubPrimitiveArray, SubPrimitiveBare:
						objects++
					}
				}
				body := it.Body
				for {
					b, err := r.Chunk()
					if err == io.EOF {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					body -= int64(len(b))
					got.Write(b)
				}
				if body != 0 {
					t.Fatalf("body of the item at %d lacks %d bytes", it.Offset, body)
				}
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Fatal("the items are not the dump")
			}
			t.Logf("%d objects, %d classes, %s", objects, classes, r.Header().Version)
		})
	}
}

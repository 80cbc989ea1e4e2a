package symbol

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

func pack(t testing.TB, data []byte, args ...string) []byte {
	t.Helper()
	testprog.Need(t, "xz")
	cmd := exec.Command("xz", append([]string{"-c"}, args...)...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUnxz(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads a table")
	var text bytes.Buffer
	for i := range 40000 {
		text.WriteString(Unknown("/x/module", uint64(i*i)))
	}
	for _, args := range []string{"-6", "-0 --check=none", "-9 --check=crc32", "-3 --check=sha256", "--block-size=100000"} {
		b := pack(t, text.Bytes(), strings.Fields(args)...)
		got, err := unxz(b, 1<<20)
		if err != nil || !bytes.Equal(got, text.Bytes()) {
			t.Errorf("%s: %d bytes of %d, %v", args, len(got), text.Len(), err)
		}
		if _, err := unxz(b, 1000); err == nil {
			t.Errorf("%s: more than the limit", args)
		}
		b = pack(t, text.Bytes()[:text.Len()/8], strings.Fields(args)...) // read once per cut
		for n := 0; n < len(b)-40; n += 1 + len(b)/50 {                   // bytes after the data do not matter
			if got, err := unxz(b[:n], 1<<20); err == nil {
				t.Errorf("%s: %d of %d bytes are enough for %d", args, n, len(b), len(got))
			}
		}
	}
	b := pack(t, text.Bytes(), "-6")
	b[len(b)/2] ^= 1
	if _, err := unxz(b, 1<<20); err == nil {
		t.Error("a damaged file is whole")
	}
	if _, err := unxz(pack(t, text.Bytes(), "--lzma2=dict=128MiB"), 1<<20); err == nil || !strings.Contains(err.Error(), "dictionary") {
		t.Errorf("dictionary of 128 MiB: %v", err)
	}
	if _, err := unxz(pack(t, text.Bytes(), "--x86", "--lzma2"), 1<<20); err == nil || !strings.Contains(err.Error(), "filter") {
		t.Errorf("another filter: %v", err)
	}
}

func FuzzUnxz(f *testing.F) {
	if _, err := exec.LookPath("xz"); err == nil {
		f.Add(pack(f, []byte("hello, hello, hello"), "-0"))
		f.Add(pack(f, bytes.Repeat([]byte("abc"), 1000), "-0", "--block-size=500", "--check=crc32"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := unxz(b, 1<<16); err == nil && len(out) > 1<<16 {
			t.Errorf("%d bytes", len(out))
		}
	})
}

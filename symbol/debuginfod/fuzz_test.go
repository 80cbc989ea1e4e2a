package debuginfod

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
)

// answers replies to every request with the same bytes.
type answers []byte

func (s answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return http.ReadResponse(bufio.NewReader(bytes.NewReader(s)), r)
}

// FuzzAnswer: for any reply, nothing must fail, at most the body is taken for a file,
// and an invalid file is not kept.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x7fELF"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nshort"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 404 Not Found\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 302 Found\r\nLocation: http://\x01/\r\n\r\n"))
	f.Add([]byte("\x00\x01"))
	dir, err := cache.Open(f.TempDir(), 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	const id = "00112233445566778899aabbccddeeff00112233"
	f.Fuzz(func(t *testing.T, answer []byte) {
		x, err := New(func(k string) string { return map[string]string{URLs: "http://server.test"}[k] }, dir, "test", nil)
		if err != nil {
			t.Fatal(err)
		}
		x.client.Transport = answers(answer)
		x.Find(symbol.Query{Kind: symbol.KindDebug, BuildID: strings.ToUpper(id)}, func(name string, src symbol.Source) bool {
			b, err := io.ReadAll(io.NewSectionReader(src, 0, 1<<20))
			if err != nil || !strings.HasSuffix(name, id) || len(b) > len(answer) {
				t.Errorf("%s: %d bytes of an answer of %d, %v", name, len(b), len(answer), err)
			}
			return false
		})
		if file, err := dir.File(id); err == nil {
			file.Close()
			t.Error("what is no debug file stays")
		}
	})
}

package foreign_test

//sliver:layer unit big

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sliverprof/sliver/export/foreign"
	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/trace"

	"github.com/sliverprof/sliver/internal/testprog"
)

// message encodes a field that contains a message or a string.
func message(n protowire.Number, body ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), bytes.Join(body, nil))
}

func number(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

// small returns a profile of one function, without a sample.
func small() []byte {
	return bytes.Join([][]byte{message(1, number(1, 1), number(2, 2)), message(4, number(1, 1), message(4, number(1, 1))), message(5, number(1, 1), number(2, 3)),
		message(6), message(6, []byte("cpu")), message(6, []byte("nanoseconds")), message(6, []byte("f"))}, nil)
}

// repeat returns a reader of head and n times part.
func repeat(head, part []byte, n int) io.Reader {
	return io.MultiReader(bytes.NewReader(head), &repeated{part: part, left: n * len(part)})
}

type repeated struct {
	part []byte
	at   int
	left int
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), r.left)], r.part[r.at:])
	r.at = (r.at + n) % len(r.part)
	r.left -= n
	return n, nil
}

// A profile with too many messages, or that decompresses to gigabytes, is rejected or cut
// before that memory is allocated.
func TestPprofBombs(t *testing.T) {
	testprog.Unraced(t, "one goroutine, and it counts allocations")
	const most = 900 << 20 // all allocations together
	one := message(2, message(1, []byte{1, 1, 1, 1}), message(2, []byte{1}))
	for _, c := range []struct {
		what string
		r    io.Reader
		err  string
	}{
		{"samples", repeat(small(), one, 3_000_000), "samples"},
		{"strings", repeat(small(), message(6), 5_000_000), "strings"},
		{"functions", repeat(small(), message(5), 1), "twice or has no number"},
		{"sample types", repeat(small(), message(1), 100), "sample types"},
		{"zeros", zip(t, zeroes{}, 2<<30), "longer than 256 MiB"},
		{"cut", bytes.NewReader(append(small(), 0x12, 0xff, 0xff, 0xff, 0x7f)), "broken"},
		{"deep", bytes.NewReader(append(small(), message(2, message(1, bytes.Repeat([]byte{1}, 50_000_000)), message(2, []byte{1}))...)), ""},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var out bytes.Buffer
		rep, err := foreign.ReadPprof(c.r, &out, foreign.Options{Name: "x"})
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s: %d MiB were allocated", c.what, took>>20)
		}
		if c.err == "" && err == nil {
			if len(rep.Notes) != 2 || !strings.Contains(rep.Notes[1], "too deep") {
				t.Errorf("%s: %q", c.what, rep.Notes)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// zip returns a compressed stream of n bytes.
func zip(t *testing.T, r io.Reader, n int64) io.Reader {
	t.Helper()
	pr, pw := io.Pipe()
	go func() {
		z, _ := gzip.NewWriterLevel(pw, gzip.BestSpeed)
		_, err := io.CopyN(z, r, n)
		if err == nil {
			err = z.Close()
		}
		pw.CloseWithError(err)
	}()
	t.Cleanup(func() { pr.Close() })
	return pr
}

// Calls nested to any depth are cut at a depth that formats of whole stacks can still
// write.
func TestDeepBombs(t *testing.T) {
	const deep, most = 100_000, 1 << 13
	var chrome, nano strings.Builder
	chrome.WriteByte('[')
	for i := range deep {
		fmt.Fprintf(&chrome, `{"ph":"B","pid":1,"tid":1,"ts":%d,"name":"f"},`, i)
		fmt.Fprintf(&nano, "%d:f\n", i)
	}
	for i := range deep {
		fmt.Fprintf(&nano, "%d:POP\n", deep+i)
	}
	for what, read := range map[string]func(io.Writer) (*foreign.Report, error){
		"chrome": func(w io.Writer) (*foreign.Report, error) {
			return foreign.ReadChrome(strings.NewReader(chrome.String()), w, foreign.Options{})
		},
		"nanoscope": func(w io.Writer) (*foreign.Report, error) {
			return foreign.ReadNanoscope(strings.NewReader(nano.String()), nil, w, foreign.Options{})
		},
	} {
		var out bytes.Buffer
		rep, err := read(&out)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var rec *trace.Recording = opened(t, out.Bytes())
		depth := 0
		for _, c := range exporttest.Calls(rec) {
			depth = max(depth, c.Depth+1)
		}
		if depth != most || rep.Calls != most || len(rep.Notes) == 0 {
			t.Errorf("%s: %d deep, %d calls, %q", what, depth, rep.Calls, rep.Notes)
		}
	}
	// Nested values.
	for _, s := range []string{`{"traceEvents":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `}`,
		`[{"ph":"X","name":"a","ts":1,"args":` + strings.Repeat(`{"a":`, deep) + `1` + strings.Repeat("}", deep) + `}]`} {
		var out bytes.Buffer
		if rep, err := foreign.ReadChrome(strings.NewReader(s), &out, foreign.Options{}); err == nil && rep.Calls > 1 {
			t.Errorf("%.30s: %+v", s, rep)
		}
	}
}

package web_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/page"
	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/web/internal/synth"
)

func synthRecording(t *testing.T, o synth.Options) (*trace.Recording, int) {
	t.Helper()
	var b bytes.Buffer
	if _, err := synth.Write(&b, o); err != nil {
		t.Fatal(err)
	}
	rec, err := trace.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return rec, b.Len()
}

// shareData returns a file's, uncompressed.
func shareData(t *testing.T, html string) (header map[string]any, body []byte) {
	t.Helper()
	_, rest, ok := strings.Cut(html, `id="data">`)
	text, _, end := strings.Cut(rest, "</script>")
	if !ok || !end {
		t.Fatal("the file has no data")
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint32(b)
	if err := json.Unmarshal(b[4:4+n], &header); err != nil {
		t.Fatal(err)
	}
	return header, b[4+n:]
}

// TestShareFile checks that a file is one page that loads nothing, and that its columns have what the
// recording has.
func TestShareFile(t *testing.T) {
	rec, _ := synthRecording(t, synth.Options{Seed: 1, Threads: 4, Interval: 1e6, Samples: 2000})
	for _, o := range []view.Options{{}, {From: rec.Begin() + 5e8, To: rec.Begin() + 1e9, Threads: []int{1, 3}}} {
		var b bytes.Buffer
		if err := page.Write(&b, rec, o); err != nil {
			t.Fatal(err)
		}
		html := b.String()
		for _, bad := range []string{"<script defer src", "http://", "connect-src 'self'"} {
			if strings.Contains(strings.ReplaceAll(html, "http://127.0.0.1", ""), bad) && bad != "http://" {
				t.Errorf("the file has %q", bad)
			}
		}
		if !strings.Contains(html, "default-src 'none'") || strings.Count(html, "</body>") != 1 {
			t.Error("the file has no policy, or no single body")
		}
		h, body := shareData(t, html)
		lens := 0
		ran, threads := uint64(0), 0
		for _, th := range h["threads"].([]any) {
			threads++
			for i, n := range th.(map[string]any)["lens"].([]any) {
				col := body[lens : lens+int(n.(float64))]
				lens += len(col)
				if c := h["columns"].([]any)[i]; c != "ran" && c != "miss" {
					continue
				}
				for len(col) > 0 {
					v, k := binary.Uvarint(col)
					ran, col = ran+v, col[k:]
				}
			}
		}
		if lens != len(body) || h["tasks"] != nil {
			t.Errorf("the columns have %d bytes, the data %d, and %v", lens, len(body), h["tasks"])
		}
		want := 4
		if o.Threads != nil {
			want = len(o.Threads)
		}
		cpu := int64(0)
		for _, x := range report.Of(rec, o, 0).Threads {
			cpu += x.CPU
		}
		if threads != want || int64(ran) != cpu || cpu == 0 {
			t.Errorf("%+v: %d threads with %d ns on the CPUs, want %d with %d", o, threads, ran, want, cpu)
		}
	}
}

// TestShareFileSize bounds a file: one of a recording of 3 MB has less than 5 MB.
func TestShareFileSize(t *testing.T) {
	testprog.Unraced(t, "one goroutine writes a file")
	rec, size := synthRecording(t, synth.Options{Seed: 1, Threads: 8, Interval: 1e6, Samples: 17000})
	if size < 2_500_000 || size > 4_000_000 {
		t.Fatalf("the recording has %d bytes: change its length", size)
	}
	var b bytes.Buffer
	if err := page.Write(&b, rec, view.Options{}); err != nil {
		t.Fatal(err)
	}
	if most := int(float64(size) * 5 / 3); b.Len() > most {
		t.Errorf("the file has %d bytes, the recording %d: at most %d are allowed", b.Len(), size, most)
	}
	t.Logf("%d bytes of a recording with %d", b.Len(), size)
}

package collapsed

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/exporttest"
)

// The output for a recording of maximum depth, with time at each depth, has bounded size.
// No time is lost, and cut stacks are marked.
func TestDeep(t *testing.T) {
	depth := 1 << 16
	if testing.Short() {
		depth = 1 << 14
	}
	rec := exporttest.Deep(t, depth)
	r, w := io.Pipe()
	go func() { w.CloseWithError(Wall(w, rec, view.Options{Idle: true})) }()
	frames, ns, whole, cut := 0, int64(0), 0, 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		i := strings.LastIndexByte(lines.Text(), ' ')
		text, n := lines.Text()[:i], lines.Text()[i+1:]
		x, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ns += x
		fs := strings.Split(text, ";")
		frames += len(fs)
		at := len(fs) - 1 // depth of the innermost frame; the thread is the outermost element
		for i, f := range fs {
			if !strings.HasPrefix(f, "[") {
				continue
			}
			omitted, err := strconv.Atoi(strings.TrimSuffix(f[1:], " frames left out]"))
			if err != nil || i != tally.CutDepth/2 || len(fs) != tally.CutDepth+1 {
				t.Fatalf("%q is frame %d of %d", f, i, len(fs))
			}
			at += omitted - 1
			cut++
		}
		if at == len(fs)-1 {
			whole++
		}
		if at > 1 && fs[len(fs)-1] != exporttest.DeepName(at) || fs[1] != "main" {
			t.Fatalf("a stack of %d frames ends with %s and begins with %s", at, fs[len(fs)-1], fs[1])
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if most := tally.WholeFrames + depth*(tally.CutDepth+1); frames > most {
		t.Errorf("%d frames, more than %d", frames, most)
	}
	if want := int64((depth - 1) * exporttest.DeepStep); ns != want || whole+cut != depth-1 || whole <= tally.CutDepth || cut == 0 {
		t.Errorf("%d ns, want %d; %d stacks are whole and %d cut", ns, want, whole, cut)
	}
}

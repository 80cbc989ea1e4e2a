package canary

import (
	"testing"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/iowatch"
)

// A file that was opened with O_TMPFILE is not its folder.
func TestUnnamed(t *testing.T) {
	const tmpfile, write = 0o20200000, 0o1
	c := &Canary{cwd: "/srv"}
	for _, x := range []struct {
		path string
		dir  int32
		want string
	}{
		{"/tmp", -100, "/tmp/(unnamed)"},
		{"/tmp/", -100, "/tmp/(unnamed)"},
		{".", -100, "/srv/(unnamed)"},
	} {
		r := &kernel.IORecord{Event: iowatch.Event{Op: iowatch.OpOpen, Want: tmpfile | write, Path: x.path}, Dir: x.dir}
		if got := c.path(r); got != x.want {
			t.Errorf("%q: %q, want %q", x.path, got, x.want)
		}
	}
}

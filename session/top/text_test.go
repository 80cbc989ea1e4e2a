package top

import (
	"strings"
	"testing"
)

// Columns line up with their headings, even if thread names are long.
func TestColumns(t *testing.T) {
	table := Table{Threads: []Row{{TID: 1, Name: "main", Waits: "read"}, {TID: 2, Name: "C2 CompilerThread0", Waits: "read"},
		{TID: 3, Name: "a thread whose name goes on and on", Waits: "read"}}}
	var b strings.Builder
	if err := table.WriteText(&b, &Head{}, &Layout{}); err != nil {
		t.Fatal(err)
	}
	at, n := -1, 0
	for line := range strings.Lines(b.String()) {
		if i := strings.Index(line, "WAITS"); i >= 0 {
			at = i
		} else if before, ok := strings.CutSuffix(line, "read\n"); ok {
			if i := len([]rune(before)); i != at {
				t.Errorf("column %d, want %d: %q", i, at, line)
			}
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d threads in\n%s", n, b.String())
	}
}

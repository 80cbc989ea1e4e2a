package watch

import (
	"log/slog"
	"path/filepath"
	"testing"
)

// Two recorders of one process have a ring file each, and what a dead one left is
// replaced.
func TestRingFiles(t *testing.T) {
	dir := t.TempDir()
	w := &Watcher{o: Options{RingDir: dir, KeepBytes: 1 << 20}, log: slog.New(slog.DiscardHandler)}
	x := &watched{pid: 12, name: "server"}
	for range 2 {
		first, err := w.memory(x)
		if err != nil {
			t.Fatal(err)
		}
		second, err := w.memory(x)
		if err != nil {
			t.Fatal(err)
		}
		if first.Path() != RingFile(dir, "server", 12) || second.Path() == "" || second.Path() == first.Path() {
			t.Errorf("files %q and %q", first.Path(), second.Path())
		}
		// A killed recorder's files stay, without a lock.
		first.Close(false)
		second.Close(false)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

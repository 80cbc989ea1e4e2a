package session

import (
	"iter"
	"os"
	"strings"
	"testing"
)

// logLines yields the lines of a target program's log.
func logLines(t *testing.T, path string) iter.Seq[string] {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Lines(string(b))
}

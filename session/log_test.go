package session

import (
	"iter"
	"os"
	"strings"
	"testing"
)

// logLines are the lines of a log that a target program wrote.
func logLines(t *testing.T, path string) iter.Seq[string] {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Lines(string(b))
}

package v8

import (
	"strings"
	"testing"
)

// TestUnknownVersion: an untested version has one line that says so, whether none or many of its functions
// could be read. A tested one has a line only if none could be read.
func TestUnknownVersion(t *testing.T) {
	for _, c := range []struct {
		tried        bool
		read, failed int
		want         string
	}{
		{false, 0, 1, "its data is not where it is"},
		{false, proofs, 0, "functions of JavaScript may be missing"},
		{false, 1000, 10, "functions of JavaScript may be missing"},
		{true, 1000, 10, ""},
		{true, 0, 1, ""},
		{true, 0, doubt, "its data is not where it is"},
	} {
		r := New(&Image{Version: "14.1.146", layout: layout{tried: c.tried}}, func(*Function) any { return nil })
		r.read, r.failed = c.read, c.failed
		got := ""
		if err := r.Problem(); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

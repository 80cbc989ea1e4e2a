package web_test

import (
	"encoding/json"
	"testing"

	"github.com/sliverprof/sliver/internal/exporttest"
	"github.com/sliverprof/sliver/stack"
)

// TestPageKinds compares the page's table of the kinds of code with that of package stack. With -update it writes
// the file; then build the page.
func TestPageKinds(t *testing.T) {
	type row struct {
		Kind     string `json:"kind"`
		Title    string `json:"title"`
		Managed  bool   `json:"managed,omitempty"`
		Launched bool   `json:"launched,omitempty"`
		Names    string `json:"names,omitempty"`
		Files    string `json:"files,omitempty"`
		Unfiled  bool   `json:"unfiled,omitempty"`
	}
	var all []row
	for _, k := range stack.Kinds() {
		l := k.Library()
		all = append(all, row{k.String(), k.Title(), k.Managed(), k.Launched(), l.Names, l.Files, l.Unfiled})
	}
	want, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	exporttest.Golden(t, "../page/src/kinds.json", string(want)+"\n")
}

package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/export"
)

// Many files of one format have one line, and few have one each.
func TestEachWrote(t *testing.T) {
	files := []export.File{{Path: "-", Format: "pprof", Bytes: 10}, {Path: "a.svg", Format: "flame", Bytes: 20, Left: "4 idle threads"}}
	for i := range maxWrote + 1 {
		files = append(files, export.File{Path: fmt.Sprintf("x.t-%d.nanoscope.txt", i), Format: "nanoscope", Bytes: 1000})
	}
	for _, n := range []int{len(files), len(files) - 1} {
		var lines []string
		eachWrote(files[:n], func(line, left string) { lines = append(lines, line+"|"+left) })
		want := []string{"standard output (pprof, 10 bytes)|", "a.svg (flame, 20 bytes)|4 idle threads", "9 files, the first is x.t-0.nanoscope.txt (nanoscope, 9000 bytes together)|"}
		if n < len(files) {
			if want = want[:2]; len(lines) != 2+maxWrote || lines[2] != "x.t-0.nanoscope.txt (nanoscope, 1000 bytes)|" {
				t.Errorf("%q", lines)
			}
			lines = lines[:2]
		}
		if !slices.Equal(lines, want) {
			t.Errorf("%q, want %q", lines, want)
		}
	}
}

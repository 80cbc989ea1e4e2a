package stacks

import (
	"bufio"
	"bytes"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Lines returns a stack as WriteText shows it, without the indent. It uses only the settings of s.
func (s *Snapshot) Lines(frames []Frame, cut stack.Reason) (lines []string) {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	s.frames(w, frames, cut)
	_ = w.Flush() // into memory
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

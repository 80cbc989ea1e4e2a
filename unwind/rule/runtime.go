package rule

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
)

// ErrNoRule says that no table entry covers the address. A table's Rule returns it, possibly
// wrapped. Every other error means damaged tables.
var ErrNoRule = errors.New("no unwind rule covers the address")

// Span is a range of a target's memory to copy.
type Span = stack.Span

// Words reads aligned little-endian 8-byte words of a target. The second result is false if the
// word could not be read; the first is then meaningless.
type Words interface {
	Word(addr uint64) (uint64, bool)
}

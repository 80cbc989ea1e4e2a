package rule

import (
	"errors"

	"github.com/sliverprof/sliver/stack"
)

// ErrNoRule says that no table entry covers the address. A table's Rule
// returns it (possibly wrapped); every other error means damaged tables.
var ErrNoRule = errors.New("no unwind rule covers the address")

// Span is a stretch of a target's memory to copy.
type Span = stack.Span

// Words reads aligned 8-byte words of a target, little-endian. The second
// result is false where the word could not be had; the first is then without
// meaning.
type Words interface {
	Word(addr uint64) (uint64, bool)
}

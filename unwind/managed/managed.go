// Package managed gives the functions of managed runtimes addresses. Functions without a permanent
// place in memory (bytecode that a collector moves, code that is discarded and compiled again) get
// a fixed address for the length of a recording.
//
// A runtime's stepper passes a function's name, file and lines to a Table. The Table returns the
// address and size of a range that no program uses. A frame's PC is that address plus the offset in
// the code, so other packages handle the frame like any other. The Table, or its recorded contents,
// resolves the name.
//
// The package does not read processes. A Table may be used by several goroutines at once.
package managed

import "github.com/sliverprof/sliver/stack"

// Range is the address range of one runtime's functions. Programs do not use these addresses: on
// amd64 they are above user space, and on arm64 between the areas for programs and libraries.
type Range struct {
	Start, End uint64
	Kind       stack.Kind // of the frames
	Module     string     // name of the range among the files of a recording
	What       string     // name of its functions in a recording (trace.Captured)
}

// The ranges in use.
var (
	Python = Range{0x8000_0000_0000, 0x8100_0000_0000, stack.KindPython, "[python]", "python"}
	Java   = Range{0x8100_0000_0000, 0x8200_0000_0000, stack.KindJava, "[java]", "java"}
	JS     = Range{0x8200_0000_0000, 0x8300_0000_0000, stack.KindJS, "[js]", "js"}
	Ruby   = Range{0x8300_0000_0000, 0x8400_0000_0000, stack.KindRuby, "[ruby]", "ruby"}
)

// Ranges returns all ranges, by address.
func Ranges() []Range { return []Range{Python, Java, JS, Ruby} }

// At returns the range that contains addr.
func At(addr uint64) (Range, bool) {
	if addr < Python.Start || addr >= Ruby.End {
		return Range{}, false
	}
	for _, r := range [...]Range{Python, Java, JS, Ruby} {
		if addr < r.End {
			return r, true
		}
	}
	return Range{}, false
}

// Named returns the range with this name among the files of a recording.
func Named(module string) (Range, bool) {
	for _, r := range [...]Range{Python, Java, JS, Ruby} {
		if r.Module == module {
			return r, true
		}
	}
	return Range{}, false
}

// Mapping returns the range as a mapping of an address space.
func (r Range) Mapping() stack.Mapping {
	return stack.Mapping{Start: r.Start, End: r.End, Exec: true, Path: r.Module}
}

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

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// Range is the address range of one runtime's functions. Programs do not use these addresses: on
// amd64 they are above user space, and on arm64 between the areas for programs and libraries.
type Range struct {
	Start, End uint64
	Kind       stack.Kind // of the frames
	Module     string     // name of the range among the files of a recording
	What       string     // name of its functions in a recording (trace.Captured)
}

// Of returns the range of a kind's functions; it is empty if they are machine code.
func Of(k stack.Kind) Range {
	start, end, ok := k.Range()
	if !ok {
		return Range{}
	}
	return Range{start, end, k, k.Module(), k.String()}
}

// ranges are all ranges, by address.
var ranges = func() (all []Range) {
	for _, k := range stack.Kinds() {
		if r := Of(k); r != (Range{}) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	return all
}()

// Ranges returns all ranges, by address.
func Ranges() []Range { return slices.Clone(ranges) }

// At returns the range that contains addr.
func At(addr uint64) (Range, bool) {
	for i := range ranges {
		if r := &ranges[i]; addr >= r.Start && addr < r.End {
			return *r, true
		}
	}
	return Range{}, false
}

// Named returns the range with this name among the files of a recording.
func Named(module string) (Range, bool) {
	for i := range ranges {
		if ranges[i].Module == module {
			return ranges[i], true
		}
	}
	return Range{}, false
}

// Mapping returns the range as a mapping of an address space.
func (r Range) Mapping() stack.Mapping {
	return stack.Mapping{Start: r.Start, End: r.End, Exec: true, Path: r.Module}
}

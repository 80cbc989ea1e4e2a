// Package managed gives the functions of managed runtimes addresses: what has no
// place that stays (bytecode that a collector moves, code that is thrown away and
// made again) has one here, for the length of a recording.
//
// A runtime's stepper hands a Table what a function is called, where it stands and
// what its lines are, and gets the address and size of a range that no program uses;
// a frame's PC is that plus the offset in its code. So a frame is an address like any
// other to whatever handles frames, and the Table, or what was kept of it, names it.
//
// The package reads nothing of a process. A Table may be used by several goroutines
// at once.
package managed

import "github.com/sliverprof/sliver/stack"

// Range is the addresses of one runtime's functions. They are none of a program:
// above what it may use on amd64, and on arm64 between where programs and libraries
// are put.
type Range struct {
	Start, End uint64
	Kind       stack.Kind // of the frames
	Module     string     // what the range is called among the files of a recording
	What       string     // what its functions are called among what a recording keeps (trace.Captured)
}

// The ranges that there are.
var (
	Python = Range{0x8000_0000_0000, 0x8100_0000_0000, stack.KindPython, "[python]", "python"}
	Java   = Range{0x8100_0000_0000, 0x8200_0000_0000, stack.KindJava, "[java]", "java"}
	JS     = Range{0x8200_0000_0000, 0x8300_0000_0000, stack.KindJS, "[js]", "js"}
)

// Ranges are all of them, by address.
func Ranges() []Range { return []Range{Python, Java, JS} }

// At is the range that addr lies in.
func At(addr uint64) (Range, bool) {
	if addr < Python.Start || addr >= JS.End {
		return Range{}, false
	}
	for _, r := range [...]Range{Python, Java, JS} {
		if addr < r.End {
			return r, true
		}
	}
	return Range{}, false
}

// Named is the range that is called so among the files of a recording.
func Named(module string) (Range, bool) {
	for _, r := range [...]Range{Python, Java, JS} {
		if r.Module == module {
			return r, true
		}
	}
	return Range{}, false
}

// Mapping is the range as a line of an address space.
func (r Range) Mapping() stack.Mapping {
	return stack.Mapping{Start: r.Start, End: r.End, Exec: true, Path: r.Module}
}

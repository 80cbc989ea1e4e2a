package naming

import (
	"io"
	"sync"

	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/rule"
)

// functions finds the start of functions without a symbol in the file's call frame
// information, which a stripped file still has. It may be used by several goroutines.
type functions struct {
	path string // of the file, for the names
	r    io.ReaderAt
	arch rule.Arch

	once sync.Once
	t    *cfi.Table // nil: the file has none, or it is unreadable
}

// frame returns the function at vaddr, named by its location in the file: one name for
// all of its addresses.
func (f *functions) frame(vaddr uint64) (fr symbol.Frame, ok bool) {
	f.once.Do(func() {
		if t, err := cfi.Load(f.r, f.arch); err == nil {
			f.t = t
		}
	})
	if f.t == nil {
		return fr, false
	}
	lo, _, ok := f.t.Func(vaddr)
	if !ok {
		return fr, false
	}
	return symbol.Frame{Func: trace.PlaceName(f.path, lo), Start: lo}, true
}

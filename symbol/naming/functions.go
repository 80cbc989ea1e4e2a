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
// information, which a stripped file still has, and where it lacks that, in the code. It may be used by several goroutines.
type functions struct {
	path string // of the file, for the names
	r    io.ReaderAt
	arch rule.Arch

	once sync.Once
	t    *cfi.Table // nil: the file has none, or it is unreadable
	mu   sync.Mutex
	b    *begins // nil: not needed yet
}

// frame returns the function at vaddr, named by its location in the file: one name for
// all of its addresses.
func (f *functions) frame(vaddr uint64) (fr symbol.Frame, ok bool) {
	f.once.Do(func() {
		if t, err := cfi.Load(f.r, f.arch); err == nil {
			f.t = t
		}
	})
	lo, ok := f.known(vaddr)
	if !ok {
		lo, ok = f.begin(vaddr)
	}
	if !ok {
		return fr, false
	}
	return symbol.Frame{Func: trace.PlaceName(f.path, lo), Start: lo}, true
}

// known is the start of the function at vaddr by the call frame information.
func (f *functions) known(vaddr uint64) (lo uint64, ok bool) {
	if f.t == nil {
		return 0, false
	}
	lo, _, ok = f.t.Func(vaddr)
	return lo, ok
}

// begin is the start of the function at vaddr by its code.
func (f *functions) begin(vaddr uint64) (lo uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.b == nil {
		f.b = newBegins(f.r, f.arch)
	}
	return f.b.before(vaddr, func(at uint64) bool { _, ok := f.known(at); return ok })
}

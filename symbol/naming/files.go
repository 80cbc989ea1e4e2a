package naming

import (
	"io"

	"github.com/sliverprof/sliver/symbol"
)

// Files keeps files open whose functions are named while their process runs. K identifies a file. It is for
// one goroutine; the zero value is not ready: see NewFiles.
type Files[K comparable] struct {
	machine string
	o       Options
	most    int
	files   []openFile[K] // the most recently used one is last
	broken  map[K]bool
}

// maxBroken limits the files that are known not to open.
const maxBroken = 1 << 12

type openFile[K comparable] struct {
	key    K
	source *Source
	file   io.Closer // nil: the caller closes it
}

// NewFiles returns a Files for a machine, as in GOARCH, that keeps at most most files open; 0: all.
func NewFiles[K comparable](machine string, most int, o Options) *Files[K] {
	return &Files[K]{machine: machine, o: o, most: most, broken: map[K]bool{}}
}

// With makes Source find debug files by finder from now on.
func (f *Files[K]) With(finder symbol.Finder) *Files[K] {
	f.o.Finder = finder
	return f
}

// Source returns the names in a file, which open opens if it is not open: the closer may be nil. It returns
// nil if that failed, now or before. Another call of Source may close the result.
func (f *Files[K]) Source(key K, path string, open func() (io.ReaderAt, io.Closer, error)) *Source {
	for i, x := range f.files {
		if x.key == key {
			f.files = append(append(f.files[:i:i], f.files[i+1:]...), x)
			return x.source
		}
	}
	if f.broken[key] {
		return nil
	}
	r, c, err := open()
	var s *Source
	if err == nil {
		if s, err = Open(r, path, f.machine, f.o); err != nil && c != nil {
			c.Close()
		}
	}
	if err != nil {
		if len(f.broken) >= maxBroken {
			clear(f.broken) // they are tried again
		}
		f.broken[key] = true
		return nil
	}
	if f.most > 0 && len(f.files) >= f.most {
		f.files[0].close()
		f.files = f.files[1:]
	}
	f.files = append(f.files, openFile[K]{key, s, c})
	return s
}

// Close closes the files.
func (f *Files[K]) Close() {
	for _, x := range f.files {
		x.close()
	}
	f.files = nil
}

func (x *openFile[K]) close() {
	x.source.Close()
	if x.file != nil {
		x.file.Close()
	}
}

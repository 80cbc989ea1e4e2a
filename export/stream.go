package export

import (
	"archive/zip"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// StreamExtension returns the file extension for Stream's output.
func (f *Format) StreamExtension() string {
	if f.PerThread() {
		return ".zip"
	}
	return f.Extensions[0]
}

// Stream writes rec to w as a single file. Formats with a file per thread become a ZIP
// archive; a recording contains only the selected part.
func (f *Format) Stream(w io.Writer, rec *trace.Recording, o Options) error {
	switch {
	case f.Recording():
		return trace.Cut(w, rec, trace.Part{From: o.From, To: o.To, Threads: o.Threads})
	case !f.PerThread():
		return f.write(w, rec, o)
	}
	views := view.All(rec, o)
	z := zip.NewWriter(w)
	n := 0
	for _, v := range views {
		for i := range v.Threads {
			n++
			// Numbered, as two threads may have had the same TID.
			name := fmt.Sprintf("%03d-%s%s", n, threadFile(v, &v.Threads[i], len(views) > 1), f.Extensions[0])
			if err := f.eachFile(name, func(name string, write threadWriter) error {
				e, err := z.Create(name)
				if err == nil {
					err = write(e, v, &v.Threads[i])
				}
				return err
			}); err != nil {
				return err
			}
		}
	}
	if n == 0 {
		return fmt.Errorf("no thread is chosen: %w", ErrNothing)
	}
	return z.Close()
}

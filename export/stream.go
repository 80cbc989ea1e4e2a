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
	v := view.New(rec, o)
	if len(v.Threads) == 0 {
		return fmt.Errorf("no thread is chosen: %w", ErrNothing)
	}
	z := zip.NewWriter(w)
	for i := range v.Threads {
		th := &v.Threads[i]
		// Numbered, as two threads may have had the same TID.
		name := fmt.Sprintf("%03d-%s-%d%s", i+1, FileSafe(th.Label), th.ID, f.Extensions[0])
		for _, part := range []struct {
			name  string
			write func(io.Writer, *view.View, *view.Thread) error
		}{{name, f.writeThread}, {name + f.besideExt, f.beside}} {
			if part.write == nil {
				continue
			}
			e, err := z.Create(part.name)
			if err == nil {
				err = part.write(e, v, th)
			}
			if err != nil {
				return err
			}
		}
	}
	return z.Close()
}

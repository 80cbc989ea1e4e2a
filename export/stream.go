package export

import (
	"archive/zip"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// StreamExtension is what a file with Stream's bytes should end in.
func (f *Format) StreamExtension() string {
	if f.PerThread() {
		return ".zip"
	}
	return f.Extensions[0]
}

// Stream writes rec to w in one piece: formats with a file for each thread come
// as a ZIP archive, and a recording as one with the chosen part alone.
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
		// Numbered: a TID may have been given to two threads in turn.
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

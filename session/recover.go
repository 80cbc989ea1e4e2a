package session

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/sliverprof/sliver/internal/safefile"
	"github.com/sliverprof/sliver/ringbuf/ringfile"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/flight"
)

// Recover writes the content of ring file f, left by a killed recorder and claimed by
// the caller, to the outputs of d. It keeps f. Names come from this machine's files, if
// their build IDs match, with the options o; captured data come from the ring file.
func Recover(f *os.File, d Dump, o naming.Options) (*Dumped, *trace.Process, error) {
	begin := time.Now()
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	var im *ringfile.Image
	if err == nil {
		im, err = ringfile.Open(f, fi.Size())
	}
	var c *flight.Copy
	if err == nil {
		c, err = flight.Recover(im)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read %s: %w", f.Name(), err)
	}
	out := &Dumped{Threads: len(c.Threads), Frozen: time.Since(begin)}
	out.Problems = append(out.Problems, im.Problems...)
	problems := out.Problems
	o.Captured = c.Captured
	err = writeDump(out, c, d, begin, SameFiles{}, o)
	out.Problems = append(problems, out.Problems...)
	return out, &c.Process, err
}

// Recover is the function Recover, with the names' options of a recording.
func (o *Options) Recover(f *os.File, d Dump) (*Dumped, *trace.Process, error) {
	n := naming.Options{Finder: symbol.Dirs{Extra: o.DebugDirs}, FullNames: o.FullNames, Cache: o.Cache}
	if o.Finder != nil {
		n.Finder = symbol.Finders{n.Finder, o.Finder}
	}
	return Recover(f, d, n)
}

// SameFiles opens the modules of a recording on this machine. It rejects a file whose
// build ID differs from the recorded one.
type SameFiles struct{}

// Open implements naming.Modules.
func (SameFiles) Open(_ int, m *trace.Module) (io.ReaderAt, io.Closer, error) {
	f, err := safefile.Root("").Open(m.Path)
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, nil, err
	}
	if id, err := symbol.BuildID(f); err != nil || id != m.BuildID || id == "" {
		f.Close()
		return nil, nil, fmt.Errorf("the file here is not the one that was recorded (build ID %q, recorded %q)", id, m.BuildID)
	}
	return f, f, nil
}

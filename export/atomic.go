package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// Check finds out whether the output can be written, before anything is done
// for it. An existing file is left as it is.
func (o Output) Check() error {
	if o.Path == "-" {
		return nil
	}
	if fi, err := os.Stat(o.Path); err == nil && !fi.Mode().IsRegular() {
		if fi.IsDir() {
			return fmt.Errorf("cannot write %s: it is a directory", o.Path)
		}
		return nil // a pipe or device: opened when it is written
	}
	f, err := Temp(o.Path)
	if err != nil {
		return err
	}
	name := f.Name()
	f.Close()
	return os.Remove(name)
}

// Final is the file that is put in the output's place when it is whole: what links of its
// name lead to. It is "" where nothing is replaced: standard output, pipes and devices are
// written as they are.
func (o Output) Final() string {
	if o.Path == "-" {
		return ""
	}
	if fi, err := os.Stat(o.Path); err == nil && !fi.Mode().IsRegular() && !fi.IsDir() {
		return ""
	}
	if p, err := filepath.EvalSymlinks(o.Path); err == nil {
		return p
	}
	return o.Path
}

// maxBase is how much of a name stays in that of a temporary file: names have
// 255 bytes at most.
const maxBase = 200

// Temp makes a file beside path, with a hidden name and the rights that a new
// file of the user's has, to be renamed to path when it is whole.
func Temp(path string) (*os.File, error) {
	dir, base := filepath.Split(path)
	base = base[:min(len(base), maxBase)]
	for range 100 {
		name := filepath.Join(dir, fmt.Sprintf(".%s.%08x.partial", base, rand.Uint32()))
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		switch {
		case errors.Is(err, fs.ErrExist):
			continue
		case err != nil:
			if dir == "" {
				dir = "."
			}
			return nil, fmt.Errorf("cannot write in %s: %w", dir, cause(err))
		}
		return f, nil
	}
	return nil, fmt.Errorf("cannot write in %s: no free name for a temporary file", dir)
}

// cause is an error without the path that the caller names anyway.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}

// Atomic has fill write path, which exists afterwards complete, or as it was
// before if there is an error. Pipes and devices are written as they are, and
// so is standard output (-). It returns the number of bytes; an error names the path.
func Atomic(path string, fill func(io.Writer) error) (int64, error) {
	if path == "-" {
		n, err := fillFile(os.Stdout, fill)
		return n, cannot("standard output", err)
	}
	final := Output{Path: path}.Final()
	if final == "" {
		f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOCTTY, 0)
		if err != nil {
			return 0, cannot(path, err)
		}
		n, err := fillFile(f, fill)
		if e := f.Close(); err == nil {
			err = e
		}
		return n, cannot(path, err)
	}
	f, err := Temp(final)
	if err != nil {
		return 0, err
	}
	n, err := fillFile(f, fill)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), final)
	}
	if err != nil {
		os.Remove(f.Name())
		return n, cannot(path, err)
	}
	return n, nil
}

// cannot says which file could not be written, once.
func cannot(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot write %s: %w", path, cause(err))
}

func fillFile(f *os.File, fill func(io.Writer) error) (int64, error) {
	c := &counter{w: f}
	b := bufio.NewWriterSize(c, 256<<10)
	err := fill(b)
	if e := b.Flush(); err == nil {
		err = e
	}
	return c.n, err
}

// counter counts what goes through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

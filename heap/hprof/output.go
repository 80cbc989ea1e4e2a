package hprof

import (
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/sliverprof/sliver/internal/outfile"
)

// Output is a file that is being written. It has its name only once it is whole.
type Output struct {
	final string // "": written directly
	file  *os.File
	z     io.WriteCloser
}

// IsName reports whether a file name is that of a heap dump: NAME.hprof, compressed or not, or a packed one,
// NAME.spack.
func IsName(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	return strings.HasSuffix(name, ".hprof") || strings.HasSuffix(name, ".spack")
}

// Create begins a file. A path that ends in .gz or .zst is compressed.
func Create(path string) (*Output, error) {
	if err := outfile.Check(path); err != nil {
		return nil, err
	}
	final := outfile.Final(path)
	if final == "" { // a FIFO or a device
		f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOCTTY, 0)
		if err != nil {
			return nil, err
		}
		return &Output{file: f}, nil
	}
	f, err := outfile.Reserve(final)
	if err != nil {
		return nil, err
	}
	o := &Output{final: final, file: f}
	switch {
	case strings.HasSuffix(path, ".gz"):
		o.z = gzip.NewWriter(f)
	case strings.HasSuffix(path, ".zst"):
		z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20), zstd.WithLowerEncoderMem(true))
		if err != nil {
			o.Abort()
			return nil, err
		}
		o.z = z
	}
	return o, nil
}

func (o *Output) Write(b []byte) (int, error) {
	if o.z != nil {
		return o.z.Write(b)
	}
	return o.file.Write(b)
}

// Abort removes the partial file.
func (o *Output) Abort() {
	if o.final != "" {
		os.Remove(o.file.Name())
	}
	o.file.Close()
}

// Close ends the file and gives it its name.
func (o *Output) Close() error {
	if o.z != nil {
		if err := o.z.Close(); err != nil {
			o.Abort()
			return err
		}
	}
	if o.final == "" {
		return o.file.Close()
	}
	err := outfile.Place(o.file, o.final)
	if err != nil {
		os.Remove(o.file.Name())
	}
	if e := o.file.Close(); err == nil {
		err = e
	}
	return err
}

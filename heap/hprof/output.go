package hprof

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Output is a file that is being written. It has its name only once it is whole.
type Output struct {
	path string
	file *os.File
	mode os.FileMode // of the finished file
	z    io.WriteCloser
}

// Create begins a file. A path that ends in .gz or .zst is compressed.
func Create(path string) (*Output, error) {
	if err := linkOfOther(path); err != nil {
		return nil, err
	}
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOCTTY, 0) // a FIFO or a device
			if err != nil {
				return nil, err
			}
			return &Output{file: f}, nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			mode = info.Mode().Perm() // of the user's file that is replaced
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	o := &Output{path: path, file: f, mode: mode}
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

// linkOfOther rejects a symbolic link of another user except root: its owner would choose
// the output. The kernel's protected_symlinks only covers sticky folders.
func linkOfOther(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() && st.Uid != 0 {
		return &os.PathError{Op: "create", Path: path, Err: fmt.Errorf("it is a link of user %d; give the path that it leads to, or remove it", st.Uid)}
	}
	return nil
}

func (o *Output) Write(b []byte) (int, error) {
	if o.z != nil {
		return o.z.Write(b)
	}
	return o.file.Write(b)
}

// Abort removes the partial file.
func (o *Output) Abort() {
	o.file.Close()
	if o.path != "" {
		os.Remove(o.file.Name())
	}
}

// Close ends the file and gives it its name.
func (o *Output) Close() error {
	if o.z != nil {
		if err := o.z.Close(); err != nil {
			o.Abort()
			return err
		}
	}
	if o.path == "" {
		return o.file.Close()
	}
	err := o.file.Chmod(o.mode)
	if e := o.file.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(o.file.Name(), o.path)
	}
	if err != nil {
		os.Remove(o.file.Name())
	}
	return err
}

// Package procdir is how package wait's files.Dir is had of a live system: a
// directory of /proc, held open so that the number of a process that ended is
// never taken for another one's. It leaves all meaning to its callers. A Dir
// may be used by several goroutines at once.
package procdir

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/sliverprof/sliver/internal/safefile"
)

// Dir is an open directory below /proc.
type Dir struct {
	f    *os.File
	base string // how to name it, whatever became of its path
}

// Open opens a directory, such as "/proc" or "/proc/77".
func Open(path string) (*Dir, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &Dir{f: f, base: "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))}, nil
}

// Close lets go of it.
func (d *Dir) Close() error { return d.f.Close() }

func (d *Dir) path(name string) string { return filepath.Join(d.base, name) }

const page = 4096

// ReadFile returns a file, at most limit bytes of it.
func (d *Dir) ReadFile(name string, limit int) ([]byte, error) {
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// A page at a time is what the kernel gives of a list: what fits in one is of
	// one moment.
	b := make([]byte, 0, min(limit, page))
	for len(b) < limit {
		if len(b) == cap(b) {
			b = slices.Grow(b, min(cap(b), limit-len(b)))
		}
		n, err := f.Read(b[len(b):min(cap(b), limit)])
		b = b[:len(b)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// ReadLink returns what a link says.
func (d *Dir) ReadLink(name string) (string, error) { return os.Readlink(d.path(name)) }

// ReadDir returns at most limit names, in the kernel's order.
func (d *Dir) ReadDir(name string, limit int) ([]string, error) {
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(limit)
	if err == io.EOF {
		err = nil // an empty directory
	}
	return names, err
}

// Stat follows the link and returns what it leads to, as far as the kernel knows that
// without asking the file system.
func (d *Dir) Stat(name string) (mode fs.FileMode, dev, inode uint64, err error) {
	return safefile.Stat(d.path(name))
}

// Protocol returns the kernel's name for a socket's protocol, its extended
// attribute system.sockprotoname (kernel: net/socket.c).
func (d *Dir) Protocol(name string) (string, error) {
	var b [64]byte
	n, err := syscall.Getxattr(d.path(name), "system.sockprotoname", b[:])
	if err != nil {
		return "", &os.PathError{Op: "getxattr", Path: name, Err: err}
	}
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return string(b[:n]), nil
}

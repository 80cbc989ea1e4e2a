// Package procdir implements package wait's files.Dir on the live /proc. It keeps the
// directory open, so that the PID of a process that ended is never taken for another
// process. Callers interpret the files. A Dir may be used by several goroutines at
// once.
package procdir

import (
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
	base string // its name, which stays valid when the path does not
}

// Open opens a directory, such as "/proc" or "/proc/77".
func Open(path string) (*Dir, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{f: f, base: root}
	if path != root {
		d.base = root + "/self/fd/" + strconv.Itoa(int(f.Fd()))
	}
	return d, nil
}

// root is the one directory whose path never leads to another one. To go through self/fd takes the kernel twice as long.
const root = "/proc"

// Close closes the directory.
func (d *Dir) Close() error { return d.f.Close() }

func (d *Dir) path(name string) string { return filepath.Join(d.base, name) }

const page = 4096

// ReadFile returns at most limit bytes of a file. Samplers call it at each tick for a
// thread that waits for a file lock: an os.File is also offered to epoll(7) and takes
// 38 µs beside busy CPUs, where these calls take 5.
func (d *Dir) ReadFile(name string, limit int) ([]byte, error) {
	fd, err := again(func() (int, error) {
		return syscall.Openat(int(d.f.Fd()), name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: d.path(name), Err: err}
	}
	defer syscall.Close(fd)
	b := make([]byte, 0, min(limit, page))
	for len(b) < limit {
		if len(b) == cap(b) {
			b = slices.Grow(b, min(cap(b), limit-len(b)))
		}
		n, err := again(func() (int, error) { return syscall.Read(fd, b[len(b):min(cap(b), limit)]) })
		if err != nil {
			return b, &os.PathError{Op: "read", Path: d.path(name), Err: err}
		}
		if n == 0 {
			break
		}
		b = b[:len(b)+n]
	}
	return b, nil
}

// again repeats a system call that a signal interrupted.
func again(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != syscall.EINTR {
			return n, err
		}
	}
}

// ReadLink returns the target of a link.
func (d *Dir) ReadLink(name string) (string, error) {
	path := d.base + "/" + name
	var b [256]byte
	n, err := again(func() (int, error) { return syscall.Readlink(path, b[:]) })
	switch {
	case err != nil:
		return "", &os.PathError{Op: "readlink", Path: path, Err: err}
	case n == len(b): // it may be longer
		return os.Readlink(path)
	}
	return string(b[:n]), nil
}

// ReadDir returns at most limit names, in the kernel's order.
func (d *Dir) ReadDir(name string, limit int) (names []string, err error) {
	path := d.base + "/" + name
	fd, err := again(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	b := make([]byte, page)
	for len(names) < limit {
		n, err := again(func() (int, error) { return syscall.ReadDirent(fd, b) })
		if err != nil {
			return names, &os.PathError{Op: "readdirent", Path: path, Err: err}
		}
		if n == 0 {
			break
		}
		_, _, names = syscall.ParseDirent(b[:n], limit-len(names), names)
	}
	return names, nil
}

// Stat follows the link and describes its target, as far as the kernel knows it without
// querying the file system.
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

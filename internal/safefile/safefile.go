// Package safefile opens files whose paths another party chose: a target through its
// maps, its debuglinks and the links in its file system, or a recording through the paths
// of its modules. It guarantees for each file:
//
//   - Only a regular file of a real file system is opened. Its type is
//     checked before it is opened for reading, so that no device, pipe, terminal
//     or kernel interface is affected.
//   - Links are followed in the target's root, never out of it, and never
//     through /proc.
//   - A file system that does not respond costs an error after a few seconds.
//     Opens, and reads on file systems that can hang, are made by a helper
//     process (sliver-files), which is replaced when it misses its deadline.
//
// Callers must check whether the file is the right one. All functions and methods may be
// called concurrently.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/internal/caps"
)

var (
	// ErrNotRegular reports that a path leads to something that is not a regular file.
	ErrNotRegular = errors.New("not a regular file")
	// ErrKernelFile reports that a path leads to a file of /proc, /sys or similar:
	// reading it may have effects.
	ErrKernelFile = errors.New("not a file of a disk: it is an interface of the kernel")
	// ErrHung reports that a file system did not respond in time.
	ErrHung = errors.New("the file system does not answer")
)

// Info describes an open file.
type Info struct {
	Dev, Inode uint64
	Size       int64 // bytes
	Modified   int64 // ns since 1970
	UID        int
	FS         int64 // file system type (linux/magic.h)
}

// Place is where paths are looked up. The zero value is this process's own root.
type Place struct {
	proc  int    // descriptor of a directory such as /proc/77, if open
	root  string // "/proc/77/root"; "": the own root
	base  string // a folder named by the user
	owner string // owner of the file systems: a hang affects only this owner
	open  bool   // proc is valid
}

// Process returns the root of a process whose directory below /proc is open as dir, which
// must stay open while the Place is used. owner names the process.
func Process(dir int, owner string) Place { return Place{proc: dir, open: true, owner: owner} }

// Root returns the root at a path such as "/proc/77/root"; "" is the own root.
func Root(path string) Place { return Place{root: path, owner: path} }

// Under returns a folder named by the user; its links may lead elsewhere.
func Under(folder string) Place {
	if abs, err := filepath.Abs(folder); err == nil {
		folder = abs // the helper has another working directory
	}
	return Place{base: folder}
}

// For returns p with another owner.
func (p Place) For(owner string) Place {
	p.owner = owner
	return p
}

// Open opens the regular file at path.
func (p Place) Open(path string) (*File, error) { return p.do(request{Op: opOpen, Path: path}) }

// OpenNoFollow is Open for a path whose last element must not be a link.
func (p Place) OpenNoFollow(path string) (*File, error) {
	return p.do(request{Op: opOpen, Path: path, NoFollow: true})
}

// OpenLink opens the regular file that a kernel link in a process's directory leads to:
// "exe", "map_files/…". p must come from Process.
func (p Place) OpenLink(link string) (*File, error) {
	return p.do(request{Op: opOpen, Path: link, Magic: true})
}

// Real returns path with all links resolved, as seen in the Place.
func (p Place) Real(path string) (string, error) {
	a, _, err := helpers.ask(p, p.request(request{Op: opReal, Path: path}))
	if err != nil {
		return "", &fs.PathError{Op: "resolve", Path: path, Err: err}
	}
	return a.Real, nil
}

// Stat describes the regular file at path, without opening it.
func (p Place) Stat(path string) (Info, error) {
	a, _, err := helpers.ask(p, p.request(request{Op: opStat, Path: path}))
	if err != nil {
		return Info{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return a.Info, nil
}

func (p Place) request(q request) request {
	q.HasProc, q.Root, q.Base = p.open, p.root, p.base
	return q
}

// key identifies the file systems to which a hang is charged.
func (p Place) key(path string) string {
	if p.owner != "" {
		return p.owner
	}
	return filepath.Join(p.base, filepath.Dir(path))
}

func (p Place) do(q request) (*File, error) {
	q = p.request(q)
	f := &File{place: p, q: q}
	a, fd, err := helpers.ask(p, q)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: q.Path, Err: err}
	}
	f.info = a.Info
	if fd >= 0 {
		f.local = os.NewFile(uintptr(fd), q.Path)
	} else {
		f.helper, f.handle = a.helper, a.Handle
	}
	return f, nil
}

// File is an open regular file.
type File struct {
	place Place
	q     request
	local *os.File // on a file system that cannot hang; nil: the helper reads

	mu     sync.Mutex // guards the fields below
	info   Info
	helper *helper
	handle uint64
	blocks []block // recently read blocks, newest last
	closed bool
}

// Reads by a helper are made in blocks, of which a few are cached, as readers of tables
// read a few bytes at a time.
const (
	blockSize = 64 << 10
	maxBlocks = 16
)

type block struct {
	at   int64
	data []byte // shorter than blockSize: the end of the file
}

// Name returns the path that was opened.
func (f *File) Name() string { return f.q.Path }

// Local reports whether the file is on a file system that cannot hang: it is read without a helper.
func (f *File) Local() bool { return f.local != nil }

// OwnPath returns a path below /proc that leads this process, and the kernel on its behalf, to
// the file itself while it is open; ok is false for a file that a helper reads.
func (f *File) OwnPath() (path string, ok bool) {
	if f.local == nil {
		return "", false
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.local.Fd()), true
}

// Size returns the file's size when it was opened or last stated, in bytes.
func (f *File) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.info.Size
}

// Opened describes the file as of when it was opened or last stated.
func (f *File) Opened() Info {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.info
}

// Stat describes the current file.
func (f *File) Stat() (Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return Info{}, fs.ErrClosed
	}
	if f.local != nil {
		fi, err := f.local.Stat()
		if err != nil {
			return Info{}, err
		}
		f.info.Size, f.info.Modified = fi.Size(), fi.ModTime().UnixNano()
		return f.info, nil
	}
	a, err := f.ask(request{Op: opInfo})
	if err != nil {
		return Info{}, f.fail("stat", err)
	}
	if a.Info.Size != f.info.Size || a.Info.Modified != f.info.Modified {
		f.blocks = nil
	}
	f.info = a.Info
	return f.info, nil
}

func (f *File) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.q.Path, Err: err}
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(b []byte, off int64) (n int, err error) {
	if f.local != nil {
		return f.local.ReadAt(b, off)
	}
	if off < 0 {
		return 0, f.fail("read", syscall.EINVAL)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for n < len(b) {
		if f.closed {
			return n, fs.ErrClosed
		}
		blk, err := f.block(off + int64(n))
		if err != nil {
			return n, f.fail("read", err)
		}
		in := off + int64(n) - blk.at
		if in >= int64(len(blk.data)) {
			return n, io.EOF
		}
		n += copy(b[n:], blk.data[in:])
	}
	return n, nil
}

// block returns the block that contains the offset; mu is held.
func (f *File) block(off int64) (block, error) {
	at := off - off%blockSize
	for i := len(f.blocks) - 1; i >= 0; i-- {
		if f.blocks[i].at == at {
			return f.blocks[i], nil
		}
	}
	a, err := f.ask(request{Op: opRead, Off: at, N: blockSize})
	if err != nil {
		return block{}, err
	}
	x := block{at, a.data}
	if len(f.blocks) == maxBlocks {
		f.blocks = append(f.blocks[:0], f.blocks[1:]...)
	}
	f.blocks = append(f.blocks, x)
	return x, nil
}

// ask sends q to the helper that has the file open. If that one was replaced because of
// another file, it opens the file again, provided it is unchanged; mu is held.
func (f *File) ask(q request) (answer, error) {
	q.Handle = f.handle
	a, err := helpers.askOf(f.helper, f.place, f.q.Path, q)
	if !errors.Is(err, errReplaced) {
		return a, err
	}
	a, fd, err := helpers.ask(f.place, f.q)
	if err != nil {
		return a, err
	}
	if fd >= 0 || a.Info.Dev != f.info.Dev || a.Info.Inode != f.info.Inode {
		if fd >= 0 {
			syscall.Close(fd)
		} else {
			helpers.forget(a.helper, a.Handle)
		}
		return a, syscall.ESTALE
	}
	f.helper, f.handle = a.helper, a.Handle
	q.Handle = f.handle
	return helpers.askOf(f.helper, f.place, f.q.Path, q)
}

// NextData returns the first offset at or after off where the file has data and not a
// hole, or its end. If that cannot be determined, it returns off.
func (f *File) NextData(off int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return off
	}
	if f.local != nil {
		return nextData(int(f.local.Fd()), off)
	}
	a, err := f.ask(request{Op: opData, Off: off})
	if err != nil {
		return off
	}
	return a.Off
}

// Data returns a reader of the file from start to end that skips holes: a target's sparse
// file that is larger than any disk takes no time. Close closes the file.
func (f *File) Data() io.ReadCloser { return &dataReader{f: f} }

type dataReader struct {
	f    *File
	off  int64
	data int64 // end of the range that may have data
}

func (r *dataReader) Read(b []byte) (int, error) {
	if r.off >= r.data {
		r.off = r.f.NextData(r.off)
		r.data = r.off + blockSize
	}
	n, err := r.f.ReadAt(b[:min(int64(len(b)), r.data-r.off)], r.off)
	r.off += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (r *dataReader) Close() error { return r.f.Close() }

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed, f.blocks = true, nil
	if f.local != nil {
		return f.local.Close()
	}
	helpers.forget(f.helper, f.handle)
	return nil
}

// flags are those of every open: it does not wait for a pipe, no terminal becomes the
// controlling one, and no child program inherits the descriptor.
const flags = syscall.O_NONBLOCK | syscall.O_NOCTTY | syscall.O_CLOEXEC

// Named opens the regular file at a path that the user named; it follows links as the
// user would, with only the user's rights.
func Named(path string) (*os.File, error) {
	var f *os.File
	var err error
	caps.AsUser(func() { f, err = os.OpenFile(path, os.O_RDONLY|flags, 0) })
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	return f, nil
}

// ReadNamed reads a small file that the user named, which may be a pipe (<(pass …)). A
// file of more than limit bytes is an error.
func ReadNamed(path string, limit int) ([]byte, error) {
	var f *os.File
	var err error
	caps.AsUser(func() { f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOCTTY, 0) })
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(b) > limit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has more than %d bytes", limit)}
	}
	return b, err
}

// Hurry shortens all deadlines, also those of pending requests, as the program is ending.
func Hurry() { helpers.hurry() }

// Pending reports whether a request is in progress. Each has a deadline.
func Pending() bool { return helpers.pending.Load() > 0 }

func hungError(wait time.Duration) error {
	return fmt.Errorf("%w (waited %v)", ErrHung, wait)
}

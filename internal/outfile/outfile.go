// Package outfile writes the files that a user asks for: complete or not at all, with mode 0600, and not
// through links of other users. An unfinished file has a hidden name from which the output's follows.
package outfile

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

	"github.com/sliverprof/sliver/internal/caps"
)

// Check reports whether a file can be written, before any work is done for it. An
// existing file is not changed.
func Check(path string) (err error) {
	caps.AsUser(func() { err = check(path) })
	return err
}

func check(path string) error {
	final, err := resolve(path)
	if err != nil {
		return err
	}
	if fi, err := os.Lstat(final); err == nil && !fi.Mode().IsRegular() {
		if fi.IsDir() {
			return fmt.Errorf("cannot write %s: it is a directory", path)
		}
		return nil // a pipe or device is opened when it is written
	}
	f, err := Temp(final)
	if err != nil {
		return err
	}
	name := f.Name()
	f.Close()
	return os.Remove(name)
}

// Final returns the path that the finished file replaces, with symbolic links resolved. It is
// "" for pipes and devices, which are written directly.
func Final(path string) (final string) {
	caps.AsUser(func() { final = finalOf(path) })
	return final
}

func finalOf(path string) string {
	final, err := resolve(path)
	if err != nil {
		return path // Check rejects this path; renaming would replace the link itself
	}
	if fi, err := os.Lstat(final); err == nil && !fi.Mode().IsRegular() && !fi.IsDir() {
		return ""
	}
	return final
}

// maxLinks limits how many links are followed. It is the kernel's limit.
const maxLinks = 40

// resolve follows symbolic links in the last element of path. The kernel resolves the folder
// and applies protected_symlinks (proc(5)) to it. That protection does not cover links that a
// program reads itself, so a link of another user except root is rejected: its owner would
// choose which file is written or replaced.
func resolve(path string) (string, error) {
	for range maxLinks {
		fi, err := os.Lstat(path)
		if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
			return path, nil // the write reports the error
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() && st.Uid != 0 {
			return "", fmt.Errorf("cannot write %s: it is a link of user %d; give the path that it leads to, or remove it", path, st.Uid)
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", cannot(path, err)
		}
		if !filepath.IsAbs(to) {
			dir, _ := filepath.Split(path)
			to = dir + to // not filepath.Join: ".." after a link is not the parent of the link's folder
		}
		path = to
	}
	return "", fmt.Errorf("cannot write %s: %w", path, syscall.ELOOP)
}

// maxBase is how much of a name is kept in the name of its temporary file. File names have at
// most 255 bytes.
const maxBase = 200

// Temporary files are named .NAME.XXXXXXXX.partial.
const (
	partialEnding = ".partial"
	partialRandom = 8 // hexadecimal digits
)

// Temp creates a hidden file beside path, to be renamed to path when it is complete. Its mode
// is 0600, as a recording contains addresses that /proc/PID/maps hides from other users. The
// file stays locked (flock(2)) until it is closed, which shows other processes that it is
// still being written.
func Temp(path string) (*os.File, error) {
	dir, base := filepath.Split(path)
	base = base[:min(len(base), maxBase)]
	for range 100 {
		name := filepath.Join(dir, fmt.Sprintf(".%s.%0*x%s", base, partialRandom, rand.Uint32(), partialEnding))
		var f *os.File
		var err error
		caps.AsUser(func() { f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOCTTY, 0o600) })
		switch {
		case errors.Is(err, fs.ErrExist):
			continue
		case err != nil:
			if dir == "" {
				dir = "."
			}
			return nil, fmt.Errorf("cannot write in %s: %w", dir, cause(err))
		}
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // some file systems do not support locks
		return f, nil
	}
	return nil, fmt.Errorf("cannot write in %s: no free name for a temporary file", dir)
}

// Place renames a temporary file to final. If that replaces a file of the same user, it keeps
// that file's mode.
func Place(f *os.File, final string) (err error) {
	caps.AsUser(func() { err = place(f, final) })
	return err
}

func place(f *os.File, final string) error {
	if fi, err := os.Lstat(final); err == nil && fi.Mode().IsRegular() {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			if err := f.Chmod(fi.Mode().Perm()); err != nil {
				return err
			}
		}
	}
	return os.Rename(f.Name(), final)
}

// cause removes the path from an error that the caller will wrap with it.
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

// Atomic calls fill to write path. Afterwards path is complete, or unchanged if an error
// occurred. Pipes, devices and standard output (-) are written directly. It returns the
// number of bytes; errors name the path.
func Atomic(path string, fill func(io.Writer) error) (int64, error) {
	if path == "-" {
		n, err := fillFile(os.Stdout, fill)
		return n, cannot("standard output", err)
	}
	var final string
	var err error
	caps.AsUser(func() { final, err = resolve(path) })
	if err != nil {
		return 0, err
	}
	if Final(path) == "" {
		var f *os.File
		caps.AsUser(func() { f, err = os.OpenFile(final, os.O_WRONLY|syscall.O_NOCTTY|syscall.O_NOFOLLOW, 0) })
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
	if err == nil {
		err = Place(f, final)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(f.Name())
		return n, cannot(path, err)
	}
	return n, nil
}

// cannot wraps err with the path, once.
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

// counter counts the bytes written through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

package export

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/internal/caps"
)

// Partial is a file that was being written when its program was killed, or that one is
// writing now.
type Partial struct {
	Path    string
	For     string // the name that it was to have
	Bytes   int64
	At      time.Time // when it was written last
	Writing bool      // by a program that runs
}

// partialFor is the output's name in that of a temporary file; "": it is none.
func partialFor(name string) string {
	base, ok := strings.CutSuffix(name, partialEnding)
	if !ok || len(base) < partialRandom+3 || base[0] != '.' || base[len(base)-partialRandom-1] != '.' {
		return ""
	}
	if _, err := hex.DecodeString(base[len(base)-partialRandom:]); err != nil {
		return ""
	}
	return base[1 : len(base)-partialRandom-1]
}

// IsPartial reports whether a path has the name of a temporary file, and which output's
// it is.
func IsPartial(path string) (output string, ok bool) {
	dir, base := filepath.Split(path)
	name := partialFor(base)
	return dir + name, name != ""
}

// maxPartials bounds how many of a folder are looked at.
const maxPartials = 1 << 12

// Partials lists the unfinished files of a folder that are this user's.
func Partials(dir string) ([]Partial, error) {
	var d *os.File
	var err error
	caps.AsUser(func() { d, err = os.Open(dir) })
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", dir, cause(err))
	}
	defer d.Close()
	var out []Partial
	for {
		names, err := d.Readdirnames(1024)
		for _, n := range names {
			if name := partialFor(n); name != "" && len(out) < maxPartials {
				if p, ok := partial(filepath.Join(dir, n), name); ok {
					out = append(out, p)
				}
			}
		}
		if err != nil || len(names) == 0 {
			return out, nil
		}
	}
}

func partial(path, name string) (Partial, bool) {
	var f *os.File
	var err error
	caps.AsUser(func() {
		f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	})
	if err != nil {
		return Partial{}, false
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return Partial{}, false
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return Partial{}, false
	}
	return Partial{Path: path, For: name, Bytes: fi.Size(), At: fi.ModTime(), Writing: Writing(f)}, true
}

// Writing reports whether a program that runs writes f, a temporary file that is open.
func Writing(f *os.File) bool {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	}
	return errors.Is(err, syscall.EWOULDBLOCK)
}

// ErrTaken says that another program writes an output.
var ErrTaken = errors.New("another sliver is writing it")

// Reserve makes the file that an output grows in, and takes the output's name for it, so
// that no other recording is written to it at the same time. It returns an error that wraps
// ErrTaken where one is. final is what Final says.
func Reserve(final string) (*os.File, error) {
	dir := filepath.Dir(final)
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot write in %s: %w", dir, cause(err))
	}
	defer d.Close()
	// Of two that begin at once, one looks when the other's file is there. Without
	// the lock, which not all file systems have, both may go on.
	if deadline := time.Now().Add(reserveWait); syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		for time.Now().Before(deadline) && syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == syscall.EWOULDBLOCK {
			time.Sleep(time.Millisecond)
		}
	}
	base := filepath.Base(final)
	all, err := Partials(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, p := range all {
		if p.Writing && p.For == base[:min(len(base), maxBase)] {
			return nil, fmt.Errorf("cannot write %s: %w (%s)", final, ErrTaken, p.Path)
		}
	}
	return Temp(final)
}

// reserveWait bounds the wait for another that begins in the same folder.
const reserveWait = time.Second

// Taken reports whether a file has the name already, or is to have it.
func Taken(path string) bool {
	if _, err := os.Lstat(path); err == nil {
		return true
	}
	all, _ := Partials(filepath.Dir(path))
	for _, p := range all {
		if p.Writing && p.For == filepath.Base(path) {
			return true
		}
	}
	return false
}

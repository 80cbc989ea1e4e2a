package outfile

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

// Partial is an unfinished output: its program was killed, or is still writing it.
type Partial struct {
	Path    string
	For     string // the intended name
	Bytes   int64
	At      time.Time // last modification
	Writing bool      // a running program writes it
}

// partialFor returns the output's name from that of a temporary file; "": not a temporary
// file.
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

// IsPartial reports whether path names a temporary file, and of which output.
func IsPartial(path string) (output string, ok bool) {
	dir, base := filepath.Split(path)
	name := partialFor(base)
	return dir + name, name != ""
}

// maxPartials limits how many entries of a folder are examined.
const maxPartials = 1 << 12

// Partials lists this user's unfinished files in a folder.
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

// Writing reports whether a running program writes f, an open temporary file.
func Writing(f *os.File) bool {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	}
	return errors.Is(err, syscall.EWOULDBLOCK)
}

// ErrTaken reports that another program is writing an output.
var ErrTaken = errors.New("another sliver is writing it")

// Reserve creates the file that an output grows in and reserves the output's name, so that
// no other recording is written to it at the same time. If one is, the error wraps
// ErrTaken. final is the result of Final.
func Reserve(final string) (*os.File, error) {
	dir := filepath.Dir(final)
	var d *os.File
	var err error
	caps.AsUser(func() { d, err = os.Open(dir) })
	if err != nil {
		return nil, fmt.Errorf("cannot write in %s: %w", dir, cause(err))
	}
	defer d.Close()
	// The folder lock orders two programs that start at once: one looks only after the
	// other's file exists. On file systems without locks both may proceed.
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

// reserveWait limits the wait for another program that starts in the same folder.
const reserveWait = time.Second

// Taken reports whether the name exists already or is reserved.
func Taken(path string) bool {
	var err error
	caps.AsUser(func() { _, err = os.Lstat(path) })
	if err == nil {
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

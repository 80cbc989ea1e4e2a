package watch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sliverprof/sliver/internal/safefile"
)

// An owner file beside each ring file contains the folder of its recorder's dumps and the
// recorder's name. Only a recorder with the same folder, or one that was given the same
// name, recovers the ring file of a killed recorder: recordings of one service must not
// go into the folder of another.

// ownerEnding is the suffix of a ring file's owner file.
const ownerEnding = ".of"

// maxOwner limits an owner file, in bytes.
const maxOwner = 8 << 10

type owner struct{ dir, name string }

func (w *Watcher) owner() owner {
	if w.o.Store == nil {
		return owner{name: w.o.Name}
	}
	dir := w.o.Store.Dir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return owner{dir, w.o.Name}
}

func (o owner) note(ring string) error {
	path := ring + ownerEnding
	_ = os.Remove(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(o.dir + "\n" + o.name + "\n")
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// ownerOf returns the owner of a ring file; false: unknown, or the file is another
// user's.
func ownerOf(ring string) (owner, bool) {
	for _, p := range []string{ring, ring + ownerEnding} {
		fi, err := os.Lstat(p)
		if err != nil || !fi.Mode().IsRegular() {
			return owner{}, false
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			return owner{}, false
		}
	}
	b, err := safefile.ReadNamed(ring+ownerEnding, maxOwner)
	if err != nil {
		return owner{}, false
	}
	dir, rest, ok1 := strings.Cut(string(b), "\n")
	name, _, ok2 := strings.Cut(rest, "\n")
	return owner{dir, name}, ok1 && ok2
}

// mine reports whether this recorder may recover the ring file.
func (w *Watcher) mine(ring string) bool {
	of, ok := ownerOf(ring)
	if !ok {
		return false
	}
	me := w.owner()
	return of.dir == me.dir || w.o.Named && of.name == me.name
}

// RingFolder returns the dump folder of a ring file's recorder; "": unknown.
func RingFolder(ring string) string {
	of, _ := ownerOf(ring)
	return of.dir
}

// ForgetRing removes the owner file of a ring file that is removed.
func ForgetRing(ring string) { _ = os.Remove(ring + ownerEnding) }

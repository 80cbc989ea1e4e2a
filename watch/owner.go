package watch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sliverprof/sliver/internal/safefile"
)

// Beside a ring file is one that says whose it is: the folder of its recorder's dumps,
// and its recorder's name. What a killed recorder left is recovered by one with the same
// folder, or by one that was given the same name, and stays where it is for all others:
// recordings of one service do not go into the folder of another.

// ownerEnding goes behind the name of a ring file.
const ownerEnding = ".of"

// maxOwner bounds such a file, in bytes.
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

// ownerOf says whose a ring file is; false: it does not say, or it is another user's.
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

// mine reports whether the ring file is for this recorder to recover.
func (w *Watcher) mine(ring string) bool {
	of, ok := ownerOf(ring)
	if !ok {
		return false
	}
	me := w.owner()
	return of.dir == me.dir || w.o.Named && of.name == me.name
}

// RingFolder is where the recorder of a ring file had its dumps; "": it does not say.
func RingFolder(ring string) string {
	of, _ := ownerOf(ring)
	return of.dir
}

// ForgetRing removes the owner file of a ring file that is removed.
func ForgetRing(ring string) { _ = os.Remove(ring + ownerEnding) }

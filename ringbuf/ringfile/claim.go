package ringfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrInUse reports that the program that writes a ring file is running, or that another one has
// claimed the file.
var ErrInUse = errors.New("the ring file is in use")

// The writer of a ring file, and a program that claims a leftover one, hold an exclusive lock on
// it (flock(2)). The kernel releases the lock whenever the program ends. A lock belongs to the
// file and not to its name, so its holder checks that the name still refers to that file.

// again is the wait before another attempt to lock.
const again = 5 * time.Millisecond

// Claim opens the leftover ring file at path and locks it against other writers and claims until
// it is closed; to remove the file, do so before. A program that was just killed may have left
// another process running that holds its files for a moment, such as a stopper that sleeps until
// its next look: Claim waits for that, at most until the given time. The error is ErrInUse, or
// fs.ErrNotExist without a file, for example because another program claimed and removed it.
func Claim(path string, until time.Time) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
		if err != nil {
			return nil, err
		}
		if err := lock(f, until); err != nil {
			f.Close()
			return nil, err
		}
		if named(f, path) {
			return f, nil
		}
		f.Close() // removed, and maybe replaced, before it was locked
	}
}

// lock locks f, and waits for the lock until the given time. Without support for locks, as on
// some network file systems, it succeeds.
func lock(f *os.File, until time.Time) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOSYS):
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("lock: %w", err)
		case time.Now().After(until):
			return ErrInUse
		}
		time.Sleep(again)
	}
}

// named reports whether path is the name of f.
func named(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// createWait is how long to wait for a new file's lock: a program that looks for leftover files
// may have locked it first, and unlocks it at once.
const createWait = time.Second

// create makes a new, locked file at path. The error wraps fs.ErrExist if there is one already.
func create(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("create the ring file: %w", err)
		}
		err = lock(f, time.Now().Add(createWait))
		if err == nil && named(f, path) {
			return f, nil
		}
		f.Close()
		if errors.Is(err, ErrInUse) {
			err = fs.ErrExist // it belongs to the holder of its lock
		}
		if err != nil {
			return nil, fmt.Errorf("create the ring file %s: %w", path, err)
		}
	}
}

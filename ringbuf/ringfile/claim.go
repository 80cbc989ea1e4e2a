package ringfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrInUse says that the program that writes a ring file is running, or that another
// one has claimed what it left.
var ErrInUse = errors.New("the ring file is in use")

// Whoever writes a ring file, and whoever turns what was left there into something else,
// has an exclusive lock on it (flock(2)) as long as it does: the kernel lets go of that
// when the program ends, however it does. A lock is one on the file and not on its name,
// so who has it looks whether the name is still that file's.

// again is how long to wait before a lock is tried again.
const again = 5 * time.Millisecond

// Claim opens the ring file at path, which its program left, and holds it against all
// others that would write or claim it, until it is closed; who removes it does so before.
// A program that was just killed may have left another one running that holds its files
// for a moment, such as a stopper that sleeps until its next look: Claim waits for that,
// at most until a time. The error is ErrInUse, or says that there is no file, as it is
// where another claimed and removed it meanwhile (fs.ErrNotExist).
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
		f.Close() // removed, and maybe replaced, before we had it
	}
}

// lock takes the lock on f, and waits for it until then. Where there are no locks, as on
// some network file systems, nobody has one.
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

// createWait is how long a new file's lock is waited for: somebody who looks for what is
// left may have met it before it was locked, and lets go of it at once.
const createWait = time.Second

// create makes a file at path that nobody else has, locked. The error wraps
// fs.ErrExist where there is one.
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
			err = fs.ErrExist // it is whose lock it has
		}
		if err != nil {
			return nil, fmt.Errorf("create the ring file %s: %w", path, err)
		}
	}
}

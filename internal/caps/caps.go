// Package caps limits the use of this process's capabilities to their purpose. Capabilities
// that an ordinary user's process has from its file (setcap) are for access to other
// processes; paths given by the user are opened with the user's own rights. Root's
// capabilities are not changed, as root may read what it names. All functions may be called
// concurrently.
package caps

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// files are the capabilities that bypass file modes.
const files = 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH

// sets are a thread's effective, permitted and inheritable capabilities.
type sets [2]unix.CapUserData

func header() unix.CapUserHeader { return unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} }

func current() (s sets, err error) {
	h := header()
	err = unix.Capget(&h, &s[0])
	return s, err
}

// raised reports whether this is an ordinary user's process with capabilities.
func raised() bool {
	if os.Geteuid() == 0 {
		return false
	}
	s, err := current()
	return err == nil && s[0].Permitted|s[1].Permitted != 0
}

// Has reports whether the process has capabilities that its user does not have.
func Has() bool { return raised() }

// AsUser calls f without the capabilities that bypass file modes, for paths given by the
// user.
func AsUser(f func()) {
	if os.Geteuid() == 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, err := current()
	if err != nil || old[0].Effective&files == 0 {
		f()
		return
	}
	lower := old
	lower[0].Effective &^= files
	h := header()
	if unix.Capset(&h, &lower[0]) != nil {
		f()
		return
	}
	defer func() {
		h := header()
		if unix.Capset(&h, &old[0]) != nil {
			runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		}
	}()
	f()
}

// Drop drops all capabilities of an ordinary user's process, on all threads, permanently, for
// work that needs no other process.
func Drop() error {
	if !raised() {
		return nil
	}
	return dropAll()
}

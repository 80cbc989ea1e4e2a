// Package caps lets this process use its capabilities for what they are for and
// nothing else. Those that an ordinary user's process has from its file
// (setcap) are rights over other processes; the paths that the user named are
// opened with the user's own. Root's are left alone: what root names, root may
// read. All functions may be called concurrently.
package caps

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// files are the capabilities that pass over the modes of files.
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

// Has reports whether the process has capabilities that its user does not.
func Has() bool { return raised() }

// AsUser calls f without the capabilities that pass over the modes of files: for paths
// that the user named.
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

// Drop gives up all capabilities of an ordinary user's process, on all threads, for good: for
// what needs no other process, or does not any more.
func Drop() error {
	if !raised() {
		return nil
	}
	return dropAll()
}

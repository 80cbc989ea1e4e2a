// Package caps limits the use of this process's capabilities to their purpose. Capabilities
// that an ordinary user's process has from its file (setcap) are for access to other
// processes; paths given by the user are opened with the user's own rights. Root may read
// what it names, and keeps the capabilities that its command can need. All functions may be
// called concurrently.
package caps

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

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

// A Need says what a command or helper does.
type Need int

const (
	// Files reads and writes files that the user named, and may listen on any port.
	Files Need = iota
	// Targets inspects processes, and does what Files does.
	Targets
	// TargetFiles opens the files of processes for reading.
	TargetFiles
)

// needed are the capabilities of root that serve each Need.
var needed = [...][]uintptr{
	Files: {unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_NET_BIND_SERVICE},
	Targets: {unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_NET_BIND_SERVICE,
		unix.CAP_SYS_PTRACE, unix.CAP_PERFMON, unix.CAP_BPF, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYSLOG,
		unix.CAP_SYS_ADMIN,            // of the four before: kernels before 5.8
		unix.CAP_KILL, unix.CAP_CHOWN, // a JVM's attach socket
		unix.CAP_SYS_NICE, unix.CAP_SYS_RESOURCE, unix.CAP_IPC_LOCK}, // stoppers, and locked rings
	TargetFiles: {unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_ADMIN},
}

// Limit drops, on all threads and permanently, the capabilities that are not needed: all of an
// ordinary user's process for Files, none of it for the others, and of root's all that do not
// serve the Need. Programs that root starts get root's usual capabilities (capabilities(7),
// "Capabilities and execution of programs by root").
//
// Root without CAP_SYS_PTRACE, as in a container, keeps all for Targets and TargetFiles: then
// the kernel lets a process inspect only those whose capabilities are a subset of its own
// (security/commoncap.c, cap_ptrace_access_check).
func Limit(n Need) error {
	s, err := current()
	if err != nil {
		return nil // a kernel without capabilities
	}
	var keep sets
	if os.Geteuid() == 0 {
		has := func(c uintptr) bool { return s[c/32].Permitted&(1<<(c%32)) != 0 }
		if n != Files && !has(unix.CAP_SYS_PTRACE) {
			return nil
		}
		for _, c := range needed[n] {
			if n == TargetFiles && c == unix.CAP_SYS_ADMIN && has(unix.CAP_CHECKPOINT_RESTORE) {
				continue
			}
			keep[c/32].Permitted |= 1 << (c % 32)
		}
	} else if n != Files {
		return nil
	}
	change := false
	for i := range keep {
		keep[i].Permitted &= s[i].Permitted
		keep[i].Effective = s[i].Effective & keep[i].Permitted
		if os.Geteuid() == 0 {
			keep[i].Inheritable = s[i].Inheritable
		}
		change = change || keep[i].Permitted != s[i].Permitted
	}
	if !change {
		return nil
	}
	if err := setAll(&keep); err != nil && !errors.Is(err, syscall.ENOTSUP) { // a program with cgo, such as a test
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

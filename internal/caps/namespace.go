package caps

import "os"

// Numbers of the initial namespaces' inodes (include/linux/proc_ns.h, PROC_USER_INIT_INO and PROC_PID_INIT_INO).
const (
	initialUser = "user:[4026531837]"
	initialPID  = "pid:[4026531836]"
)

// InitialUsers reports whether this process is in the initial user namespace, for which alone the kernel checks
// the capabilities to load programs. True if that cannot be read.
func InitialUsers() bool { return in("user", initialUser) }

// InitialPIDs reports whether this process is in the initial PID namespace, whose numbers the kernel's programs
// see. True if that cannot be read.
func InitialPIDs() bool { return in("pid", initialPID) }

func in(kind, initial string) bool {
	to, err := os.Readlink("/proc/self/ns/" + kind)
	return err != nil || to == initial
}

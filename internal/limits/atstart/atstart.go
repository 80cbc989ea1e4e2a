// Package atstart has limits as this program was started with. Package syscall raises the soft limit of descriptors when
// it is initialized, and a program that is started by this one is to have the former one. Go initializes packages in the
// order of their import paths, once what they import is initialized (cmd/link, inittask.go), so this one, which imports
// none, comes before syscall.
package atstart

// Files is RLIMIT_NOFILE, soft and hard; zero: unknown.
var Files = files()

func files() (l [2]uint64) {
	const resource = 7 // RLIMIT_NOFILE (asm-generic/resource.h)
	if getrlimit(resource, &l) != 0 {
		return [2]uint64{}
	}
	return l
}

// getrlimit is prlimit64(2) of this process.
//
//go:noescape
func getrlimit(resource uintptr, l *[2]uint64) (errno uintptr)

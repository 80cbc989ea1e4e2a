// Package syscalls knows Linux's system calls by number, for amd64 and arm64,
// and which of their arguments say what the caller waits for. It knows no
// process and reads nothing: package wait fetches what the arguments point at.
// All functions are pure.
package syscalls

import "strconv"

//go:generate go run gen.go

// maxNr bounds the numbers that are looked up.
const maxNr = 1 << 12

func table(arch string) []string {
	switch arch {
	case "amd64":
		return amd64[:]
	case "arm64":
		return arm64[:]
	}
	return nil
}

// Name of system call nr on a machine (GOARCH's name for it), such as
// "futex"; "syscall 999" where the number is not known.
func Name(arch string, nr int32) string {
	t := table(arch)
	if nr >= 0 && int(nr) < len(t) && t[nr] != "" {
		return t[nr]
	}
	return "syscall " + strconv.Itoa(int(nr))
}

// Number of a system call on a machine.
func Number(arch, name string) (nr int32, ok bool) {
	if name == "" {
		return 0, false
	}
	for i, n := range table(arch) {
		if n == name {
			return int32(i), true
		}
	}
	return 0, false
}

// Call is one system call of a machine.
type Call struct {
	Nr   int32
	Name string
	Args []Arg // those that say something, in the order in which to show them
}

// Lookup returns what is known of system call nr; a call that is not known
// has a made-up name and no arguments.
func Lookup(arch string, nr int32) Call {
	n := Name(arch, nr)
	if nr < 0 || nr > maxNr {
		return Call{Nr: nr, Name: n}
	}
	return Call{Nr: nr, Name: n, Args: Args(n)}
}

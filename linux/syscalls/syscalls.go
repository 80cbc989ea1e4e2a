// Package syscalls maps Linux's system calls by number, for amd64 and arm64, to their
// names and to the arguments that describe what the caller waits for. It knows no
// process and reads nothing: package wait reads the memory that arguments point to. All
// functions are pure.
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

// Name returns the name of system call nr on an architecture (as in GOARCH), such as
// "futex", or "syscall 999" if the number is unknown.
func Name(arch string, nr int32) string {
	t := table(arch)
	if nr >= 0 && int(nr) < len(t) && t[nr] != "" {
		return t[nr]
	}
	return "syscall " + strconv.Itoa(int(nr))
}

// Number returns the number of a system call on an architecture.
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

// Call is one system call of an architecture.
type Call struct {
	Nr   int32
	Name string
	Args []Arg // those that describe the wait, in display order
}

// Lookup returns system call nr. An unknown call gets the name of Name and no
// arguments.
func Lookup(arch string, nr int32) Call {
	n := Name(arch, nr)
	if nr < 0 || nr > maxNr {
		return Call{Nr: nr, Name: n}
	}
	return Call{Nr: nr, Name: n, Args: Args(n)}
}

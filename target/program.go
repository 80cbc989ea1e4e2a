package target

import (
	"path"
	"slices"
	"strings"
)

// maxComm is the length to which the kernel cuts a thread's name (TASK_COMM_LEN, less the final
// zero).
const maxComm = 15

// programName returns the name of a process: that of its program. The kernel has only the name of
// the first thread. It starts as the name of the executed file (also a script's, or that of a link),
// and the program may change it: Node 24 sets MainThread. comm is that name, exe the program's file
// and args its command line, which the program may have replaced by a title; "" and nil mean unknown.
func programName(comm, exe string, args []string) string {
	exe = path.Base(strings.TrimSuffix(exe, " (deleted)"))
	is := func(name string) bool {
		return comm != "" && (name == comm || len(comm) == maxComm && strings.HasPrefix(name, comm))
	}
	if exe == "." || exe == "/" {
		return comm
	}
	if is(exe) {
		return exe
	}
	// The file may be the target of a link: Debian's redis-server is redis-check-rdb.
	if len(args) > 0 {
		word, rest, title := strings.Cut(args[0], " ")
		word = strings.TrimPrefix(path.Base(word), "-")
		whole := word
		if title {
			whole += " " + rest
		}
		if comm != "" && len(word) <= maxName && strings.HasPrefix(whole, comm) {
			return strings.TrimSuffix(word, ":")
		}
	}
	// A script's name follows its interpreter's name and options.
	for i, a := range args {
		if i > 0 && strings.HasPrefix(a, "-") {
			continue
		}
		if name := path.Base(a); i > 0 && is(name) {
			return name
		}
		if i > maxOptions {
			break
		}
	}
	return exe
}

// maxOptions is how many words of a command line are searched for a script's name.
const maxOptions = 8

// maxName is the longest name of a file (NAME_MAX).
const maxName = 255

// Comm returns the process's current name: see Facts.
func (p *Process) Comm() (string, error) {
	b, err := p.readShown("comm", 256)
	if err != nil {
		return "", err
	}
	exe, _ := p.Exe()
	args, _ := p.Cmdline()
	return programName(strings.TrimSuffix(string(b), "\n"), exe, args), nil
}

// Renamed reports whether the process has become another program since it was opened, or the same one with other arguments, or
// has given its first thread another name or its command line another text. It costs less than Comm.
func (p *Process) Renamed() bool {
	var buf [64]byte
	b, err := p.readLine("comm", buf[:])
	if err != nil {
		return false
	}
	exe, err := p.Exe()
	if err != nil {
		return false
	}
	if exe != p.facts.Exe || strings.TrimSuffix(string(b), "\n") != p.name {
		return true
	}
	args, err := p.Cmdline()
	return err == nil && len(args) > 0 && !slices.Equal(args, p.facts.Cmdline)
}

package target

import (
	"path"
	"strings"
)

// maxComm is what the kernel keeps of a thread's name (TASK_COMM_LEN, less its end).
const maxComm = 15

// programName is what a process is called: by its program. The kernel knows the name of its
// first thread alone, which begins as that of the file that was executed (a script's too)
// and which a program may change: Node 24 calls it MainThread. comm is it, exe the
// program's file and args its command line, "" and nil where they are not known.
func programName(comm, exe string, args []string) string {
	exe = path.Base(strings.TrimSuffix(exe, " (deleted)"))
	is := func(name string) bool {
		return comm != "" && (name == comm || len(comm) == maxComm && strings.HasPrefix(name, comm))
	}
	if exe == "." || exe == "/" || is(exe) {
		return comm
	}
	// The file may be the target of a link, and a script's name follows its interpreter's
	// name and options.
	for i, a := range args {
		if i > 0 && strings.HasPrefix(a, "-") {
			continue
		}
		if is(strings.TrimPrefix(path.Base(a), "-")) {
			return comm
		}
		if i > maxOptions {
			break
		}
	}
	return exe
}

// maxOptions is how many words of a command line are looked at for a script's name.
const maxOptions = 8

package testprog

import "syscall"

// UntilKilled waits in a program that a test kills. A select without cases does not: where all other goroutines wait as
// well, the runtime ends the process.
func UntilKilled() {
	for {
		_ = syscall.Pause()
	}
}

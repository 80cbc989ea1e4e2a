package target

import "golang.org/x/sys/unix"

// sleepsHere is Sleeps for calls that only this machine has.
func sleepsHere(nr int32) bool {
	return nr == unix.SYS_POLL || nr == unix.SYS_SELECT || nr == unix.SYS_EPOLL_WAIT || nr == unix.SYS_PAUSE
}

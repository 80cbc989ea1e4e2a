package jvm

import "strings"

// HotSpot's own mutexes are objects that consist of a thread, a pthread_mutex_t, a pthread_cond_t
// and a pointer to the mutex's name (src/hotspot/share/runtime/mutex.hpp and os/posix/os_posix.hpp
// of 17, 21 and 25). The sizes, in bytes, are those of glibc and musl on x86-64.
const (
	mutexSize = 40
	condSize  = 48
)

// MutexName returns the name of HotSpot's own mutex whose pthread_mutex_t is at addr, such as
// "Threads_lock". It returns "" for other mutexes and unreadable ones.
func (r *Runtime) MutexName(addr uint64) string { return r.lockName(addr + mutexSize + condSize) }

// CondName is MutexName for the mutex whose pthread_cond_t is at addr.
func (r *Runtime) CondName(addr uint64) string { return r.lockName(addr + condSize) }

func (r *Runtime) lockName(at uint64) string {
	p, err := word(r.mem, at)
	if err != nil || p == 0 {
		return ""
	}
	name, err := cstring(r.mem, p)
	if err != nil || len(name) > maxLockName || !strings.Contains(strings.ToLower(name), "lock") {
		return "" // a mutex of other code, followed by something else
	}
	for _, c := range name {
		if !(c == ' ' || c == '_' || c == '-' || c == '#' || c == '.' || c == ':' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return ""
		}
	}
	return name
}

const maxLockName = 64

package jvm

import "strings"

// HotSpot's own mutexes are objects in which a thread, a pthread_mutex_t, a pthread_cond_t and a
// pointer to the mutex's name follow each other (src/hotspot/share/runtime/mutex.hpp and
// os/posix/os_posix.hpp of 17, 21 and 25); sizes of glibc's and musl's on x86-64, in bytes.
const (
	mutexSize = 40
	condSize  = 48
)

// MutexName names the mutex of HotSpot's own whose pthread_mutex_t is at addr, such as
// "Threads_lock"; "": it is none, or cannot be read.
func (r *Runtime) MutexName(addr uint64) string { return r.lockName(addr + mutexSize + condSize) }

// CondName is the same by its pthread_cond_t.
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

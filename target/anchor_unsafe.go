//go:build !race

package target

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Go's monitor thread (sysmon in runtime/proc.go) sleeps while no goroutine runs. When one comes back from a
// system call then, the monitor looks around every 20 µs for the next millisecond or longer: some 50 wake-ups
// of its own for each one of a sampler. It does so only if all places of the scheduler (its Ps) were free. So
// while samplers wake often, one place is kept busy by a goroutine that sleeps in a system call of which the
// scheduler does not know. The monitor then looks every 10 ms, and ends that sleep by its signal for goroutines
// that run too long. The start of a garbage collection ends it in the same way.

const (
	// anchorWakes is how many waits of samplers within anchorSpan ns begin it, and anchorLeast how many
	// keep it.
	anchorWakes = 16
	anchorLeast = 8
	anchorSpan  = 400_000_000
	// anchorPlaces is the least number of places: with fewer, other goroutines would wait for this one.
	anchorPlaces = 3
)

// anchor counts the waits of all samplers.
var anchor struct {
	waits atomic.Int64
	at    atomic.Int64 // when their number was last a multiple of anchorWakes
	held  atomic.Bool
}

// awake counts a wait that ended.
func awake() {
	if anchor.waits.Add(1)%anchorWakes != 0 {
		return
	}
	now := nanotime()
	if now-anchor.at.Swap(now) < anchorSpan && runtime.GOMAXPROCS(0) >= anchorPlaces && anchor.held.CompareAndSwap(false, true) {
		go keepPlace()
	}
}

// keepPlace keeps a place of the scheduler until samplers wake less often.
func keepPlace() {
	defer anchor.held.Store(false)
	for {
		before := anchor.waits.Load()
		for end := nanotime() + anchorSpan; ; {
			left := end - nanotime()
			if left <= 0 {
				break
			}
			doze(left)
		}
		if anchor.waits.Load()-before < anchorLeast {
			return
		}
	}
}

// doze sleeps for at most ns. A signal ends it.
func doze(ns int64) {
	ts := [2]int64{ns / 1e9, ns % 1e9}
	raw6(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0, 0, 0, 0)
}

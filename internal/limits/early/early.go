// Package early exits a program whose limits are too low with a one-line error, before
// the Go runtime would end it with a stack trace. Only the command imports it, for its
// effect. Its init function comes too late if the runtime itself cannot start: below 745 MiB
// of address space on amd64, at times below 830 MiB, or half a dozen threads. The runtime's
// reservations come before any init function and are not configurable
// (runtime/mpagealloc_64bit.go, sysInit). For the address space there is a check before the
// runtime, in programs that are linked with -ldflags '-E sliver_entry' (go tool link), as
// make and the release do.
package early

import (
	"fmt"
	"os"
	"syscall"

	"github.com/sliverprof/sliver/internal/limits"
)

const (
	// minAddresses is the address space needed, most of which is only reserved.
	minAddresses = 1000 << 20
	// minTasks is the minimum number of threads and processes: those of the runtime, of
	// the samplers, and the processes that make stops.
	minTasks = 16
)

func init() {
	if why := short(); why != "" {
		fmt.Fprintln(os.Stderr, "sliver: "+why)
		os.Exit(1)
	}
}

// short describes the limit that is too low; "": none.
func short() string {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_AS, &l) == nil && l.Cur < minAddresses {
		return fmt.Sprintf("ulimit -v allows %d MB of address space; sliver takes %d MB, most of it only reserved", l.Cur>>20, minAddresses>>20)
	}
	if left, limit := limits.Tasks(); left >= 0 && left < minTasks {
		return fmt.Sprintf("%s, which leaves %d more threads or processes; sliver takes %d at least", limit, left, minTasks)
	}
	return ""
}

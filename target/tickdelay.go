package target

import (
	"encoding/binary"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/perfring"
)

const (
	// delayTries ticks of delayPeriod ns are timed: this program runs for some 2 ms.
	delayTries, delayPeriod = 20, 50_000
	// mostDelay, in ns, is the most that is believed.
	mostDelay = 5_000
)

// TickDelay returns after how many ns a clock's tick takes effect once it is due, in the median: the way of an interrupt. On a
// virtual machine it is 1 to 2 us. It is measured once, at the first call; 0: it could not be.
var TickDelay = sync.OnceValue(func() int64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: delayPeriod,
		Sample_type: unix.PERF_SAMPLE_TIME, Bits: unix.PerfBitDisabled | unix.PerfBitUseClockID, Clockid: unix.CLOCK_MONOTONIC}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	ring, err := perfring.Map(fd, 1)
	if err != nil {
		return 0
	}
	defer ring.Close()
	delays := make([]int64, 0, delayTries)
	for range delayTries {
		if setPeriod(fd, delayPeriod) != nil { // begins a period when the event is enabled
			return 0
		}
		before := monotonic()
		if unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0) != nil {
			return 0
		}
		began := before + (monotonic()-before)/4 // the kernel reads its clock, and then programs the timer, which takes longer
		for monotonic()-began < 2*delayPeriod {
		}
		if unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0) != nil {
			return 0
		}
		first := int64(-1)
		ring.Read(func(b []byte) {
			if len(b) >= 16 && binary.NativeEndian.Uint32(b) == unix.PERF_RECORD_SAMPLE && first < 0 {
				first = int64(binary.NativeEndian.Uint64(b[8:]))
			}
		})
		if late := first - int64(began) - delayPeriod; first >= 0 {
			delays = append(delays, late)
		}
	}
	if len(delays) < delayTries/2 {
		return 0
	}
	slices.Sort(delays)
	return min(max(delays[len(delays)/2], 0), mostDelay)
})

package perffilter

import (
	"errors"
	"math"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/internal/perfring"
	"github.com/sliverprof/sliver/internal/testprog"
)

// TestFilter: only the thread that is kept is copied, at the share of its ticks, and ticks of others are counted.
func TestFilter(t *testing.T) {
	f, err := New()
	if errors.Is(err, unix.EPERM) {
		testprog.Missing(t, "bpf", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	const period = 200_000
	for _, share := range []float64{0, .25, 1} {
		if err := f.Keep(tid, share); err != nil {
			t.Fatal(err)
		}
		before := f.Ticks(tid)
		n := count(t, f, period, 1000*period)
		ticks := float64(f.Ticks(tid) - before)
		if ticks < 500 {
			t.Fatalf("%.0f ticks, want 1,000", ticks)
		}
		// 4.5 standard deviations, and the ticks before the filter was attached
		if d := math.Abs(float64(n) - share*ticks); d > 4.5*math.Sqrt(share*(1-share)*ticks)+3 {
			t.Errorf("%d copies at %.0f ticks, want a share of %v", n, ticks, share)
		}
	}
	f.Forget(tid)
	others := f.Others()
	if n := count(t, f, period, 100*period); n > 3 {
		t.Errorf("%d copies of a thread that is not kept", n)
	}
	if f.Others() <= others {
		t.Error("its ticks were not counted")
	}
	for i := range maxThreads {
		if err := f.Keep(1<<20+i, 1); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := f.Keep(1, 1); !errors.Is(err, ErrFull) {
		t.Errorf("one more than the filter holds: %v", err)
	}
}

// count runs for ns of CPU time under a clock with the filter, and returns how many copies there are.
func count(t *testing.T, f *Filter, period uint64, ns int64) (n int) {
	t.Helper()
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER5, Config: unix.PERF_COUNT_SW_TASK_CLOCK,
		Sample: period, Sample_type: unix.PERF_SAMPLE_TID, Bits: unix.PerfBitDisabled}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer os.NewFile(uintptr(fd), "perf").Close()
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, f.FD()); err != nil {
		t.Fatal(err)
	}
	ring, err := perfring.Map(fd, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		t.Fatal(err)
	}
	for from := cpu(t); cpu(t)-from < ns; {
	}
	ring.Read(func([]byte) { n++ })
	return n
}

func cpu(t *testing.T) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}

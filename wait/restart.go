package wait

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/lock"
	"github.com/sliverprof/sliver/wait/syscalls"
)

// restarts are the numbers of the calls that the kernel goes on with as restart_syscall
// when a signal or a tracer cut them short (-1: the machine has it not), and of
// restart_syscall itself. They are all that return ERESTART_RESTARTBLOCK: kernel/futex/waitwake.c,
// kernel/time/hrtimer.c and posix-timers.c, fs/select.c of 6.12.
type restarts struct {
	self, futex, clockNanosleep, nanosleep, poll int32
}

func restartsOf(arch string) restarts {
	nr := func(name string) int32 {
		if n, ok := syscalls.Number(arch, name); ok {
			return n
		}
		return -1
	}
	return restarts{nr("restart_syscall"), nr("futex"), nr("clock_nanosleep"), nr("nanosleep"), nr("poll")}
}

// lowestPage is below all that a process may map, as sysctl vm.mmap_min_addr is nearly everywhere.
const lowestPage = 4096

// was tells which call the kernel restarted: its arguments are still in the registers, its
// number is not. -1: they fit none of the calls.
func (s *restarts) was(call *stack.Call, mem lock.Memory) int32 {
	a := &call.Args
	read := func(at uint64, n int) []byte {
		b := make([]byte, n)
		if at < lowestPage {
			return nil
		}
		if got, err := mem.ReadAt(b, at); err != nil || got < n {
			return nil
		}
		return b
	}
	// A span is what a struct timespec can hold that somebody sleeps for.
	span := func(at uint64) bool {
		b := read(at, 16)
		return b != nil && int64(binary.LittleEndian.Uint64(b)) >= 0 && binary.LittleEndian.Uint64(b[8:]) < 1e9
	}
	// Without a limit futex is restarted whole, with its own number.
	if f, ok := lock.ParseRestarted(a); ok && span(f.Timeout) && f.Word%4 == 0 {
		// A number of descriptors can look like an operation; their list does not hold the
		// limit in milliseconds as its first descriptor.
		if w := read(f.Word, 4); w != nil && (f.Private || binary.LittleEndian.Uint32(w) == f.Val) {
			return s.futex
		}
	}
	switch {
	case isClock(a[0]) && a[1] == 0 && span(a[2]): // until a time of the clock it is restarted whole
		return s.clockNanosleep
	case (a[1] == 0 || a[1] >= lowestPage) && span(a[0]):
		return s.nanosleep
	case a[1] == 0, a[1] < maxPolled && read(a[0], 8) != nil && read(a[0]+8*(a[1]-1), 8) != nil:
		return s.poll
	}
	return -1
}

// maxPolled is how many descriptors a poll is believed to be of.
const maxPolled = 1 << 16

// isClock reports whether v can be a clockid_t: a fixed clock, or a negative number, which is
// the clock of a process or thread.
func isClock(v uint64) bool { return v < 16 || int32(v) < 0 && (v>>32 == 0 || v>>32 == 1<<32-1) }

package wait

import (
	"encoding/binary"

	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/lock"
)

// restarts holds the numbers of the calls that the kernel continues as restart_syscall after a
// signal or a tracer interrupted them (-1: not on this architecture), and of restart_syscall
// itself. No other calls return ERESTART_RESTARTBLOCK: kernel/futex/waitwake.c,
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

// lowestPage is the lowest address that a process may map: nearly every system sets
// sysctl vm.mmap_min_addr to it or above.
const lowestPage = 4096

// was returns the call that the kernel restarted: the registers still hold its
// arguments, but not its number. -1: the arguments match none of the calls.
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
	// A span is a struct timespec with the duration of a plausible sleep.
	span := func(at uint64) bool {
		b := read(at, 16)
		return b != nil && int64(binary.LittleEndian.Uint64(b)) >= 0 && binary.LittleEndian.Uint64(b[8:]) < 1e9
	}
	// Without a timeout the kernel restarts futex as a whole, with its own number.
	if f, ok := lock.ParseRestarted(a); ok && span(f.Timeout) && f.Word%4 == 0 {
		// A poll's number of descriptors can look like a futex operation. But its first descriptor
		// does not equal its timeout in milliseconds, as the word and value of a futex do.
		if w := read(f.Word, 4); w != nil && (f.Private || binary.LittleEndian.Uint32(w) == f.Val) {
			return s.futex
		}
	}
	switch {
	case isClock(a[0]) && a[1] == 0 && span(a[2]): // with an absolute time the kernel restarts it as a whole
		return s.clockNanosleep
	case (a[1] == 0 || a[1] >= lowestPage) && span(a[0]):
		return s.nanosleep
	case a[1] == 0, a[1] < maxPolled && read(a[0], 8) != nil && read(a[0]+8*(a[1]-1), 8) != nil:
		return s.poll
	}
	return -1
}

// maxPolled bounds the plausible number of descriptors of a poll.
const maxPolled = 1 << 16

// isClock reports whether v can be a clockid_t: a fixed clock, or a negative number, which is
// the clock of a process or thread.
func isClock(v uint64) bool { return v < 16 || int32(v) < 0 && (v>>32 == 0 || v>>32 == 1<<32-1) }

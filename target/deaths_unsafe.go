package target

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// perfRing is a buffer that the kernel writes records into (perf_event_open(2), MMAP layout).
type perfRing struct {
	fd  int
	mem []byte // a control page, then the records
}

// Offsets in that page (linux/perf_event.h, struct perf_event_mmap_page).
const (
	perfHead = 1024
	perfTail = 1032
)

// read passes each new record to f and makes room for more.
func (r *perfRing) read(f func(record []byte)) {
	data := r.mem[os.Getpagesize():]
	size := uint64(len(data)) // a power of two
	head := atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.mem[perfHead])))
	tail := (*uint64)(unsafe.Pointer(&r.mem[perfTail]))
	at := atomic.LoadUint64(tail)
	var whole []byte
	for at < head && head-at <= size {
		n := uint64(binary.NativeEndian.Uint16(data[(at+6)%size:])) // records begin at multiples of eight
		if n < 8 || n > head-at {
			break
		}
		from := at % size
		whole = append(whole[:0], data[from:min(from+n, size)]...)
		whole = append(whole, data[:n-uint64(len(whole))]...)
		f(whole)
		at += n
	}
	atomic.StoreUint64(tail, head)
}

func (r *perfRing) close() {
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
	}
	unix.Close(r.fd)
}

// setFilter limits an event to records whose fields satisfy a condition.
func setFilter(fd int, condition string) error {
	b, err := unix.BytePtrFromString(condition)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER, uintptr(unsafe.Pointer(b))); errno != 0 {
		return errno
	}
	return nil
}

// Package perfring reads the buffers that the kernel writes perf events into (perf_event_open(2),
// MMAP layout). It does not interpret the records. A Ring is for one goroutine.
package perfring

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ring is the buffer of a perf event, and of those whose output goes there too.
type Ring struct {
	mem   []byte // a page of the kernel's account, then the records
	whole []byte // a record that the buffer's end cuts in two
}

// Places in the first page (linux/perf_event.h, struct perf_event_mmap_page).
const (
	headAt = 1024
	tailAt = 1032
)

// Map maps the buffer of the event fd. pages is its size without the first page, a power of two.
func Map(fd, pages int) (*Ring, error) {
	mem, err := unix.Mmap(fd, 0, (1+pages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a buffer of %d pages: %w", pages, err)
	}
	return &Ring{mem: mem}, nil
}

// Read calls f with each new record and then frees its space. A record is memory of the kernel's
// buffer, valid until f returns.
func (r *Ring) Read(f func(record []byte)) {
	data := r.mem[os.Getpagesize():]
	size := uint64(len(data)) // a power of two
	head := atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.mem[headAt])))
	tail := (*uint64)(unsafe.Pointer(&r.mem[tailAt]))
	at := atomic.LoadUint64(tail)
	for at < head && head-at <= size {
		n := uint64(binary.NativeEndian.Uint16(data[(at+6)%size:])) // records begin at multiples of eight
		if n < 8 || n > head-at {
			break
		}
		from := at % size
		if from+n <= size {
			f(data[from : from+n : from+n])
		} else {
			r.whole = append(r.whole[:0], data[from:]...)
			r.whole = append(r.whole, data[:n-uint64(len(r.whole))]...)
			f(r.whole)
		}
		at += n
	}
	atomic.StoreUint64(tail, head)
}

// Close unmaps the buffer; the event stays open.
func (r *Ring) Close() error { return unix.Munmap(r.mem) }

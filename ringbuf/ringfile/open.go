package ringfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sliverprof/sliver/ringbuf"
)

// Image is the content of a ring file. It reads the file on demand, and may be used concurrently.
type Image struct {
	PID     int       // of the program that wrote it, in its own PID namespace
	Started time.Time // start of that program
	Log     []byte
	Rings   []Left
	// Problems lists damage that was skipped, one line each.
	Problems []string

	r io.ReaderAt
}

// Left is a ring as its writer left it.
type Left struct {
	ID     uint64
	Lost   uint64        // events of the thread that were overwritten before
	Tail   ringbuf.Event // {0, 0}: none
	off    int64
	cap    uint64
	from   uint64
	to     uint64
	events int
}

// ErrForeign reports that a file was not written as a ring file.
var ErrForeign = errors.New("not a ring file of sliver")

// maxLog bounds the bytes read from a log.
const maxLog = 1 << 30

// Open finds the rings in r.
func Open(r io.ReaderAt, size int64) (*Image, error) {
	head := make([]byte, headBytes)
	if size < headBytes {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrForeign, size)
	}
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("read the ring file's head: %w", err)
	}
	word := func(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if word(head, headMagic) != magic {
		return nil, ErrForeign
	}
	if v := word(head, headVersion); v != version {
		return nil, fmt.Errorf("ring file of version %d, this program reads %d", v, version)
	}
	slots := word(head, headSlots)
	if word(head, headTable) != headBytes || slots > maxSlots || int64(headBytes+slots*slotBytes) > size {
		return nil, fmt.Errorf("ring file: offset 16: its table of %d slots does not fit", slots)
	}
	im := &Image{PID: int(word(head, headPID) & (1<<31 - 1)), Started: time.Unix(0, int64(word(head, headStarted)&(1<<63-1))), r: r}
	logs := head[logsAt:]
	l := logs[int(word(logs, logCurrent)&1)*logWords*8:]
	off, length := word(l, logOff), word(l, logLen)
	if off > uint64(size) || length > uint64(size)-off || length > maxLog {
		im.problem("offset %d: a log of %d bytes at %d does not fit", logsAt, length, off)
	} else {
		im.Log = make([]byte, length)
		if _, err := r.ReadAt(im.Log, int64(off)); err != nil && length > 0 {
			return nil, fmt.Errorf("read the ring file's log at %d: %w", off, err)
		}
	}
	table := make([]byte, slots*slotBytes)
	if _, err := r.ReadAt(table, headBytes); err != nil && len(table) > 0 {
		return nil, fmt.Errorf("read the ring file's table: %w", err)
	}
	byID := map[uint64]int{}
	for i := range int(slots) {
		s := table[i*slotBytes : (i+1)*slotBytes]
		if word(s, slotState) == 0 {
			continue
		}
		x, err := leftOf(func(i int) uint64 { return word(s, i) }, size)
		if err != nil {
			im.problem("slot %d at offset %d: %v", i, headBytes+i*slotBytes, err)
			continue
		}
		// A ring that was just moved exists twice: use the new one if it has progressed as far or
		// further.
		if j, ok := byID[x.ID]; ok {
			if x.to > im.Rings[j].to || x.to == im.Rings[j].to && x.events > im.Rings[j].events {
				im.Rings[j] = x
			}
			continue
		}
		byID[x.ID] = len(im.Rings)
		im.Rings = append(im.Rings, x)
	}
	return im, nil
}

const maxProblems = 20

func (im *Image) problem(format string, args ...any) {
	if len(im.Problems) < maxProblems {
		im.Problems = append(im.Problems, fmt.Sprintf(format, args...))
	}
}

func leftOf(word func(int) uint64, size int64) (x Left, err error) {
	off, n := word(slotOff), word(slotCap)
	if n < ringbuf.MinCap || n&(n-1) != 0 || n > uint64(size)/eventBytes || off > uint64(size) || n*eventBytes > uint64(size)-off {
		return x, fmt.Errorf("a ring of %d events at %d does not fit", n, off)
	}
	start, head := word(slotStart), word(slotHead)
	if start > head {
		return x, fmt.Errorf("its first event has number %d, its last %d", start, head)
	}
	x = Left{ID: word(slotID), off: int64(off), cap: n}
	x.from, x.to = ringbuf.Span(int(n), start, head)
	x.events, x.Lost = int(x.to-x.from), x.from
	t := slotTails + 2*int(word(slotTail)&1)
	x.Tail = ringbuf.Event{word(t), word(t + 1)}
	return x, nil
}

// Events returns the events of ring i, oldest first.
func (im *Image) Events(i int) ([]ringbuf.Event, error) {
	x := &im.Rings[i]
	out := make([]ringbuf.Event, 0, x.events)
	var buf [4096]byte
	for at := x.from; at < x.to; {
		slot := at & (x.cap - 1)
		n := min(x.to-at, x.cap-slot, uint64(len(buf)/eventBytes))
		off := x.off + int64(slot*eventBytes)
		if _, err := im.r.ReadAt(buf[:n*eventBytes], off); err != nil {
			return out, fmt.Errorf("ring file: offset %d: %w", off, err)
		}
		for k := range n {
			out = append(out, ringbuf.Event{binary.LittleEndian.Uint64(buf[k*eventBytes:]), binary.LittleEndian.Uint64(buf[k*eventBytes+8:])})
		}
		at += n
	}
	return out, nil
}

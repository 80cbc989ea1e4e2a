// Package ringfile allocates the memory of rings: one mapping, of a file or anonymous, that is
// divided into blocks. A file keeps its content when the program dies at any instruction, and
// Open finds it again: the published part of the rings, and a log of notes. The package does not
// interpret events and notes.
//
// The file, in 64-bit words of the machine (little-endian on both), offsets in bytes:
//
//	0      magic, version, table offset, slots, arena offset, arena bytes, PID of the writer, its start (ns since 1970)
//	512    two logs of three words {offset, capacity, length}, and the number (0 or 1) of the valid one
//	4096   table: one slot of 128 bytes for each ring
//	…      arena: blocks of a power of two bytes
//
// A slot is {state, id, offset of its block, capacity in events, number of the first event,
// number published, number of the valid tail, 0, tail 0, tail 1, …}. Each change is ordered so
// that the file is valid between any two stores: content first, then the word that makes it
// valid. A tail is one event that is not in the ring yet; the writer may replace it any number of
// times.
//
// Memory may be used concurrently; a Block's writing methods belong to one goroutine.
package ringfile

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/ringbuf"
)

const (
	magic      = 0x0a474e5252565389 // "\x89SVRRNG\n" as the file's first bytes
	version    = 1
	headBytes  = 4096
	logsAt     = 512
	slotBytes  = 128
	eventBytes = 16

	// maxSlots bounds how many rings there can be at once.
	maxSlots = 1 << 15
	// minBlock holds 512 events: two minutes of a sleeping thread.
	minOrder = 13
	minBlock = 1 << minOrder

	// MinSize and MaxSize bound the arena, in bytes.
	MinSize = 1 << 20
	MaxSize = 64 << 30
)

// Words of the head and of a slot.
const (
	headMagic = iota
	headVersion
	headTable
	headSlots
	headArena
	headArenaLen
	headPID
	headStarted
)

const (
	slotState = iota // 0 free, 1 in use
	slotID
	slotOff
	slotCap
	slotStart
	slotHead
	slotTail // 0 or 1
	_
	slotTails // four words
)

const (
	logOff = iota
	logCap
	logLen
	logWords
	logCurrent = 2 * logWords
)

// ErrFull reports that the arena has no room for the request.
var ErrFull = errors.New("the memory for rings is used up")

// Memory is a mapping that contains rings.
type Memory struct {
	b    []byte
	file *os.File // nil: anonymous memory
	path string
	end  int64 // of the mapping

	mu    sync.Mutex
	space buddies
	slots []int // free ones, the lowest last
	ready int   // number of slots whose pages are allocated
	arena int64
	logs  [2]extent
	log   int // the valid one
}

// extent is a block of the arena; size 0: none.
type extent struct{ off, size int64 }

// New returns a Memory of size bytes without a file.
func New(size int64) (*Memory, error) {
	total, arena, err := layout(size)
	if err != nil {
		return nil, err
	}
	b, err := syscall.Mmap(-1, 0, int(total), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for rings: %w", total, err)
	}
	return prepare(&Memory{b: b, arena: arena, end: total})
}

// Create returns a Memory of size bytes in a new file. The file has its full length from the
// start, but uses disk space only as rings need it. Until the Memory is closed, or this program
// ends, the file cannot be claimed. The error wraps fs.ErrExist if the file exists.
func Create(path string, size int64) (*Memory, error) {
	total, arena, err := layout(size)
	if err != nil {
		return nil, err
	}
	f, err := create(path)
	if err != nil {
		return nil, err
	}
	fail := func(what string, err error) (*Memory, error) {
		os.Remove(path) // while this program holds its lock
		f.Close()
		return nil, fmt.Errorf("%s ring file %s: %w", what, path, err)
	}
	if err := f.Truncate(total); err != nil {
		return fail("size", err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(total), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fail("map", err)
	}
	m := &Memory{b: b, file: f, path: path, arena: arena, end: total}
	if err := m.back(0, headBytes); err != nil {
		syscall.Munmap(b)
		return fail("write", err)
	}
	return prepare(m)
}

func layout(size int64) (total, arena int64, err error) {
	if size < MinSize || size > MaxSize {
		return 0, 0, fmt.Errorf("%d bytes for rings is out of range; use %d to %d", size, int64(MinSize), int64(MaxSize))
	}
	size &^= minBlock - 1
	arena = headBytes + maxSlots*slotBytes
	return arena + size, arena, nil
}

func prepare(m *Memory) (*Memory, error) {
	m.space.add(m.arena, m.end-m.arena)
	for i := maxSlots - 1; i >= 0; i-- {
		m.slots = append(m.slots, i)
	}
	h := m.words(0, headStarted+1)
	for i, v := range []uint64{headVersion: version, headTable: headBytes, headSlots: maxSlots, headArena: uint64(m.arena),
		headArenaLen: uint64(m.end - m.arena), headPID: uint64(os.Getpid()), headStarted: uint64(time.Now().UnixNano())} {
		h[i].Store(v)
	}
	h[headMagic].Store(magic)
	return m, nil
}

// Path returns the path of the file; "" without one.
func (m *Memory) Path() string { return m.path }

// Used returns how many bytes of the arena are in blocks, and the arena's size.
func (m *Memory) Used() (used, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size = m.end - m.arena
	return size - m.space.left, size
}

// Close frees the memory; its rings must not be used any more. remove says whether to remove the
// file too.
func (m *Memory) Close(remove bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.b == nil {
		return nil
	}
	err := syscall.Munmap(m.b)
	m.b = nil
	if m.file != nil {
		if remove { // before others can claim it
			if e := os.Remove(m.path); err == nil {
				err = e
			}
		}
		if e := m.file.Close(); err == nil {
			err = e
		}
	}
	return err
}

// back allocates the pages: a store into a mapped file for which the disk has no room would kill
// the program.
func (m *Memory) back(off, size int64) error {
	if m.file == nil {
		return nil
	}
	err := syscall.Fallocate(int(m.file.Fd()), 0, off, size)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		_, err = m.file.WriteAt(make([]byte, size), off)
	}
	return err
}

// Flags of fallocate(2), linux/falloc.h.
const (
	fallocKeepSize  = 1
	fallocPunchHole = 2
)

// release returns the pages to the system. If it cannot, they remain allocated.
func (m *Memory) release(off, size int64) {
	if m.file == nil {
		_ = syscall.Madvise(m.b[off:off+size], syscall.MADV_DONTNEED)
		return
	}
	_ = syscall.Fallocate(int(m.file.Fd()), fallocPunchHole|fallocKeepSize, off, size)
}

// alloc takes a block of at least size bytes and allocates its pages. The caller holds m.mu.
func (m *Memory) alloc(size int64) (extent, error) {
	off, got, ok := m.space.take(size)
	if !ok {
		return extent{}, ErrFull
	}
	if err := m.back(off, got); err != nil {
		m.space.give(off, got)
		return extent{}, fmt.Errorf("%w: %w", ErrFull, err)
	}
	return extent{off, got}, nil
}

func (m *Memory) free(x extent) {
	if x.size > 0 {
		m.release(x.off, x.size)
		m.space.give(x.off, x.size)
	}
}

// Block is a ring and its place.
type Block struct {
	Ring *ringbuf.Ring

	slot  int
	place extent
	w     []atomic.Uint64 // the slot
}

// MinRing is the capacity of the smallest ring, in events.
const MinRing = minBlock / eventBytes

// Ring allocates a block for at least capacity events. Open finds it by id, once Publish was
// called. It returns ErrFull without enough room.
func (m *Memory) Ring(id uint64, capacity int) (*Block, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.b == nil || len(m.slots) == 0 || capacity > MaxSize/eventBytes {
		return nil, ErrFull
	}
	place, err := m.alloc(int64(max(capacity, MinRing)) * eventBytes)
	if err != nil {
		return nil, err
	}
	slot := m.slots[len(m.slots)-1]
	for slot >= m.ready {
		if err := m.back(headBytes+int64(m.ready)*slotBytes, 4096); err != nil {
			m.free(place)
			return nil, fmt.Errorf("%w: %w", ErrFull, err)
		}
		m.ready += 4096 / slotBytes
	}
	m.slots = m.slots[:len(m.slots)-1]
	w := m.words(headBytes+int64(slot)*slotBytes, slotBytes/8)
	for i := range w {
		w[i].Store(0)
	}
	n := place.size / eventBytes
	w[slotID].Store(id)
	w[slotOff].Store(uint64(place.off))
	w[slotCap].Store(uint64(n))
	return &Block{Ring: ringbuf.Over(m.words(place.off, int(2*n)), &w[slotHead]), slot: slot, place: place, w: w}, nil
}

// Publish makes the block valid for Open. If events were moved into its ring, call it after the
// move.
func (b *Block) Publish() {
	b.w[slotStart].Store(b.Ring.Start())
	b.w[slotState].Store(1)
}

// SetTail replaces the event after the ring's last.
func (b *Block) SetTail(e ringbuf.Event) {
	i := 1 - b.w[slotTail].Load()&1
	b.w[slotTails+2*i].Store(e[0])
	b.w[slotTails+2*i+1].Store(e[1])
	b.w[slotTail].Store(i)
}

// Tail may be called from any goroutine. ok is false if the tail changed during the call.
func (b *Block) Tail() (e ringbuf.Event, ok bool) {
	i := b.w[slotTail].Load() & 1
	e = ringbuf.Event{b.w[slotTails+2*i].Load(), b.w[slotTails+2*i+1].Load()}
	return e, b.w[slotTail].Load()&1 == i && e[0] != 0
}

// Free frees a block. Its ring must not be used any more.
func (m *Memory) Free(b *Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.b == nil {
		return
	}
	b.w[slotState].Store(0)
	m.free(b.place)
	m.slots = append(m.slots, b.slot)
}

// minLog is the smallest capacity of the log.
const minLog = 128 << 10

// SetLog replaces the log by b, and reserves the same room again after it.
func (m *Memory) SetLog(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.b == nil {
		return ErrFull
	}
	place, err := m.alloc(max(2*int64(len(b)), minLog))
	if err != nil {
		return err
	}
	copy(m.b[place.off:], b)
	w := m.words(logsAt, logCurrent+1)
	next := 1 - m.log
	l := w[next*logWords:]
	l[logOff].Store(uint64(place.off))
	l[logCap].Store(uint64(place.size))
	l[logLen].Store(uint64(len(b)))
	w[logCurrent].Store(uint64(next))
	old := m.logs[m.log]
	m.logs[next], m.log = place, next
	w[(1-next)*logWords+logCap].Store(0)
	m.free(old)
	m.logs[1-next] = extent{}
	return nil
}

// AppendLog adds b to the log. After ErrFull, SetLog is due.
func (m *Memory) AppendLog(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.logs[m.log]
	if m.b == nil || x.size == 0 {
		return ErrFull
	}
	l := m.words(logsAt+int64(m.log)*logWords*8, logWords)
	n := int64(l[logLen].Load())
	if n+int64(len(b)) > x.size {
		return ErrFull
	}
	copy(m.b[x.off+n:], b)
	l[logLen].Store(uint64(n + int64(len(b))))
	return nil
}

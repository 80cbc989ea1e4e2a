package ruby

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

const (
	maxRactors = 4096
	maxThreads = 1 << 16
	maxPointer = 1<<56 - 1
	minPointer = 1 << 12
)

// Runtime is the interpreter of one process.
type Runtime struct {
	img     *Image
	bias    uint64
	vm      uint64
	symbols uint64 // table of method names; 0: not found
	l       *layout

	eval atomic.Uint64 // see Eval
}

// New returns the Runtime of an interpreter that is mapped with the given bias. It fails if the
// interpreter is not initialized yet, or if its data do not have the known structures.
func New(img *Image, bias uint64, mem io.ReaderAt) (*Runtime, error) {
	r := &Runtime{img: img, bias: bias}
	if err := r.seekVM(mem); err != nil {
		return nil, fmt.Errorf("CRuby %s: %w", img.Version, err)
	}
	if !r.seekSymbols(mem) {
		return nil, fmt.Errorf("CRuby %s: no table of method names yet", img.Version)
	}
	return r, nil
}

// State is the interpreter's state of one thread.
type State struct {
	Addr   uint64 // of the rb_thread_t
	Ractor uint64 // of its rb_ractor_t
	TID    int32  // as the process itself sees it; 0: no thread of the system runs it now
	native uint64 // address of the rb_native_thread that runs it (not in 3.1)
}

var errAstray = errors.New("a list of the interpreter leads astray")

// Threads lists the threads of all Ractors without a stop. A thread that begins or ends during the
// read may be missing. It fails if the lists are inconsistent.
func (r *Runtime) Threads(mem io.ReaderAt) ([]State, error) {
	var all []State
	err := chain(mem, r.vm+vmRactors, maxRactors, func(node uint64) error {
		ractor := node - r.l.ractorNode
		return chain(mem, ractor+r.l.ractorThreads, maxThreads-len(all), func(node uint64) error {
			s, err := r.state(mem, node-threadNode)
			if err == nil && s.Ractor != ractor {
				err = errAstray
			}
			if err == nil {
				all = append(all, s)
			}
			return err
		})
	})
	return all, err
}

// state reads the State of the rb_thread_t at addr.
func (r *Runtime) state(mem io.ReaderAt, addr uint64) (State, error) {
	var b [threadHead]byte
	if !pointer(addr) {
		return State{}, errAstray
	}
	if err := read(mem, b[:], addr); err != nil {
		return State{}, err
	}
	if le(b[:], threadVM) != r.vm {
		return State{}, errAstray
	}
	s := State{Addr: addr, Ractor: le(b[:], threadRactor), TID: r.tid(mem, addr, b[:])}
	if r.l.threadNT != none {
		s.native = le(b[:], r.l.threadNT)
	}
	return s, nil
}

// maxTID is the kernel's PID_MAX_LIMIT.
const maxTID = 1 << 22

// tid returns the TID of the thread at addr with the head b; 0: none.
func (r *Runtime) tid(mem io.ReaderAt, addr uint64, b []byte) int32 {
	at := addr + r.l.threadTID
	if r.l.threadTID == none {
		nt := le(b, r.l.threadNT)
		if !pointer(nt) {
			return 0
		}
		at = nt + r.l.ntTID
	}
	var tid [4]byte
	if read(mem, tid[:], at) != nil {
		return 0
	}
	if n := binary.LittleEndian.Uint32(tid[:]); n <= maxTID {
		return int32(n)
	}
	return 0
}

// chain calls each with the nodes of a circular list (struct ccan_list_head) of at most limit.
func chain(mem io.ReaderAt, head uint64, limit int, each func(node uint64) error) error {
	node, err := word(mem, head)
	for n := 0; err == nil && node != head; n++ {
		if n >= limit || !pointer(node) {
			return errAstray
		}
		if err = each(node); err == nil {
			node, err = word(mem, node)
		}
	}
	return err
}

// Lock is the state of a global VM lock at one moment. Each Ractor has one.
type Lock struct {
	Addr    uint64 // of the lock's structure
	Running uint64 // address of the State of its holder; 0: it is free
}

// LockOf returns the lock of a Ractor (see State).
func (r *Runtime) LockOf(mem io.ReaderAt, ractor uint64) (Lock, error) {
	running, err := word(mem, ractor+r.l.running)
	if err != nil {
		return Lock{}, fmt.Errorf("read the global VM lock: %w", err)
	}
	return Lock{ractor + r.l.lock, running}, nil
}

// Holder returns the TID of the thread that holds l; 0 if there is none, or if the lock changed hands
// during the read.
func (r *Runtime) Holder(mem io.ReaderAt, ractor uint64, l Lock) int32 {
	if l.Running == 0 {
		return 0
	}
	s, err := r.state(mem, l.Running)
	if again, e := r.LockOf(mem, ractor); err != nil || e != nil || again != l || s.Ractor != ractor {
		return 0
	}
	return s.TID
}

// condSize is the size of a pthread_cond_t.
const condSize = 48

// Waits reports whether the thread s, which sleeps on the word at futex, waits for its Ractor's lock:
// it is in the lock's queue and sleeps on its own condition, or it sleeps in the lock itself. A thread
// that sleeps for another reason may use the same condition.
func (r *Runtime) Waits(mem io.ReaderAt, s State, futex uint64) bool {
	if at := s.Ractor + r.l.lock; futex >= at && futex < s.Ractor+r.l.lockEnd {
		return true
	}
	cond := s.Addr + r.l.cond
	if r.l.threadNT != none {
		nt, err := word(mem, s.Addr+r.l.threadNT)
		if err != nil || !pointer(nt) {
			return false
		}
		cond = nt + r.l.cond
	}
	if futex < cond || futex >= cond+condSize {
		return false
	}
	queued := false
	own := s.Addr + r.l.threadReady
	if err := chain(mem, s.Ractor+r.l.readyq, maxThreads, func(node uint64) error {
		if queued = node == own; queued {
			return io.EOF // found
		}
		return nil
	}); err != nil && !queued {
		return false
	}
	return queued
}

func le(b []byte, off uint64) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

// pointer reports whether p may be the address of an object.
func pointer(p uint64) bool { return p&7 == 0 && p >= minPointer && p <= maxPointer }

// read fills b from addr, or fails.
func read(mem io.ReaderAt, b []byte, addr uint64) error {
	if addr > maxPointer || addr < minPointer {
		return fmt.Errorf("read the interpreter's data: invalid address %#x", addr)
	}
	if n, err := mem.ReadAt(b, int64(addr)); n < len(b) {
		return fmt.Errorf("read the interpreter's data: %d of %d bytes at %#x: %w", n, len(b), addr, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return nil
}

func word(mem io.ReaderAt, addr uint64) (uint64, error) {
	var b [8]byte
	err := read(mem, b[:], addr)
	return binary.LittleEndian.Uint64(b[:]), err
}

package python

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	maxInterpreters = 256
	maxThreads      = 1 << 16
	maxPointer      = 1<<56 - 1
)

// Runtime is the interpreter of one process.
type Runtime struct {
	img   *Image
	bias  uint64
	types types
	l     layout
}

// New makes one for an interpreter that is mapped bias above its file's own
// addresses, and proves it: the lists of interpreters and threads must be
// closed in themselves. An error says what does not fit; the interpreter may
// just be starting.
func New(img *Image, bias uint64, mem io.ReaderAt) (*Runtime, error) {
	r := &Runtime{img: img, bias: bias, types: img.types}
	for _, t := range [...]*uint64{&r.types.code, &r.types.unicode, &r.types.bytes, &r.types.dict} {
		if *t != 0 {
			*t += bias
		}
	}
	var known bool
	if r.l, known = layouts[img.Minor]; !known {
		b := make([]byte, selfSize)
		if err := read(mem, b, r.addr(img.runtime)); err != nil {
			return nil, err
		}
		l, err := described(b)
		if err != nil {
			return nil, fmt.Errorf("CPython %s: %w", img.Version, err)
		}
		r.l = *l
	}
	states, err := r.Threads(mem)
	if err != nil {
		return nil, fmt.Errorf("CPython %s: %w", img.Version, err)
	}
	if len(states) == 0 {
		return nil, fmt.Errorf("CPython %s: no thread yet", img.Version)
	}
	return r, nil
}

// Version is the interpreter's.
func (r *Runtime) Version() string { return r.img.Version }

// Eval is the address of the function that runs Python code; 0: unknown.
func (r *Runtime) Eval() uint64 {
	if r.img.eval == 0 {
		return 0
	}
	return r.addr(r.img.eval)
}

// IsCodeType reads the type of a code object into b, for a caller that knows of
// one at addr: b is wanted from its type on. ok is false where it is not.
func (r *Runtime) IsCodeType(b []byte, addr, code uint64) (ok bool) {
	if len(b) != 8 || addr != code+obType {
		return false
	}
	binary.LittleEndian.PutUint64(b, r.types.code)
	return true
}

// Anchored reports whether Frames of this version say where on the C stack
// their evaluation is; else Merge must be told which C frames evaluate.
func (r *Runtime) Anchored() bool { return r.img.Minor >= 10 }

func (r *Runtime) addr(vaddr uint64) uint64 { return vaddr + r.bias }

// State is the interpreter's account of one thread.
type State struct {
	Addr   uint64 // of the PyThreadState
	Interp uint64 // of its PyInterpreterState
	Ident  uint64 // threading.get_ident()
	Native int32  // TID as the process itself sees it; 0: the version does not note it
}

// Threads lists the threads that the interpreter knows, without a stop: one
// that begins or ends meanwhile may be missed. It fails where the lists lead
// astray.
func (r *Runtime) Threads(mem io.ReaderAt) ([]State, error) {
	var states []State
	interp, err := word(mem, r.addr(r.img.runtime)+r.l.interpreters)
	for n := 0; err == nil && interp != 0; n++ {
		if n == maxInterpreters {
			return states, fmt.Errorf("more than %d interpreters", maxInterpreters)
		}
		if states, err = r.threadsOf(mem, interp, states); err == nil {
			interp, err = word(mem, interp+r.l.interpNext)
		}
	}
	return states, err
}

var errAstray = errors.New("the interpreter's list of threads leads astray")

func (r *Runtime) threadsOf(mem io.ReaderAt, interp uint64, states []State) ([]State, error) {
	at, err := word(mem, interp+r.l.interpThreads)
	if err != nil {
		return states, err
	}
	b := make([]byte, min(r.l.tsSize, maxThreadState))
	for ; at != 0; at = le(b, r.l.tsNext) {
		if len(states) == maxThreads || at&7 != 0 {
			return states, errAstray
		}
		if err := read(mem, b, at); err != nil {
			return states, err
		}
		if le(b, r.l.tsInterp) != interp {
			return states, errAstray
		}
		s := State{Addr: at, Interp: interp, Ident: le(b, r.l.tsThread)}
		if r.l.tsNative != none {
			s.Native = int32(le(b, r.l.tsNative))
		} else {
			s.Native = tidOf(mem, s.Ident)
		}
		states = append(states, s)
	}
	return states, nil
}

// Where the C library notes a thread's number in what pthread_self points to:
// glibc's struct pthread on amd64 (0x2d0) and arm64 (0xd0) in nptl/descr.h,
// 2.17 … 2.42; musl's in src/internal/pthread_impl.h is below.
var tidOffsets = [...]uint64{0x2d0, 0xd0}

const (
	maxTID  = 1 << 22 // the kernel's PID_MAX_LIMIT
	selfPtr = 0x10    // tcbhead_t.self, amd64
)

// Forked finds the State of the thread tid whose account has another thread's number: that of
// the parent, in a process that was forked without telling the interpreter
// (PyOS_AfterFork_Child), as uWSGI does. What the C library notes is right.
func (r *Runtime) Forked(mem io.ReaderAt, states []State, tid int32) (State, bool) {
	for _, s := range states {
		if s.Native != tid && tidOf(mem, s.Ident) == tid {
			return s, true
		}
	}
	return State{}, false
}

// tidOf is the number of the thread whose pthread_self is ident; 0: unknown.
func tidOf(mem io.ReaderAt, ident uint64) int32 {
	if self, err := word(mem, ident+selfPtr); ident&7 != 0 || err != nil {
		return 0
	} else if self == ident {
		return tidAt(mem, ident+tidOffsets[0])
	}
	return tidAt(mem, ident+tidOffsets[1])
}

func tidAt(mem io.ReaderAt, addr uint64) int32 {
	var b [4]byte
	if read(mem, b[:], addr) != nil {
		return 0
	}
	if n := binary.LittleEndian.Uint32(b[:]); n > 0 && n <= maxTID {
		return int32(n)
	}
	return 0
}

// GIL is a global interpreter lock at one moment.
type GIL struct {
	Addr   uint64 // what waits for it sleeps on a word in [Addr, End)
	End    uint64
	Locked bool
	Holder uint64 // address of the State of who holds it or had it last; 0: nobody yet
}

// Interpreters lists them by address: see State.Interp.
func (r *Runtime) Interpreters(mem io.ReaderAt) (all []uint64, err error) {
	interp, err := word(mem, r.addr(r.img.runtime)+r.l.interpreters)
	for err == nil && interp != 0 && len(all) < maxInterpreters {
		all = append(all, interp)
		interp, err = word(mem, interp+r.l.interpNext)
	}
	return all, err
}

// Owner is who holds g, by State.Native, while it is locked; 0: nobody, or it
// changed hands while it was read. interp is that of the lock.
func (r *Runtime) Owner(mem io.ReaderAt, interp uint64, g *GIL) (tid int32) {
	if !g.Locked || g.Holder&7 != 0 {
		return 0
	}
	b := make([]byte, min(r.l.tsSize, maxThreadState))
	if read(mem, b, g.Holder) != nil {
		return 0
	}
	if r.l.tsNative != none {
		tid = int32(le(b, r.l.tsNative))
	} else {
		tid = tidOf(mem, le(b, r.l.tsThread))
	}
	if again, err := r.GIL(mem, interp); err != nil || again != *g {
		return 0
	}
	return tid
}

// GIL reads the lock of an interpreter (see State).
func (r *Runtime) GIL(mem io.ReaderAt, interp uint64) (GIL, error) {
	at := r.addr(r.img.runtime) + r.l.gil
	if r.img.Minor >= 12 { // one for each interpreter
		var err error
		if at, err = word(mem, interp+r.l.gil); err != nil {
			return GIL{}, fmt.Errorf("read the global interpreter lock: %w", err)
		}
	}
	b := make([]byte, gilLocked+8)
	if err := read(mem, b, at); err != nil {
		return GIL{}, fmt.Errorf("read the global interpreter lock: %w", err)
	}
	// -1 before it is made.
	return GIL{Addr: at, End: at + gilSize, Locked: int32(le(b, gilLocked)) == 1, Holder: le(b, gilHolder)}, nil
}

func le(b []byte, off uint64) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

// read fills b from addr, or fails.
func read(mem io.ReaderAt, b []byte, addr uint64) error {
	if addr > maxPointer || addr == 0 {
		return fmt.Errorf("read the interpreter's data: %#x is no address", addr)
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

package python

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/sliverprof/sliver/stack"
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

// New returns the Runtime of an interpreter that is mapped with the given bias. It validates the
// interpreter: the lists of interpreters and threads must be consistent. An error names the
// inconsistency; the interpreter may still be starting.
func New(img *Image, bias uint64, mem io.ReaderAt) (*Runtime, error) {
	r := &Runtime{img: img, bias: bias, types: img.types}
	for _, t := range [...]*uint64{&r.types.code, &r.types.unicode, &r.types.bytes, &r.types.dict} {
		if *t != 0 {
			*t += bias
		}
	}
	var err error
	if r.l, err = img.layout(bias, mem); err != nil {
		return nil, err
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

// layout returns the offsets of the version. From 3.13 on, the interpreter has them in its memory, from its file on.
func (img *Image) layout(bias uint64, mem io.ReaderAt) (layout, error) {
	if l, known := layouts[img.Minor]; known {
		return l, nil
	}
	b := make([]byte, selfSize)
	if err := read(mem, b, img.runtime+bias); err != nil {
		return layout{}, err
	}
	l, err := described(b)
	if err != nil {
		return layout{}, fmt.Errorf("CPython %s: %w", img.Version, err)
	}
	return *l, nil
}

// Version returns the interpreter's version.
func (r *Runtime) Version() string { return r.img.Version }

// Eval returns the address of the function that runs Python code, or 0 if it is unknown.
func (r *Runtime) Eval() uint64 {
	if r.img.eval == 0 {
		return 0
	}
	return r.addr(r.img.eval)
}

// IsCodeType writes the type of a code object into b, for a caller that knows a code object at
// code. b covers memory at addr. ok is false if that is not exactly the type field.
func (r *Runtime) IsCodeType(b []byte, addr, code uint64) (ok bool) {
	if len(b) != 8 || addr != code+obType {
		return false
	}
	binary.LittleEndian.PutUint64(b, r.types.code)
	return true
}

// Anchored reports whether this version's frames show where their evaluation is on the C stack. If
// not, Merge must find the C frames that evaluate.
func (r *Runtime) Anchored() bool { return r.img.Minor >= 10 }

func (r *Runtime) addr(vaddr uint64) uint64 { return vaddr + r.bias }

// State is the interpreter's state of one thread.
type State struct {
	Addr   uint64 // of the PyThreadState
	Interp uint64 // of its PyInterpreterState
	Ident  uint64 // threading.get_ident()
	Native int32  // TID as the process itself sees it; 0: not recorded in this version
}

// Threads lists the interpreter's threads without a stop. A thread that begins or ends during the
// read may be missing. It fails if the lists are inconsistent.
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

// Offsets of a thread's number from pthread_self in the C library: glibc's struct pthread on amd64
// (0x2d0) and arm64 (0xd0) in nptl/descr.h, 2.17 … 2.42. musl's, in src/internal/pthread_impl.h, is
// below.
var tidOffsets = [...]uint64{0x2d0, 0xd0}

const (
	maxTID  = 1 << 22 // the kernel's PID_MAX_LIMIT
	selfPtr = 0x10    // tcbhead_t.self, amd64
)

// Forked finds the State of the thread tid if it holds another thread's number. This happens in a
// process that was forked without a call of PyOS_AfterFork_Child, as by uWSGI: the state keeps the
// parent's number. The number in the C library is correct.
func (r *Runtime) Forked(mem io.ReaderAt, states []State, tid int32) (State, bool) {
	for _, s := range states {
		if s.Native != tid && tidOf(mem, s.Ident) == tid {
			return s, true
		}
	}
	return State{}, false
}

// tidOf returns the number of the thread with pthread_self ident, or 0 if it is unknown.
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

// GIL is the state of a global interpreter lock at one moment.
type GIL struct {
	Addr   uint64 // waiters sleep on a word in [Addr, End)
	End    uint64
	Locked bool
	Holder uint64 // address of the State of the current or last holder; 0: none yet
}

// Interpreters returns the addresses of all interpreters: see State.Interp.
func (r *Runtime) Interpreters(mem io.ReaderAt) (all []uint64, err error) {
	interp, err := word(mem, r.addr(r.img.runtime)+r.l.interpreters)
	for err == nil && interp != 0 && len(all) < maxInterpreters {
		all = append(all, interp)
		interp, err = word(mem, interp+r.l.interpNext)
	}
	return all, err
}

// alone reports whether interp is the process's only interpreter.
func (r *Runtime) alone(mem io.ReaderAt, interp uint64) bool {
	first, err := word(mem, r.addr(r.img.runtime)+r.l.interpreters)
	if err != nil || first != interp {
		return false
	}
	next, err := word(mem, interp+r.l.interpNext)
	return err == nil && next == 0
}

// Owner returns the holder of g, by State.Native, if g is locked. It returns 0 if there is none, or
// if the lock changed hands during the read. interp is the lock's interpreter.
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
	at, err := r.gilAt(mem, interp)
	if err != nil {
		return GIL{}, err
	}
	b := make([]byte, gilLocked+8)
	if err := read(mem, b, at); err != nil {
		return GIL{}, fmt.Errorf("read the global interpreter lock: %w", err)
	}
	// locked is -1 before the lock is created.
	return GIL{Addr: at, End: at + gilSize, Locked: int32(le(b, gilLocked)) == 1, Holder: le(b, gilHolder)}, nil
}

// gilAt returns the address of an interpreter's lock. It stays the same as long as the interpreter lives.
func (r *Runtime) gilAt(mem io.ReaderAt, interp uint64) (uint64, error) {
	if r.img.Minor < 12 { // one for all interpreters
		return r.addr(r.img.runtime) + r.l.gil, nil
	}
	at, err := word(mem, interp+r.l.gil)
	if err != nil {
		return 0, fmt.Errorf("read the global interpreter lock: %w", err)
	}
	return at, nil
}

// GILSpan returns the memory of an interpreter's lock that HoldsGIL needs; its Len is 0 if it is unknown.
func (r *Runtime) GILSpan(mem io.ReaderAt, interp uint64) stack.Span {
	at, err := r.gilAt(mem, interp)
	if err != nil || at&7 != 0 || at == 0 || at > maxPointer {
		return stack.Span{}
	}
	return stack.Span{Addr: at + gilHolder, Len: gilLocked + 4 - gilHolder}
}

// HoldsGIL reports whether the thread with a State held its interpreter's lock when b, the content of
// GILSpan, was copied.
func (s *State) HoldsGIL(b []byte) bool {
	const locked = gilLocked - gilHolder // an int
	return len(b) >= locked+4 && int32(binary.LittleEndian.Uint32(b[locked:])) == 1 && le(b, 0) == s.Addr
}

func le(b []byte, off uint64) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

// read fills b from addr, or fails.
func read(mem io.ReaderAt, b []byte, addr uint64) error {
	if addr > maxPointer || addr == 0 {
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

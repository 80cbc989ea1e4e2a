package target

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readBlocks copies the small blocks and the stack above sp, if possible with one system call. If
// a block ends early, another call reads the rest: an unreadable block costs only itself. Blocks
// that may be absent come last and cost no further call. The function is split into pieces that
// are not inlined: code that may not grow its stack has little of it, and code built for fuzzing
// needs more.
//
//go:nosplit
//go:norace
func (w *Window) readBlocks(tid uintptr, sp uint64) syscall.Errno {
	w.planStack(sp, redZone)
	w.planReads()
	sure := w.n - w.maybe // the stack's position in the order of reading
	var worst syscall.Errno
	for first := 0; first <= sure; {
		locals := w.planLocals(first)
		if locals == 0 {
			break
		}
		n, errno := w.readFrom(tid, first, w.n+1-first, locals)
		if errno != 0 {
			n, w.errno, worst = 0, errno, errno
			if errno != syscall.EFAULT {
				return errno
			}
		}
		first = w.note(first, n)
	}
	if below := sp & 4095; w.stack > 0 && w.got[w.n] == 0 && below < redZone {
		// The page below that of SP may be missing: try again without it.
		w.planStack(sp, below)
		w.raw.remote[sure] = remoteVec{w.StackAddr, uint64(w.stack)}
		n, errno := w.readFrom(tid, sure, 1, w.vector(0, w.off[w.n], w.stack))
		if errno != 0 {
			w.errno = errno
			return errno
		}
		w.got[w.n] = n
	}
	return worst
}

// planReads sets the remote addresses, in the order of reading.
//
//go:noinline
//go:nosplit
//go:norace
func (w *Window) planReads() {
	for k := 0; k <= w.n; k++ {
		i := w.inOrder(k)
		if i == w.n {
			w.raw.remote[k] = remoteVec{w.StackAddr, uint64(w.stack)}
			continue
		}
		w.raw.remote[k] = remoteVec{w.Spans[i].Addr, uint64(w.Spans[i].Len)}
	}
}

// planLocals sets the local addresses from the first-th block on, and returns the number of
// pieces.
//
//go:noinline
//go:nosplit
//go:norace
func (w *Window) planLocals(first int) (n uintptr) {
	sure := w.n - w.maybe
	if first < sure {
		end := w.end
		if w.maybe > 0 {
			end = w.off[sure]
		}
		n += w.vector(n, w.off[first], end-w.off[first])
	}
	n += w.vector(n, w.off[w.n], w.stack)
	if w.maybe > 0 {
		n += w.vector(n, w.off[sure], w.end-w.off[sure])
	}
	return n
}

// readFrom reads blocks blocks from the first-th on into the places set by planLocals.
//
//go:noinline
//go:nosplit
//go:norace
func (w *Window) readFrom(tid uintptr, first, blocks int, locals uintptr) (int, syscall.Errno) {
	w.Reads++
	n, errno := raw6(unix.SYS_PROCESS_VM_READV, tid, uintptr(unsafe.Pointer(&w.raw.local)), locals,
		uintptr(unsafe.Pointer(&w.raw.remote[first])), uintptr(blocks), 0)
	return int(n), errno
}

// note records that n bytes were read from the first-th block on. It returns the number of the
// block after the one that ended early.
//
//go:noinline
//go:nosplit
//go:norace
func (w *Window) note(first, n int) int {
	for first <= w.n {
		i := w.inOrder(first)
		first++
		size := w.size(i)
		if n < size {
			w.got[i] = n
			break
		}
		w.got[i] = size
		n -= size
	}
	return first
}

// inOrder returns the k-th block in the order of reading: the stack precedes the blocks that may
// be absent.
//
//go:nosplit
//go:norace
func (w *Window) inOrder(k int) int {
	switch sure := w.n - w.maybe; {
	case k < sure:
		return k
	case k == sure:
		return w.n
	}
	return k - 1
}

// vector makes n bytes of the buffer the i-th local place and returns 1, or 0 if n is 0.
//
//go:noinline
//go:nosplit
//go:norace
func (w *Window) vector(i uintptr, off, n int) uintptr {
	if n == 0 {
		return 0
	}
	w.raw.local[i] = ownVec{uintptr(unsafe.Pointer(&w.buf[off])), uint64(n)}
	return 1
}

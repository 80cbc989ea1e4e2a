package target

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// BenchmarkReadInStop measures the one read of a stop by itself, from the system call to
// its return: of a thread that runs with a tall stack and is stopped 1 ms after the time
// before, by the functions that a sample is taken with. Each read has the small blocks
// that walks of managed runtimes have copied (a thread's account, a chunk of a data stack,
// frames on the heap) and as many bytes of stack as make up the size.
func BenchmarkReadInStop(b *testing.B) {
	for _, size := range []int{8 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) { readInStop(b, size) })
	}
}

func readInStop(b *testing.B, size int) {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	prog := start(b, build(b, "testdata/tall.c", "-O1"))
	tid := 0
	fmt.Sscan(prog.line(), &tid)
	tr := tracer(b)
	w := NewWindow(size)
	low := uint64(0) // the stack pointer at the first stop; blocks lie above what is copied of the stack
	ns := make([]int64, 0, b.N)
	for i := -1; i < b.N; i++ {
		tr.SleepUntil(monotonic() + 1e6)
		w.Spans = w.Spans[:0]
		small := 0
		if low != 0 {
			for k, n := range [...]int{832, 64, 128, 2048} {
				w.Spans = append(w.Spans, stack.Span{Addr: low + 280<<10 + uint64(k)*3000, Len: n})
				small += n
			}
		}
		w.reset()
		w.StackDefault = size - small - redZone
		if errno := seize(tid); errno != 0 {
			b.Fatal(errno)
		}
		if !attached(uintptr(tid)) { // which asks it to stop
			b.Fatal("it is gone")
		}
		for w.block(uintptr(tid)) != lookStopped {
		}
		if errno := w.getRegs(uintptr(tid)); errno != 0 {
			b.Fatal(errno)
		}
		sp := nativeStackPointer(&w.raw.regs)
		from := w.clock()
		errno := w.readBlocks(uintptr(tid), sp)
		to := w.clock()
		if end := w.release(uintptr(tid), errno); end != endDone {
			b.Fatalf("it ends with %d: %v", end, w.raw.errno)
		}
		if low == 0 {
			low = sp
			continue
		}
		read := len(w.Stack())
		for k := range w.Spans {
			read += len(w.Block(k))
		}
		if read != size {
			b.Fatalf("%d bytes: %v", read, w.ReadErr())
		}
		ns = append(ns, to-from)
	}
	report(b, "read", summarize(ns))
}

package target

import (
	"bufio"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/stack"
)

// BenchmarkReadInStop measures only the memory read of a stop, from the system call to its
// return. The thread runs with a tall stack and is stopped 1 ms after the previous time, with the
// functions of a sample. Each read has the small blocks that walks of managed runtimes copy (a
// thread's account, a chunk of a data stack, frames on the heap) and enough bytes of stack to
// reach the size. It alternates with a C program that reads the same number of bytes in one piece
// (c-…), 50 stops each.
func BenchmarkReadInStop(b *testing.B) {
	for _, size := range []int{8 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) { readInStop(b, size) })
	}
}

// readRound is how many stops one of the two makes before the other continues.
const readRound = 50

func readInStop(b *testing.B, size int) {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	prog := start(b, build(b, "testdata/tall.c", "-O1"))
	tid := 0
	fmt.Sscan(prog.line(), &tid)
	c := exec.Command(build(b, "testdata/readv.c", "-O2"), fmt.Sprint(tid))
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewReader(out)
	bare := make([]int64, 0, b.N+readRound)
	r := reader{b: b, tid: tid, size: size, tr: tracer(b), w: NewWindow(size)}
	r.read() // to get the stack pointer
	ns := make([]int64, 0, b.N)
	for len(ns) < b.N {
		for range min(readRound, b.N-len(ns)) {
			ns = append(ns, r.read())
		}
		fmt.Fprintf(in, "%d %d\n", readRound, size)
		line, err := lines.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range strings.Fields(line) {
			var x int64
			fmt.Sscan(s, &x)
			bare = append(bare, x)
		}
	}
	in.Close()
	if err := c.Wait(); err != nil {
		b.Fatal(err)
	}
	report(b, "read", summarize(ns))
	s := summarize(bare)
	b.ReportMetric(float64(s.P50)/1e3, "c-p50-µs")
	b.ReportMetric(float64(s.P99)/1e3, "c-p99-µs")
}

// reader makes stops with one read each.
type reader struct {
	b    *testing.B
	tid  int
	size int // bytes in total
	tr   *Tracer
	w    *Window
	low  uint64 // the stack pointer at the first stop; blocks are above the copied part of the stack
}

// read makes one stop, 1 ms from now, and returns its duration in ns.
func (r *reader) read() int64 {
	b, w, tid := r.b, r.w, uintptr(r.tid)
	r.tr.SleepUntil(monotonic() + 1e6)
	w.Spans = w.Spans[:0]
	small := 0
	if r.low != 0 {
		for k, n := range [...]int{832, 64, 128, 2048} {
			w.Spans = append(w.Spans, stack.Span{Addr: r.low + 280<<10 + uint64(k)*3000, Len: n})
			small += n
		}
	}
	w.reset()
	w.StackDefault = r.size - small - redZone
	if errno := seize(r.tid); errno != 0 {
		b.Fatal(errno)
	}
	if !attached(tid) { // asks it to stop
		b.Fatal("it is gone")
	}
	for w.block(tid) != lookStopped {
	}
	if errno := w.getRegs(tid); errno != 0 {
		b.Fatal(errno)
	}
	sp := nativeStackPointer(&w.raw.regs)
	from := w.clock()
	errno := w.readBlocks(tid, sp)
	to := w.clock()
	if end := w.release(tid, errno); end != endDone {
		b.Fatalf("it ends with %d: %v", end, w.raw.errno)
	}
	if r.low == 0 {
		r.low = sp
		return to - from
	}
	read := len(w.Stack())
	for k := range w.Spans {
		read += len(w.Block(k))
	}
	if read != r.size {
		b.Fatalf("%d bytes: %v", read, w.ReadErr())
	}
	return to - from
}

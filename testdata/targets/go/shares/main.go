// A goroutine that spends its CPU time in four known ways: code of its own, allocation (the runtime's work on the
// system stack), the vDSO's clock and system calls. After "ready PID" and a line of input it runs until the
// third, with "go TID" as soon as it has begun. At the second line it prints "from TIME" (CLOCK_MONOTONIC in ns); at the
// third "shares TID goroutine" and the CPU time since then, in ns, of spin, churn, clocks and calls.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Clocks of clock_gettime(2).
const (
	monotonic = 1 // CLOCK_MONOTONIC
	threadCPU = 3 // CLOCK_THREAD_CPUTIME_ID
)

// clock returns a clock's time in ns.
func clock(id uintptr) int64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return ts.Nano()
}

func id() uint64 {
	var b [64]byte
	n, err := strconv.ParseUint(string(bytes.Fields(b[:runtime.Stack(b[:], false)])[1]), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

var (
	sum  uint64
	keep [4096][]byte
	when time.Time
)

//go:noinline
func spin() {
	for i := range uint64(300_000) {
		sum = sum*31 + i
	}
}

//go:noinline
func churn() {
	for i := range 4000 {
		keep[i%len(keep)] = make([]byte, 256+i%1800)
	}
}

//go:noinline
func clocks() {
	for range 8000 {
		when = time.Now()
	}
}

//go:noinline
func calls() {
	for range 3000 {
		_, _, _ = syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0)
	}
}

// deep calls f below n frames.
//
//go:noinline
func deep(n int, f func()) int {
	if n == 0 {
		f()
		return 0
	}
	return deep(n-1, f) + 1
}

func main() {
	fmt.Println("ready", os.Getpid())
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	var count, end atomic.Bool
	began, from, done := make(chan int), make(chan int64), make(chan string)
	go func() {
		runtime.LockOSThread() // its thread's CPU time is its own
		ways := [...]func(){spin, churn, clocks, calls}
		var ns [len(ways)]int64
		began <- syscall.Gettid()
		for n := 0; !end.Load(); n++ {
			if count.CompareAndSwap(true, false) {
				clear(ns[:])
				from <- clock(monotonic)
			}
			for i, f := range ways {
				was := clock(threadCPU)
				deep(n%20, f)
				ns[i] += clock(threadCPU) - was
			}
		}
		done <- fmt.Sprintln("shares", syscall.Gettid(), id(), ns[0], ns[1], ns[2], ns[3])
	}()
	fmt.Println("go", <-began)
	_, _ = in.ReadString('\n')
	count.Store(true)
	fmt.Println("from", <-from)
	_, _ = in.ReadString('\n')
	end.Store(true)
	fmt.Print(<-done)
	_, _ = in.ReadString('\n')
}

// Goroutines that take turns on few threads, and log which of them ran where and when.
// After "ready PID" and a line of input the program runs for -seconds and writes a line
// "TID goroutine from to" for each turn to -log (ns of CLOCK_MONOTONIC). Then it prints
// "done" and ends after another line. During a turn no other goroutine runs on the
// thread.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

type turn struct {
	tid      int
	from, to int64
}

func now() int64 {
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

func gettid() int {
	id, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	return int(id)
}

// id returns the goroutine's ID as runtime.Stack prints it.
func id() uint64 {
	var b [64]byte
	f := bytes.Fields(b[:runtime.Stack(b[:], false)])
	n, err := strconv.ParseUint(string(f[1]), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// spin occupies the thread for a turn: the goroutine is locked to it, so it keeps it even
// if the runtime preempts it.
//
//go:noinline
func spin(d int64) turn {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t := turn{tid: gettid(), from: now()}
	for t.to < t.from+d {
		t.to = now()
	}
	return t
}

func main() {
	n := flag.Int("n", 12, "goroutines")
	seconds := flag.Int("seconds", 2, "how long")
	idle := flag.Int("idle", 100, "goroutines that wait all the time")
	log := flag.String("log", "", "file")
	flag.Parse()
	runtime.GOMAXPROCS(2)
	never := make(chan int)
	for range *idle {
		go func() { <-never }()
	}
	fmt.Println("ready", os.Getpid())
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	f, err := os.Create(*log)
	if err != nil {
		panic(err)
	}
	out := bufio.NewWriter(f)
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(time.Duration(*seconds) * time.Second)
	baton := make(chan int, 2)
	baton <- 0
	baton <- 0
	for i := range *n {
		wg.Go(func() {
			// Every third worker is a new goroutine at each turn.
			for life := 0; time.Now().Before(end); life++ {
				done := make(chan int)
				play := func() {
					defer close(done)
					for k := 0; k < 1 || i%3 != 0 && k < 50; k++ {
						<-baton
						t := spin(3_000_000)
						mu.Lock()
						fmt.Fprintln(out, t.tid, id(), t.from, t.to)
						mu.Unlock()
						baton <- 0
						switch i % 4 {
						case 1:
							time.Sleep(time.Millisecond)
						case 2:
							runtime.Gosched()
						}
					}
				}
				go play()
				<-done
			}
		})
	}
	wg.Wait()
	if out.Flush() != nil || f.Close() != nil {
		panic("log")
	}
	fmt.Println("done")
	_, _ = in.ReadString('\n')
}

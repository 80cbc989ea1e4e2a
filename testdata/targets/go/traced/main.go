// traced: a function that eight goroutines call, while their stacks grow during the call, the
// collector runs and every tenth call ends in a panic.
//
//	traced N
//
// prints "ready PID", waits for a line of input, makes N calls, prints "truth CALLS RETURNED LEFT" and
// "done", and waits for the next line or the end of its input.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

var sink atomic.Int64

//go:noinline
func grow(n int) int {
	var pad [64]int
	pad[n%64] = n
	if n == 0 {
		return pad[0]
	}
	return grow(n-1) + pad[(n+1)%64]
}

//go:noinline
func probed(i int) int {
	runtime.Gosched() // it may go on on another thread
	x := grow(i % 300)
	if i%10 == 9 {
		panic("every tenth")
	}
	sink.Add(int64(x))
	return x + i
}

var returned, left atomic.Int64

func call(i int) {
	defer func() {
		if recover() != nil {
			left.Add(1)
		}
	}()
	probed(i)
	returned.Add(1)
}

func main() {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(2)
	}
	fmt.Println("ready", os.Getpid())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		returned.Store(0)
		left.Store(0)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := g; i < n; i += 8 {
					if i%64 == 0 {
						runtime.GC()
					}
					done := make(chan bool)
					go func() { call(i); close(done) }() // a small stack each time
					<-done
				}
			})
		}
		wg.Wait()
		fmt.Println("truth", returned.Load()+left.Load(), returned.Load(), left.Load())
		fmt.Println("done")
	}
}

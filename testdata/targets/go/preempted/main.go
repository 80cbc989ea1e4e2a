// preempted: functions that two goroutines call while a third one stops the world as often as it can: the runtime
// sends signals to preempt them thousands of times a second, mostly while they are in the trap of a breakpoint.
//
//	preempted SCENARIO N
//
// prints "ready PID", waits for a line of input, makes N calls or more, prints "truth CALLS RETURNED LEFT" and "done",
// and waits for the next line or the end of its input.
//
//	leaf       a function without a check of its stack
//	framed     one that calls another one, and panics at every tenth call
//	panics     a function that panics at each call, with the same arguments in a loop
//	recursing  a recursion of depth 8, in which every third panic is recovered half way
//	exits      a function with three returns
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

// account counts the calls of one goroutine.
type account struct{ calls, left int }

//go:noinline
func leaf(i int) int { return i*7 + 1 }

//go:noinline
func touch(i int) int {
	sink.Add(int64(i))
	return i ^ 5
}

//go:noinline
func framed(i int) int {
	x := touch(i)
	if i%10 == 9 {
		panic("every tenth")
	}
	return touch(x) + i
}

//go:noinline
func panics(i int) int {
	if i >= 0 {
		panic("always")
	}
	return touch(i)
}

//go:noinline
func recursing(a *account, i, depth int) int {
	a.calls++
	n := i
	switch {
	case depth == 0 && i%3 == 0:
		panic("at the end")
	case depth == 4 && i%3 == 0:
		n = guard(a, 4, func() int { return recursing(a, i, depth-1) })
	case depth > 0:
		n = recursing(a, i, depth-1)
	}
	return n + 1
}

//go:noinline
func exits(i int) int {
	if i%3 == 0 {
		return touch(i)
	}
	if i%3 == 1 {
		return touch(i+1) ^ i
	}
	return i
}

// guard recovers from a panic that ends some calls.
//
//go:noinline
func guard(a *account, ends int, f func() int) (n int) {
	defer func() {
		if recover() != nil {
			a.left += ends
		}
	}()
	return f()
}

var scenarios = map[string]func(a *account, i int){
	"leaf":      func(a *account, i int) { a.calls++; sink.Add(int64(leaf(i))) },
	"framed":    func(a *account, i int) { a.calls++; guard(a, 1, func() int { return framed(i) }) },
	"panics":    func(a *account, i int) { a.calls++; guard(a, 1, func() int { return panics(7) }) },
	"recursing": func(a *account, i int) { recursing(a, i, 8) },
	"exits":     func(a *account, i int) { a.calls++; sink.Add(int64(exits(i))) },
}

func main() {
	do := scenarios[os.Args[1]]
	n, err := strconv.Atoi(os.Args[2])
	if err != nil || do == nil {
		os.Exit(2)
	}
	runtime.GOMAXPROCS(2)
	fmt.Println("ready", os.Getpid())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var stop atomic.Bool
		var stopper, callers sync.WaitGroup
		stopper.Go(func() {
			var m runtime.MemStats
			for i := 0; !stop.Load(); i++ {
				if i%50 == 0 {
					runtime.GC()
				}
				runtime.ReadMemStats(&m)
			}
		})
		var all [2]account
		for g := range all {
			callers.Go(func() {
				a := &all[g]
				for i := 0; a.calls < n/len(all); i++ {
					do(a, i)
				}
			})
		}
		callers.Wait()
		stop.Store(true)
		stopper.Wait()
		calls, left := all[0].calls+all[1].calls, all[0].left+all[1].left
		fmt.Println("truth", calls, calls-left, left)
		fmt.Println("done")
	}
}

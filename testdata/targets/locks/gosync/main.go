// Goroutines bound to their threads that wait: for a sync.Mutex, a channel, a sync.Cond,
// a select. Prints {"kind":"go","lock":"0x0","holder":0,"waiters":[TID,…]} and waits for
// a line on standard input.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

func main() {
	// PR_SET_PTRACER, so that any process of the user may trace it.
	syscall.Syscall6(syscall.SYS_PRCTL, 0x59616d61, ^uintptr(0), 0, 0, 0, 0)
	var mu sync.Mutex
	mu.Lock()
	ch, other := make(chan int), make(chan int)
	cond := sync.NewCond(&sync.Mutex{})
	tids := make(chan int)
	waits := []func(){
		func() { mu.Lock() },
		func() { <-ch },
		func() { cond.L.Lock(); cond.Wait() },
		func() {
			select {
			case <-other:
			case other <- 1: // a goroutine does not receive its own value
			}
		},
	}
	for _, w := range waits {
		go func() {
			runtime.LockOSThread()
			tids <- syscall.Gettid()
			w()
		}()
	}
	var all []string
	for range waits {
		all = append(all, fmt.Sprint(<-tids))
	}
	fmt.Printf("{\"kind\":\"go\",\"lock\":\"0x0\",\"holder\":0,\"waiters\":[%s]}\n", strings.Join(all, ","))
	bufio.NewReader(os.Stdin).ReadString('\n')
}

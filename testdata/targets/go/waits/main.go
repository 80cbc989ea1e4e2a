// Goroutines that wait for each object that a report names: a mutex held inside the function that locks it,
// both sides of an RWMutex, a channel, a select, a WaitGroup and a sleep. It prints a line when all wait.
package main

import (
	"fmt"
	"sync"
	"time"
)

var (
	mu   sync.Mutex
	rw   sync.RWMutex
	done sync.WaitGroup
	ch   = make(chan int)
	stop = make(chan int)
)

// hold keeps mu for ever.
//
//go:noinline
func hold() {
	mu.Lock()
	time.Sleep(time.Hour)
	mu.Unlock()
}

//go:noinline
func read() {
	rw.RLock()
	rw.RUnlock()
}

//go:noinline
func write() {
	rw.Lock()
	rw.Unlock()
}

//go:noinline
func receive() { <-ch }

//go:noinline
func choose() {
	select {
	case <-ch:
	case <-stop:
	}
}

//go:noinline
func join() { done.Wait() }

func main() {
	rw.Lock()
	done.Add(1)
	for _, f := range []func(){hold, hold, hold, read, write, receive, choose, join} {
		go f()
	}
	time.Sleep(100 * time.Millisecond)
	fmt.Println("{}")
	for n := 0; ; n++ {
		for i := range 1_000_000 {
			n ^= i
		}
		time.Sleep(time.Millisecond)
	}
}

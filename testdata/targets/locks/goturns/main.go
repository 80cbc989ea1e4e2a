// Goroutines bound to their threads that wait for one another, and log when. Usage:
// goturns KIND THREADS SECONDS MICROSECONDS; KIND is mutex, rwmutex (every second one
// reads), receive, send, select, cond, waitgroup or sleep. The output is that of
// include/turns.h.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	mu    sync.Mutex
	rw    sync.RWMutex
	ch    = make(chan int)
	other = make(chan int)
	cond  = sync.NewCond(&mu)

	begin = make(chan struct{})
	end   atomic.Int64
	left  atomic.Int64 // workers still running
)

// worker is one goroutine with its log: TID, lock, from, to.
type worker struct {
	i, n         int
	tid          uint64
	hold         time.Duration
	waits, holds [][4]uint64
}

func (w *worker) on() bool { return nanotime() < end.Load() }

func (w *worker) work() {
	d := w.hold/2 + rand.N(w.hold+1)
	if rand.N(4) > 0 {
		time.Sleep(d)
		return
	}
	for until := nanotime() + int64(d); nanotime() < until; {
	}
}

func (w *worker) pause() { time.Sleep(1 + rand.N(w.hold)) }

func (w *worker) waited(lock uint64, wanted int64) (got int64) {
	got = nanotime()
	w.waits = append(w.waits, [4]uint64{w.tid, lock, uint64(wanted), uint64(got)})
	return got
}

func (w *worker) held(lock uint64, got int64) {
	w.holds = append(w.holds, [4]uint64{w.tid, lock, uint64(got), uint64(nanotime())})
}

func (w *worker) run(kind string) {
	for w.on() {
		switch {
		case kind == "mutex":
			wanted := nanotime()
			mu.Lock()
			got := w.waited(address(&mu), wanted)
			w.work()
			w.held(address(&mu), got)
			mu.Unlock()
			w.pause()
		case kind == "rwmutex" && w.i%2 == 1:
			wanted := nanotime()
			rw.RLock()
			w.waited(addressRW(&rw), wanted)
			w.work()
			rw.RUnlock()
			w.pause()
		case kind == "rwmutex":
			wanted := nanotime()
			rw.Lock()
			got := w.waited(addressRW(&rw), wanted)
			w.work()
			w.held(addressRW(&rw), got)
			rw.Unlock()
			w.pause()
		case kind == "sleep":
			wanted := nanotime()
			w.pause()
			w.waited(0, wanted)
		case w.i == 0:
			w.give(kind)
		default:
			w.take(kind)
		}
	}
	left.Add(-1)
	for w.i == 0 && left.Load() > 0 { // wake all remaining workers
		w.give(kind)
	}
}

// give lets the others continue.
func (w *worker) give(kind string) {
	w.work()
	switch kind {
	case "receive", "select":
		select {
		case ch <- 1:
		case <-time.After(w.hold):
		}
	case "send":
		select {
		case <-ch:
		case <-time.After(w.hold):
		}
	case "cond":
		mu.Lock()
		cond.Broadcast()
		mu.Unlock()
	}
}

func (w *worker) take(kind string) {
	wanted := nanotime()
	switch kind {
	case "receive":
		<-ch
	case "send":
		ch <- 1
	case "select":
		select {
		case <-ch:
		case <-other:
		}
	case "cond":
		mu.Lock()
		if w.on() {
			wanted = nanotime()
			cond.Wait()
		}
		mu.Unlock()
	case "waitgroup":
		var wg sync.WaitGroup
		wg.Go(w.work)
		wanted = nanotime()
		wg.Wait()
	}
	lock := uint64(0)
	if kind == "receive" || kind == "send" {
		lock = addressOf(ch)
	}
	w.waited(lock, wanted)
}

func main() {
	if len(os.Args) != 5 {
		os.Exit(2)
	}
	// PR_SET_PTRACER, so that any process of the user may trace it.
	syscall.Syscall6(syscall.SYS_PRCTL, 0x59616d61, ^uintptr(0), 0, 0, 0, 0)
	var numbers [3]int
	for i := range numbers {
		n, err := strconv.Atoi(os.Args[2+i])
		if err != nil || n <= 0 {
			os.Exit(2)
		}
		numbers[i] = n
	}
	kind, n := os.Args[1], numbers[0]
	tids := make(chan uint64)
	workers := make([]*worker, n)
	var all sync.WaitGroup
	left.Store(int64(n))
	for i := range workers {
		w := &worker{i: i, n: n, hold: time.Duration(numbers[2]) * time.Microsecond}
		workers[i] = w
		all.Go(func() {
			runtime.LockOSThread()
			w.tid = uint64(syscall.Gettid())
			tids <- w.tid
			<-begin
			w.run(kind)
		})
	}
	var list []uint64
	for range workers {
		list = append(list, <-tids)
	}
	var lock uint64
	switch kind {
	case "mutex":
		lock = address(&mu)
	case "rwmutex":
		lock = addressRW(&rw)
	case "receive", "send":
		lock = addressOf(ch)
	}
	threads, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	fmt.Printf("{\"lock\":\"%#x\",\"pid\":%d,\"threads\":%s}\n", lock, os.Getpid(), threads)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(3)
	}
	end.Store(nanotime() + int64(numbers[1])*int64(time.Second))
	close(begin)
	all.Wait()
	var log struct {
		Waits [][4]uint64 `json:"waits"`
		Holds [][4]uint64 `json:"holds"`
	}
	log.Waits, log.Holds = [][4]uint64{}, [][4]uint64{}
	for _, w := range workers {
		log.Waits = append(log.Waits, w.waits...)
		log.Holds = append(log.Holds, w.holds...)
	}
	if err := json.NewEncoder(os.Stdout).Encode(log); err != nil {
		panic(err)
	}
}

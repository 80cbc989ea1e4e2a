// Goroutines that wait in every way that a program can cause. It prints one line of JSON,
// {"pid": …, "stack": the output of runtime.Stack for all of them}, and then waits for the end of
// its standard input. With -child it then starts itself again, which prints such a line too.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	many := flag.Int("many", 50, "goroutines that wait at one channel")
	child := flag.Int("child", 0, "the same of a child; 0: there is none")
	flag.Parse()
	c := make(chan int)
	for range *many {
		go receive(c)
	}
	go send(c, make(chan int))
	var mu sync.Mutex
	mu.Lock()
	go lock(&mu)
	var rw sync.RWMutex
	rw.Lock()
	go func() { rw.RLock() }()
	var wg sync.WaitGroup
	wg.Add(1)
	go wg.Wait()
	cond := sync.NewCond(&sync.Mutex{})
	go func() {
		cond.L.Lock()
		cond.Wait()
	}()
	go time.Sleep(time.Hour)
	go func() { select {} }()
	go func() {
		select {
		case <-c:
		case <-time.After(time.Hour):
		}
	}()
	go func() { <-(chan int)(nil) }()
	go accept()
	go call()
	go deep(200, c)
	go func() {
		runtime.LockOSThread()
		receive(c)
	}()
	fmt.Println(settled(*many))
	if *child > 0 {
		parent(*child)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// parent starts a child with other goroutines, which ends with this process.
func parent(many int) {
	cmd := exec.Command(os.Args[0], "-many", strconv.Itoa(many))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		panic(err)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

func receive(c chan int) { <-c }

func send(_, c chan int) { c <- 1 }

func lock(mu *sync.Mutex) { mu.Lock() }

func accept() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	_, _ = l.Accept()
}

// call is in a system call that the runtime knows of.
func call() {
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		panic(err)
	}
	var b [1]byte
	_, _ = syscall.Read(p[0], b[:])
}

//go:noinline
func deep(n int, c chan int) {
	if n == 0 {
		<-c
		return
	}
	deep(n-1, c)
	runtime.KeepAlive(n)
}

// settled waits until all but the caller wait, and returns the report.
func settled(many int) string {
	b := make([]byte, 1<<20+many*1024)
	began := time.Now()
	for {
		s := string(b[:runtime.Stack(b, true)])
		if strings.Count(s, "[running") == 1 && !strings.Contains(s, "[runnable") &&
			strings.Count(s, "[syscall") == 1 && strings.Contains(s, "syscall.Read(") && strings.Contains(s, "[IO wait") &&
			strings.Contains(s, "main.deep(0x1, ") { // the frame below no longer needs its argument, and may print any value
			out, err := json.Marshal(map[string]any{"pid": os.Getpid(), "stack": s})
			if err != nil {
				panic(err)
			}
			return string(out)
		}
		if time.Since(began) > time.Minute {
			for _, g := range strings.Split(s, "\n\n") {
				if !strings.Contains(g, "[chan receive") || strings.Contains(g, "main.deep") {
					fmt.Fprintln(os.Stderr, g)
				}
			}
			panic("not all wait after a minute")
		}
		time.Sleep(time.Millisecond)
	}
}

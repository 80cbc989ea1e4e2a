// Program prog keeps its main thread in one kind of place of the Go runtime:
// the tests of package gopcln walk its stack from outside. Its argument names
// the place. It says "ready" on standard output and runs until it is killed.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sort"
	"sync/atomic"
	"syscall"
	"time"
)

var sink interface{}

type node struct {
	left, right *node
	data        [4]int
}

//go:noinline
func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: tree(depth - 1), right: tree(depth - 1)}
}

//go:noinline
func grow(n int) int {
	var b [256]byte
	b[n%256] = 1
	if n == 0 {
		return int(b[3])
	}
	return grow(n-1) + int(b[n%256])
}

//go:noinline
func count(n int) (s int) {
	for i := 0; i < n; i++ {
		s += i ^ s
	}
	return s
}

var modes = map[string]func(){
	"compute": func() { sink = count(1 << 20) },
	"alloc":   func() { sink = tree(12) },
	"grow": func() {
		done := make(chan int)
		go func() { done <- grow(2000) }()
		<-done
	},
	"stack": func() {
		var buf [4096]byte
		sink = runtime.Stack(buf[:], false)
	},
	"gc":     func() { debug.FreeOSMemory() },
	"switch": func() { runtime.Gosched() },
	"time": func() {
		for i := 0; i < 1000; i++ {
			sink = time.Now().UnixNano()
		}
	},
	"chan": func() {
		c := make(chan int)
		go func() { c <- 1 }()
		<-c
	},
	"map": func() {
		m := map[int]int{}
		for i := 0; i < 1000; i++ {
			m[i*7919%1000] = i
		}
		s := make([]int, 0, len(m))
		for k := range m {
			s = append(s, k)
		}
		sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	},
	"preempt": func() { sink = count(1 << 30) },
	"signal":  func() { sink = count(1 << 18) },
	"syscall": func() { syscall.Getppid() },
	"recover": func() { recovers() },
	"panic": func() {
		defer func() { recover() }()
		var p *node
		sink = p.data
	},
}

// recovers returns by a recovered panic. Its ordinary return comes before the
// code that such functions return by.
//
//go:noinline
func recovers() (n int) {
	defer func() {
		if recover() != nil {
			n = 2
		}
	}()
	if len(os.Args) > 1<<20 {
		return 1
	}
	panic(1)
}

//go:noinline
func knownCaller(f func()) {
	fmt.Println("ready")
	for {
		f()
	}
}

// inner and outer are inlined into logical.
func inner(f func()) { f() }

func outer(f func()) {
	inner(f)
}

//go:noinline
func logical() {
	outer(func() {
		pcs := make([]uintptr, 16)
		n := runtime.Callers(1, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for {
			f, more := frames.Next()
			fmt.Printf("frame %s %s %d\n", f.Function, f.File, f.Line)
			if !more {
				break
			}
		}
		for _, pc := range pcs[:n] {
			fmt.Printf("pc %x\n", pc)
		}
	})
}

func main() {
	if len(os.Args) < 2 {
		logical()
		return
	}
	f, ok := modes[os.Args[1]]
	if !ok {
		os.Exit(2)
	}
	if len(os.Args) > 2 { // the goroutine stays on the main thread
		runtime.LockOSThread()
	}
	if os.Args[1] == "signal" {
		runtime.SetCPUProfileRate(1000)
		pprof.StartCPUProfile(io.Discard)
		pid, tid := syscall.Getpid(), syscall.Gettid()
		var n int64
		go func() {
			runtime.LockOSThread()
			for {
				syscall.Tgkill(pid, tid, syscall.SIGURG)
				// A next signal that always waits at the end of the handler
				// would keep the thread from its own code for ever.
				count(int(atomic.AddInt64(&n, 1) % 20000))
			}
		}()
	}
	knownCaller(f)
}

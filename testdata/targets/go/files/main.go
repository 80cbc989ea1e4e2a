// Program files PATH [N SIZE]: prints "ready PID"; for each line of input it opens PATH, reads 25 times 100
// bytes, and prints "truth" with its own functions, innermost first, then "done".
//
// With N and SIZE, goroutines on two threads make N reads of SIZE bytes in turn, and "truth" has the number
// of reads of each thread.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

//go:noinline
func reading(f *os.File) (names []string) {
	b := make([]byte, 100)
	for range 25 {
		if _, err := f.ReadAt(b, 0); err != nil {
			panic(err)
		}
	}
	pcs := make([]uintptr, 10)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		f, more := frames.Next()
		names = append(names, f.Function)
		if !more {
			return names
		}
	}
}

//go:noinline
func serving(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	return reading(f)
}

//go:noinline
func sharing(path string, n, size int) (each [2]int) {
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	var wg sync.WaitGroup
	var turn [2]chan int
	for i := range turn {
		turn[i] = make(chan int, 1)
	}
	for i := range turn {
		wg.Go(func() {
			runtime.LockOSThread() // so that the threads are two
			b := make([]byte, size)
			for left := range turn[i] {
				if left == 0 {
					close(turn[1-i])
					return
				}
				if _, err := f.ReadAt(b, 0); err != nil {
					panic(err)
				}
				each[i]++
				turn[1-i] <- left - 1
			}
		})
	}
	turn[0] <- n
	wg.Wait()
	return each
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func main() {
	fmt.Println("ready", os.Getpid())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Print("truth")
		if len(os.Args) > 3 {
			each := sharing(os.Args[1], number(os.Args[2]), number(os.Args[3]))
			fmt.Print(" ", each[0], " ", each[1])
		} else {
			for _, n := range serving(os.Args[1]) {
				fmt.Print(" ", n)
			}
		}
		fmt.Println("\ndone")
	}
}

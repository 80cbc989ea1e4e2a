// Program files PATH: prints "ready PID"; for each line of input it opens PATH, reads 25 times 100 bytes,
// and prints "truth" with its own functions, innermost first, then "done".
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
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

func main() {
	runtime.LockOSThread() // sums are of each thread: a goroutine that moves in mid-file has two
	fmt.Println("ready", os.Getpid())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Print("truth")
		for _, n := range serving(os.Args[1]) {
			fmt.Print(" ", n)
		}
		fmt.Println("\ndone")
	}
}

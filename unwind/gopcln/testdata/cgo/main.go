// Program cgo keeps its main thread in C code that Go called, in Go code that
// C called, or in both alternately to a depth of eight.
package main

/*
#cgo CFLAGS: -O1 -fno-omit-frame-pointer
extern void goBack(int);
static int spins = 20000;
__attribute__((noinline)) static void spin(void) {
	for (volatile int i = 0; i < spins; i++) {}
}
__attribute__((noinline)) static void busy(void) { spin(); __asm__ volatile(""); }
__attribute__((noinline)) static void back(int n) { goBack(n); __asm__ volatile(""); }
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
)

var sink int

//go:noinline
func count(n int) (s int) {
	for i := 0; i < n; i++ {
		s += i ^ s
	}
	return s
}

//export goBack
func goBack(n C.int) {
	if n == 0 {
		sink = count(10000)
		var buf [512]byte
		sink += runtime.Stack(buf[:], false)
		C.busy()
		return
	}
	C.back(n - 1)
}

//go:noinline
func knownCaller(f func()) {
	fmt.Println("ready")
	for {
		f()
	}
}

func main() {
	runtime.LockOSThread()
	switch os.Args[1] {
	case "call":
		knownCaller(func() { C.busy() })
	case "back":
		knownCaller(func() { C.back(0) })
	case "deep":
		knownCaller(func() { C.back(8) })
	}
}

// Command goroutines spoils the runtime's own data that a profiler reads, with the garbage collector
// off, and computes all the while. The argument says what: "length" (the list of all goroutines
// claims 2^40 of them), "ring" (goroutines that wait for each other's channel in a ring of sudogs),
// "string" (a reason and a label of 2^60 bytes). It prints "ready" and begins with a line.
package main

import (
	"bufio"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"time"
	"unsafe"
)

// symbol returns the address of a variable of the runtime. The program is not position independent.
func symbol(name string) unsafe.Pointer {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		panic(err)
	}
	for _, s := range all {
		if s.Name == name {
			return unsafe.Pointer(uintptr(s.Value))
		}
	}
	panic("no symbol " + name)
}

type header struct {
	data unsafe.Pointer
	n    uintptr
}

//go:noinline
func honest() int {
	n := 0
	for end := time.Now().Add(time.Hour); time.Now().Before(end); n++ {
	}
	return n
}

func main() {
	debug.SetGCPercent(-1)
	label := "label"
	for range 20 {
		ctx := pprof.WithLabels(context.Background(), pprof.Labels("kind", label))
		pprof.SetGoroutineLabels(ctx)
		go func() {
			pprof.SetGoroutineLabels(ctx)
			<-make(chan int)
		}()
	}
	time.Sleep(100 * time.Millisecond)
	switch os.Args[1] {
	case "length":
		*(*uintptr)(symbol("runtime.allglen")) = 1 << 40
	case "ring":
		// Each of the first goroutines' word becomes an address of a goroutine: whatever list a
		// reader follows there leads back.
		all := *(**[16]unsafe.Pointer)(symbol("runtime.allgs"))
		for i := range 8 {
			for w := 8; w < 48; w++ { // behind stack bounds, panics and the scheduler's registers
				*(*unsafe.Pointer)(unsafe.Add(all[8+i], 8*w)) = all[8+(i+1)%8]
			}
		}
	case "string":
		// A string's header is in memory that may be written when it is a variable.
		reasons := symbol("runtime.waitReasonStrings")
		for i := range 16 {
			(*header)(unsafe.Add(reasons, 16*i)).n = 1 << 60
		}
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	honest()
}

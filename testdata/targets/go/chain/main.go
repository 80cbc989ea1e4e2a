// The chain in Go: goroutines locked to threads and plain ones, generics, closures,
// interfaces, recovered panics, and with the tag chaincgo a function in C that calls
// back. It runs the scripts of include/script.h and writes the report of include/chain.h;
// goroutines that are not locked report the TID 0.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
)

type options struct {
	seconds, seed, unit, threads, plain uint64
	report                              string
	waitGo, waitEnd                     bool
}

func init() { runtime.LockOSThread() } // main stays on the process's first thread

func main() {
	var o options
	flag.Uint64Var(&o.seconds, "seconds", 1, "length of the scripts")
	flag.Uint64Var(&o.seed, "seed", 1, "makes the scripts")
	flag.Uint64Var(&o.unit, "unit", 6, "scales all times by unit/6")
	flag.Uint64Var(&o.threads, "threads", 0, "goroutines locked to threads named worker-N")
	flag.Uint64Var(&o.plain, "plain", 0, "goroutines that are not locked")
	flag.StringVar(&o.report, "report", "", "file for the calls and their times")
	flag.BoolVar(&o.waitGo, "wait-go", false, `prints "ready PID" and waits for a line`)
	flag.BoolVar(&o.waitEnd, "wait-end", false, `prints "done" when the report is written and waits for a line`)
	flag.Parse()
	if flag.NArg() > 0 || o.seconds == 0 || o.seconds > 600 || o.unit == 0 || o.threads > 64 || o.plain > 1000 {
		flag.Usage()
		os.Exit(2)
	}
	// Enough Ps for all goroutines, and no garbage collection, which would shrink stacks
	// or park threads.
	runtime.GOMAXPROCS(max(int(o.threads)+4, runtime.GOMAXPROCS(0)))
	debug.SetGCPercent(-1)
	if err := execute(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func execute(o options) error {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		return err
	}
	runs := []*run{newRun(o, 0, strings.TrimSpace(string(comm)))}
	runs[0].tid = os.Getpid()
	for k := range o.threads {
		runs = append(runs, newRun(o, k+1, fmt.Sprintf("worker-%d", k)))
	}
	for k := range o.plain {
		runs = append(runs, newRun(o, o.threads+k+1, fmt.Sprintf("goroutine-%d", k)))
	}
	begin := make(chan struct{})
	var named, ended sync.WaitGroup
	for k, r := range runs[1:] {
		named.Add(1)
		ended.Go(func() {
			if k < int(o.threads) {
				runtime.LockOSThread()
				r.tid = syscall.Gettid()
				if err := os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", r.tid), []byte(r.name), 0); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
			named.Done()
			<-begin
			r.start()
		})
	}
	named.Wait()
	const setPtracer = 0x59616d61 // PR_SET_PTRACER: any process of the same user may trace this one
	syscall.RawSyscall(syscall.SYS_PRCTL, setPtracer, ^uintptr(0), 0)
	in := bufio.NewReader(os.Stdin)
	if o.waitGo {
		fmt.Println("ready", os.Getpid())
		if _, err := in.ReadString('\n'); err != nil {
			return err // the parent process is gone
		}
	}
	close(begin)
	runs[0].start()
	ended.Wait()
	if o.report != "" {
		if err := report(o.report, runs); err != nil {
			return err
		}
	}
	if o.waitEnd {
		fmt.Println("done")
		_, err = in.ReadString('\n')
	}
	return err
}

func report(path string, runs []*run) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	var calls, interrupted, script uint64
	for _, r := range runs {
		n, err := r.write(w)
		if err != nil {
			return err
		}
		calls += n
		interrupted += r.interrupted
		script += r.script.hash()
	}
	fmt.Fprintf(w, `{"summary":{"calls":%d,"interrupted":%d,"script":"%016x"}}`+"\n", calls, interrupted, script)
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

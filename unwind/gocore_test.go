package unwind_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/lang/golang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/gopcln"
	"github.com/sliverprof/sliver/unwind/rule"
)

const goProgram = `package main

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

var spins atomic.Bool

//go:noinline
func deep(n int) int {
	if n > 0 {
		return deep(n-1) + 1
	}
	fmt.Println("ready")
	var b [1]byte
	os.Stdin.Read(b[:])
	return int(b[0])
}

//go:noinline
func spin(c chan bool) {
	runtime.LockOSThread() // no other takes its place
	spins.Store(true)
	x := 0
	for {
		x++
		if x == 0 {
			c <- true
		}
	}
}

func main() {
	runtime.GOMAXPROCS(4)
	c := make(chan bool)
	go spin(c)
	for !spins.Load() {
		runtime.Gosched()
	}
	println(deep(200))
}
`

// TestGoCore walks every thread of a Go program. Each stack ends at its first function, and the
// goroutines' functions appear in order.
func TestGoCore(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	if err := os.WriteFile(src, []byte(goProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{"static": nil, "stripped": {"-ldflags=-s -w"}, "pie": {"-buildmode=pie"}} {
		t.Run(name, func(t *testing.T) {
			if name != "stripped" {
				testprog.Whole(t, "a stripped program says least about itself")
			}
			exe := filepath.Join(dir, name)
			build := exec.Command("go", append(append([]string{"build"}, flags...), "-o", exe, src)...)
			if b, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			core := unwind.DumpCore(t, exe)
			s := unwind.NewSpace(rule.AMD64, unwind.HostFiles{}, core, golang.Stacks)
			s.Update(core.Maps())
			if err := s.Preload(); err != nil {
				t.Error(err)
			}
			w := unwind.NewWalker(s)
			tids, regs := core.Threads()
			f, err := os.Open(exe)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			table, err := gopcln.Load(f, rule.AMD64)
			if err != nil {
				t.Fatal(err)
			}
			deep, spin := 0, 0
			for i := range regs {
				th := unwind.Thread{TID: stack.TID(tids[i])}
				var frames []stack.Frame
				var reason stack.Reason
				for range 2 { // the first walk finds the thread's data
					frames, reason = w.Walk(&th, &regs[i], core.CopyOf(w, &th, &regs[i]))
				}
				var names []string
				for _, f := range frames {
					if f.Kind == stack.KindError {
						continue
					}
					pc := f.PC
					if !f.Exact {
						pc--
					}
					_, fn, _ := table.Func(pc - s.BiasAt(pc))
					names = append(names, fn)
					if fn != "" && f.Kind != stack.KindGo {
						t.Errorf("%s: %v", fn, f.Kind)
					}
				}
				if reason != stack.ReasonNone {
					t.Errorf("thread %d: %v: %v", tids[i], reason, names)
				}
				if n := len(slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s != "main.deep" })); n > 0 {
					if deep = n; !slices.Contains(names, "main.main") || !slices.Contains(names, "runtime.main") {
						t.Errorf("%v", names)
					}
				}
				if slices.Contains(names, "main.spin") {
					spin++
				}
			}
			if deep != 201 || spin != 1 {
				t.Errorf("main.deep %d times, main.spin %d times", deep, spin)
			}
		})
	}
}

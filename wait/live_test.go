package wait_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/linux/procdir"
	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/wait"
)

// compilers are the ways to build the programs of testdata/targets/locks.
var compilers = map[string][]string{
	"gcc":         {"gcc", "-O2", "-g", "-pthread"},
	"openmp":      {"gcc", "-O2", "-g", "-fopenmp"},
	"static":      {"gcc", "-O2", "-g", "-pthread", "-static"},
	"musl-gcc":    {"musl-gcc", "-O2", "-g", "-pthread"},
	"musl-static": {"musl-gcc", "-O2", "-g", "-pthread", "-static"},
	"g++":         {"g++", "-std=c++17", "-O2", "-g", "-pthread"},
	"rustc":       {"rustc", "--edition=2021", "-C", "opt-level=3", "-g"},
	"go":          {"go", "build", "-buildvcs=false"},
}

// build compiles a program, once for each version of sources and compiler.
func build(t testing.TB, how, source string) string {
	t.Helper()
	args := compilers[how]
	testprog.Need(t, args[0])
	targets := filepath.Join(testprog.Root(t), "testdata", "targets")
	h := sha256.New()
	fmt.Fprintln(h, how, args, runtime.Version())
	for _, pattern := range []string{filepath.Join(targets, "locks", source), filepath.Join(targets, "locks", source, "*"), filepath.Join(targets, "include", "prog.h")} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			if b, err := os.ReadFile(p); err == nil {
				h.Write(b)
			}
		}
	}
	stem, _, _ := strings.Cut(source, ".")
	out := filepath.Join(testprog.CacheDir(t), "locks-"+stem+"-"+how+"@"+hex.EncodeToString(h.Sum(nil)[:8]))
	if _, err := os.Stat(out); err == nil {
		return out
	}
	tmp, err := os.MkdirTemp(testprog.CacheDir(t), "building-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	made := filepath.Join(tmp, "out")
	args = append(args[:len(args):len(args)], "-o", made)
	cmd := exec.Command(args[0], args[1:]...)
	switch args[0] {
	case "go":
		cmd.Args = append(cmd.Args, ".")
		cmd.Dir = filepath.Join(targets, "locks", source)
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	case "rustc":
		cmd.Args = append(cmd.Args, filepath.Join(targets, "locks", source))
	default:
		cmd.Args = append(cmd.Args, "-I"+filepath.Join(targets, "include"), filepath.Join(targets, "locks", source))
	}
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, msg)
	}
	if err := os.Rename(made, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// said is what a target program prints about itself.
type said struct {
	Kind    string
	Lock    string
	Mutex   string
	Holder  stack.TID
	Waiters []stack.TID
}

// named is the output of programs that have one thread for each of several waits.
type named struct {
	Threads []struct {
		Name string
		TID  stack.TID
	}
}

func hexa(t testing.TB, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// view samples one process.
type view struct {
	t    testing.TB
	p    *target.Process
	r    *wait.Resolver
	dir  *procdir.Dir
	sys  *procdir.Dir
	base time.Time
}

func look(t testing.TB, pid int) *view { return lookAs(t, pid, func(*wait.Config) {}) }

// lookAs is look with a Config modified by change.
func lookAs(t testing.TB, pid int, change func(*wait.Config)) *view {
	t.Helper()
	testprog.Need(t, "ptrace")
	v := &view{t: t, base: time.Now()}
	var err error
	if v.p, err = target.Open(pid); err != nil {
		t.Fatal(err)
	}
	if v.dir, err = procdir.Open("/proc/" + strconv.Itoa(pid)); err != nil {
		t.Fatal(err)
	}
	if v.sys, err = procdir.Open("/proc"); err != nil {
		t.Fatal(err)
	}
	c := wait.Config{PID: pid, Arch: runtime.GOARCH, Mem: v.p, Proc: v.dir, Sys: v.sys,
		Monotonic: func() int64 { return int64(time.Since(v.base)) }, Realtime: func() int64 { return time.Now().UnixNano() }}
	if d, err := procdir.OpenDiag(v.dir); err == nil {
		c.Unix = d
		t.Cleanup(func() { d.Close() })
	}
	change(&c)
	v.r = wait.New(c)
	t.Cleanup(func() {
		v.p.Close()
		v.dir.Close()
		v.sys.Close()
	})
	return v
}

// blocked samples a thread until it is blocked in one of the calls (any, if there are
// none), twice in the same wait.
func (v *view) blocked(tid stack.TID, calls ...string) wait.Look {
	v.t.Helper()
	th, err := v.p.Thread(tid)
	if err != nil {
		v.t.Fatalf("thread %d: %v", tid, err)
	}
	v.t.Cleanup(func() { th.Close() })
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		var a, b target.Counters
		var l wait.Look
		if err := th.Counters(&a); err != nil {
			v.t.Fatal(err)
		}
		running, _, sp, err := th.Syscall(&l.Call)
		if err != nil {
			v.t.Fatal(err)
		}
		if l.State, err = th.State(); err != nil {
			v.t.Fatal(err)
		}
		if err := th.Counters(&b); err != nil {
			v.t.Fatal(err)
		}
		name := syscalls.Name(runtime.GOARCH, l.Call.Nr)
		if !running && a == b && (len(calls) == 0 || strings.Contains(strings.Join(calls, " ")+" ", name+" ")) {
			l.TID, l.SP, l.Switches = tid, sp, a.Switches
			l.Still = func() bool {
				var c target.Counters
				return th.Counters(&c) == nil && c == a
			}
			return l
		}
		runtime.Gosched()
	}
	v.t.Fatalf("thread %d does not block in %v", tid, calls)
	return wait.Look{}
}

// resolve samples a thread until the result is complete.
func (v *view) resolve(th *wait.Thread, tid stack.TID, names []string, calls ...string) *wait.Info {
	v.t.Helper()
	return v.resolveAs(th, tid, func(l *wait.Look) {
		if names != nil {
			l.Names = func() []string { return names }
		}
	}, calls...)
}

// resolveAs is resolve with more in each look.
func (v *view) resolveAs(th *wait.Thread, tid stack.TID, more func(*wait.Look), calls ...string) *wait.Info {
	v.t.Helper()
	for range 1000 {
		l := v.blocked(tid, calls...)
		more(&l)
		if info, res := v.r.Resolve(th, &l); res != wait.Torn {
			return info
		}
	}
	v.t.Fatalf("thread %d never holds still", tid)
	return nil
}

// say decodes a program's first line.
func say(t testing.TB, p *testprog.Proc, to any) {
	t.Helper()
	line := p.Line("{")
	d := json.NewDecoder(bytes.NewReader([]byte(line)))
	if err := d.Decode(to); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}

func number(t testing.TB, name string) int32 {
	t.Helper()
	nr, ok := syscalls.Number(runtime.GOARCH, name)
	if !ok {
		t.Fatalf("no system call %s", name)
	}
	return nr
}

package gopcln

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/cfi"
	"github.com/sliverprof/sliver/unwind/rule"
)

const (
	ptraceSeize     = 0x4206
	ptraceInterrupt = 0x4207
	eventStop       = 128        // PTRACE_EVENT_STOP
	waitAll         = 0x40000000 // __WALL
)

func ptrace(req, tid, addr, data uintptr) error {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, req, tid, addr, data, 0, 0); e != 0 {
		return e
	}
	return nil
}

// process is a running target.
type process struct {
	cmd     *exec.Cmd
	pid     int
	mem     *os.File
	modules []module
	golang  *Table
	bias    uint64
}

// Word reads live memory: the relevant threads are stopped.
func (p *process) Word(addr uint64) (uint64, bool) {
	var b [8]byte
	if addr > 1<<62 {
		return 0, false
	}
	n, _ := p.mem.ReadAt(b[:], int64(addr))
	return binary.LittleEndian.Uint64(b[:]), n == 8
}

// start runs a target and waits until it reports that it is ready.
func start(t *testing.T, path string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(path, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%v: %q, %v", cmd, line, err)
	}
	p := &process{cmd: cmd, pid: cmd.Process.Pid}
	if p.mem, err = os.Open(fmt.Sprintf("/proc/%d/mem", p.pid)); err != nil {
		need(t, "ptrace", err.Error())
	}
	t.Cleanup(func() { p.mem.Close() })
	p.loadModules(t, path)
	return p
}

func (p *process) loadModules(t *testing.T, exe string) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(maps), "\n") {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.Contains(f[1], "x") {
			continue
		}
		lo, hi, _ := strings.Cut(f[0], "-")
		m := module{}
		m.lo, _ = strconv.ParseUint(lo, 16, 64)
		m.hi, _ = strconv.ParseUint(hi, 16, 64)
		off, _ := strconv.ParseUint(f[2], 16, 64)
		var r io.ReaderAt
		switch {
		case f[5] == "[vdso]":
			b := make([]byte, m.hi-m.lo)
			if _, err := p.mem.ReadAt(b, int64(m.lo)); err != nil {
				t.Fatal(err)
			}
			r = bytes.NewReader(b)
		case strings.HasPrefix(f[5], "/"):
			file, err := os.Open(f[5])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { file.Close() })
			r = file
		default:
			continue
		}
		ef, err := elf.NewFile(r)
		if err != nil {
			t.Fatal(f[5], err)
		}
		for _, s := range ef.Progs {
			if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 {
				m.bias = m.lo - off + s.Off - s.Vaddr
			}
		}
		if c, err := cfi.Load(r, rule.AMD64); err == nil {
			m.tables = append(m.tables, c)
		}
		if f[5] == exe {
			if m.golang, err = Load(r, rule.AMD64); err != nil {
				t.Fatal(err)
			}
			p.golang, p.bias = m.golang, m.bias
		}
		p.modules = append(p.modules, m)
	}
	if p.golang == nil {
		t.Fatal("no Go module in the maps")
	}
}

func (p *process) tids(t *testing.T) (ids []int) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", p.pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		id, _ := strconv.Atoi(filepath.Base(n))
		ids = append(ids, id)
	}
	return ids
}

// hold stops tid while f runs. If f is nil, it detaches from tid for good. ok is false if the
// thread has ended.
func hold(tid int, f func(regs *syscall.PtraceRegs)) (ok bool, err error) {
	if err := ptrace(ptraceInterrupt, uintptr(tid), 0, 0); err != nil {
		return false, nil
	}
	for {
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(tid, &ws, waitAll, nil); err != nil {
			return false, err
		}
		switch {
		case ws.Exited() || ws.Signaled():
			return false, nil
		case ws.Stopped() && uint32(ws)>>16 == eventStop:
			if f == nil {
				return true, syscall.PtraceDetach(tid)
			}
			var regs syscall.PtraceRegs
			if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
				return false, err
			}
			f(&regs)
			return true, syscall.PtraceCont(tid, 0)
		case ws.Stopped():
			if err := syscall.PtraceCont(tid, int(ws.StopSignal())); err != nil {
				return false, err
			}
			// A stop for a signal replaces the requested one (kernel/signal.c, ptrace_stop).
			if err := ptrace(ptraceInterrupt, uintptr(tid), 0, 0); err != nil {
				return false, nil
			}
		}
	}
}

func regsOf(r *syscall.PtraceRegs) stack.Regs {
	n := stack.Regs{PC: r.Rip, TLS: r.Fs_base}
	for i, v := range [...]uint64{r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.R8, r.R9, r.R10, r.R11, r.R12,
		r.R13, r.R14, r.R15} {
		n.Set(i, v)
	}
	return n
}

// copied is memory copied by spans.
type copied struct {
	spans []rule.Span
	data  [][]byte
}

func (c *copied) add(p *process, spans []rule.Span) {
	for _, s := range spans {
		b := make([]byte, max(s.Len, 0))
		n, _ := p.mem.ReadAt(b, int64(s.Addr))
		c.spans, c.data = append(c.spans, s), append(c.data, b[:max(n, 0)])
	}
}

func (c *copied) Word(addr uint64) (uint64, bool) {
	for i, s := range c.spans {
		if d := addr - s.Addr; d < uint64(len(c.data[i])) && uint64(len(c.data[i]))-d >= 8 {
			return binary.LittleEndian.Uint64(c.data[i][d:]), true
		}
	}
	return 0, false
}

// walkCopy repeats the walk with only the stack and the spans of Plan and More.
func (p *process) walkCopy(s *sampled, th *Thread, r *syscall.PtraceRegs) {
	regs := regsOf(r)
	c := &copied{}
	const redZone = 128 // a caller's rbp may just have been popped, and its rule still reads it there
	c.add(p, []rule.Span{{Addr: r.Rsp - redZone, Len: 256 << 10}})
	th.Peek(p.mem)
	c.add(p, th.Plan(&regs, nil))
	for ; s.asked <= MaxMore; s.asked++ {
		more := th.More(&regs, c, nil)
		if len(more) == 0 {
			break
		}
		c.add(p, more)
	}
	w := walker{arch: rule.AMD64, modules: p.modules, thread: th, mem: c, live: p}
	frames, err := w.walk(regs)
	s.id, _, _, _ = th.Goroutine(c)
	if fmt.Sprint(frames, err) != fmt.Sprint(s.frames, s.err) {
		s.copied = sampled{frames: frames, err: err}.String()
	}
	if s.asked > MaxMore {
		s.copied += "\n\tMore has no end"
	}
}

// sample walks the stacks of the target's threads n times, every second time the main thread's, and
// calls f.
func (p *process) sample(t *testing.T, n int, f func(sampled)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rt := NewRuntime(p.golang, p.bias)
	threads, copies := map[int]*Thread{}, map[int]*Thread{}
	rnd := rand.New(rand.NewSource(1))
	defer func() { // otherwise ending threads would wait for the tracer
		for tid := range threads {
			if _, err := hold(tid, nil); err != nil {
				t.Error(err)
			}
		}
	}()
	spin := 0
	for done := 0; done < n; {
		ids := p.tids(t)
		if len(ids) == 0 {
			t.Fatal("the target ended")
		}
		tid := ids[rnd.Intn(len(ids))]
		if done%2 == 0 {
			tid = p.pid
		}
		th := threads[tid]
		if th == nil {
			if err := ptrace(ptraceSeize, uintptr(tid), 0, 0); err != nil {
				if err == syscall.EPERM && tid == p.pid {
					need(t, "ptrace", err.Error())
				}
				continue
			}
			th = rt.Thread(stack.TID(tid))
			threads[tid], copies[tid] = th, rt.Thread(stack.TID(tid))
		}
		// Let it run for a varying time.
		for i := rnd.Intn(20000); i > 0; i-- {
			spin += i
		}
		s := sampled{tid: tid}
		ok, err := hold(tid, func(r *syscall.PtraceRegs) {
			w := walker{arch: rule.AMD64, modules: p.modules, thread: th, mem: p, live: p}
			s.frames, s.err = w.walk(regsOf(r))
			p.walkCopy(&s, copies[tid], r)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			delete(threads, tid)
			continue
		}
		done++
		f(s)
	}
}

// TestWalkLive walks the threads of programs that spend their time at each kind of place where the
// runtime switches stacks. Every walk must reach a base, and the main thread's must contain the
// function that calls everything, unless the thread is idle.
func TestWalkLive(t *testing.T) {
	testprog.Unraced(t, "its walks are in one goroutine")
	all := []string{"compute", "alloc", "grow", "stack", "gc", "switch", "time", "chan", "map", "signal", "syscall", "panic"}
	for _, c := range []struct {
		build string
		modes []string
	}{
		{"plain", all},
		{"stripped", []string{"stack", "signal", "time", "switch"}},
		{"pie", []string{"stack", "signal", "grow", "time"}},
		{"stripped pie", []string{"stack", "signal", "alloc", "chan"}},
		{"cgo", []string{"call", "back", "deep"}},
		{"cgo external", []string{"call", "back", "deep"}},
		{"cgo stripped pie", []string{"call", "back", "deep"}},
	} {
		modes := c.modes
		if testing.Short() {
			modes = modes[:2]
		}
		for _, mode := range modes {
			t.Run(c.build+"/"+mode, func(t *testing.T) { walkLive(t, build(t, builds[c.build]), mode, 600) })
		}
	}
}

// TestWalkLiveVersions is TestWalkLive for programs built with older Go versions, with and without
// cgo.
func TestWalkLiveVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("the short form takes this version of Go only")
	}
	samples, long := 300, os.Getenv("SLIVER_LONG") != ""
	if long {
		samples = 600
	}
	for v, name := range toolchains {
		// Each form of build compiles the standard library again. The short form has the oldest version, the
		// first with offsets (1.18), and one of the last format.
		if name == "" || !long && v != 16 && v != 18 && v != 25 {
			continue
		}
		for _, mode := range []string{"stack", "signal", "alloc", "time", "panic"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				b := versionBuild(v, "-ldflags=-s -w")
				if v >= 18 {
					b = versionBuild(v, "-buildmode=pie", "-ldflags=-s -w")
				}
				walkLive(t, build(t, b), mode, samples)
			})
		}
		t.Run(name+"/deep", func(t *testing.T) {
			b := versionBuild(v, "-ldflags=-linkmode=external")
			b.prog = "cgo"
			walkLive(t, build(t, b), "deep", samples)
		})
	}
}

// TestWalkEachInstruction walks the main thread's stack at each instruction of programs that switch
// stacks and leave functions in unusual ways. Random samples hit some of these places too rarely to
// test them.
func TestWalkEachInstruction(t *testing.T) {
	testprog.Whole(t, "TestWalkLive has random places")
	testprog.Unraced(t, "its walks are in one goroutine")
	steps := 2_500
	if os.Getenv("SLIVER_LONG") != "" {
		steps = 40_000
	}
	for v, name := range toolchains {
		if name == "" || testing.Short() {
			continue
		}
		t.Run(name+"/recover", func(t *testing.T) {
			walkSteps(t, build(t, versionBuild(v, "-ldflags=-s -w")), "recover", steps)
		})
	}
	for _, mode := range []string{"recover", "panic", "stack", "grow", "syscall", "time", "alloc", "chan", "switch"} {
		t.Run(mode, func(t *testing.T) { walkSteps(t, build(t, builds["plain"]), mode, steps) })
	}
}

func walkSteps(t *testing.T, path, mode string, steps int) {
	p := start(t, path, mode, "locked")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := ptrace(ptraceSeize, uintptr(p.pid), 0, 0); err != nil {
		need(t, "ptrace", err.Error())
	}
	rt := NewRuntime(p.golang, p.bias)
	known := rt.Thread(stack.TID(p.pid))
	if err := ptrace(ptraceInterrupt, uintptr(p.pid), 0, 0); err != nil {
		t.Fatal(err)
	}
	const shown = 3
	wrong, sig := map[uint64]int{}, 0
	// recovery stores the SP and PC at which it continues by two instructions (gp.sched in
	// src/runtime/panic.go). Between them the two do not match. A signal (of the scheduler, to
	// preempt) may arrive there.
	half := map[uint64]bool{}
	recovers := func(s sampled) (pc uint64, ok bool) {
		for i, f := range s.frames {
			if f.name == "runtime.recovery" && (i == 0 || f.exact) {
				return f.pc, true
			}
		}
		return 0, false
	}
	for i := range steps {
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(p.pid, &ws, waitAll, nil); err != nil || !ws.Stopped() {
			t.Fatalf("%v, %#x", err, ws)
		}
		var regs syscall.PtraceRegs
		if err := syscall.PtraceGetRegs(p.pid, &regs); err != nil {
			t.Fatal(err)
		}
		sig = 0
		if s := ws.StopSignal(); s != syscall.SIGTRAP && uint32(ws)>>16 == 0 {
			sig = int(s)
		}
		th := known
		if i%4 == 0 {
			th = rt.Thread(stack.TID(p.pid)) // as at a thread's first sample
		}
		w := walker{arch: rule.AMD64, modules: p.modules, thread: th, mem: p, live: p}
		s := sampled{tid: p.pid}
		s.frames, s.err = w.walk(regsOf(&regs))
		// The goroutine is locked to the thread, so the thread always has it.
		if s.err != nil || !s.has("main.knownCaller") || s.frames[len(s.frames)-1].name != "runtime.goexit" {
			if pc, ok := recovers(s); ok {
				half[pc] = true
			} else if wrong[regs.Rip]++; wrong[regs.Rip] == 1 && len(wrong) <= shown {
				t.Logf("at %#x:%v", regs.Rip, s)
			}
		}
		if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, syscall.PTRACE_SINGLESTEP, uintptr(p.pid), 0, uintptr(sig), 0, 0); e != 0 {
			t.Fatal(e)
		}
	}
	if len(wrong) > 0 || len(half) > 1 {
		t.Errorf("%d instructions where the walk is not complete, and %d of recovery", len(wrong), len(half))
	}
}

func walkLive(t *testing.T, path, mode string, samples int) {
	p := start(t, path, mode, "locked")
	const shown = 5
	bad, bare, idle, lost, seen := 0, 0, 0, 0, map[string]int{}
	copies, asked, ids := 0, [3]int{}, map[uint64]bool{}
	p.sample(t, samples, func(s sampled) {
		if s.copied != "" {
			if copies++; copies <= shown {
				t.Logf("walk:%v\nfrom a copy:%s", s, s.copied)
			}
		}
		asked[min(s.asked, 2)]++
		if s.tid == p.pid && s.id != 0 {
			ids[s.id] = true
		}
		if in, out := s.count("runtime.asmcgocall"), s.count("runtime.cgocallback"); s.err == nil && s.tid == p.pid &&
			(in < out || in > out+1) {
			t.Errorf("%d calls to C, %d back:%v", in, out, s)
		}
		switch {
		case errors.Is(s.err, rule.ErrNoRule) && len(s.frames) == 1:
			// C code that Go's own linker added lacks call frame information, and it has no frame
			// pointer yet in its first instructions.
			bare++
		case s.err != nil:
			if bad++; bad <= shown {
				t.Logf("walk fails:%v", s)
			}
		case s.frames[len(s.frames)-1].step == Base:
			idle++ // in the scheduler, between two goroutines
		case s.tid == p.pid && (!s.has("main.knownCaller") || s.frames[len(s.frames)-1].name != "runtime.goexit"):
			if lost++; lost <= shown {
				t.Logf("walk misses main.knownCaller or runtime.goexit:%v", s)
			}
		}
		for _, f := range s.frames {
			seen[f.name]++
		}
	})
	t.Logf("%d walks, %d fail, %d in C without rules, %d miss the caller, %d idle; systemstack %d, mcall %d, morestack %d, asmcgocall %d, cgocallback %d, sigtramp %d",
		samples, bad, bare, lost, idle, seen["runtime.systemstack"], seen["runtime.mcall"], seen["runtime.morestack"],
		seen["runtime.asmcgocall"], seen["runtime.cgocallback"], seen["runtime.sigtramp"])
	t.Logf("%d walks over a copy differ, %d needed a second read, %d more", copies, asked[1], asked[2])
	if copies > samples/50 && mode != "grow" { // other tests cover stacks of 600 KB
		t.Errorf("%d of %d walks over a copy differ", copies, samples)
	}
	if delete(ids, 1); len(ids) > 0 {
		t.Errorf("goroutines %v on the main thread, want 1", ids)
	}
	if bad+lost > samples/200 || bare > samples/50 {
		t.Errorf("%d of %d walks are not complete, and %d in C without rules", bad+lost, samples, bare)
	}
}

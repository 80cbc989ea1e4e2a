package agree

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// A trace is one thread's stack as one side reads it.
type trace struct {
	pcs   []uint64 // leaf first: the PC, then return addresses
	names []string // for messages
	cut   string   // why it ends before the thread's first function; "": complete
}

// noCode ends the reason of a trace that was cut at an address.
const noCode = " is no code"

// interrupted ends the name of one of our frames that a signal interrupted.
const interrupted = ", interrupted by a signal"

func (a trace) same(b trace) bool { return slices.Equal(a.pcs, b.pcs) && a.cut == b.cut }

// within cuts a trace before the first address that is not code: an oracle without call
// frame information guesses, and does not report it. The frames before that it guessed too,
// as callers of code that no file describes (of a JIT compiler), are cut as well.
func (a trace) within(code []stack.Mapping) trace {
	at := func(i int) int {
		pc := a.pcs[i]
		if i > 0 {
			pc-- // a call may be the last instruction
		}
		return slices.IndexFunc(code, func(m stack.Mapping) bool { return m.Start <= pc && pc < m.End })
	}
	for i, pc := range a.pcs {
		if at(i) >= 0 {
			continue
		}
		n := i
		for n > 1 && code[at(n-2)].Inode == 0 {
			n--
		}
		return trace{a.pcs[:n], a.names[:n], fmt.Sprintf("%#x%s", pc, noCode)}
	}
	return a
}

func TestWithin(t *testing.T) {
	code := []stack.Mapping{{Start: 10, End: 20, Inode: 5}, {Start: 30, End: 40}}
	for _, c := range []struct {
		name string
		pcs  []uint64
		left int
	}{
		{"all code", []uint64{11, 31, 12}, 3},
		{"a call that ends a mapping", []uint64{11, 20}, 2},
		{"not code", []uint64{11, 12, 25}, 2},
		{"the caller of JIT code is a guess", []uint64{31, 12, 25}, 1},
		{"and its caller, if that is JIT code too", []uint64{11, 31, 32, 12, 25}, 2},
		{"JIT code itself", []uint64{11, 31, 25}, 2},
		{"nothing is code", []uint64{5, 11}, 0},
	} {
		if x := (trace{pcs: c.pcs, names: make([]string, len(c.pcs))}).within(code); len(x.pcs) != c.left || (x.cut != "") != (c.left < len(c.pcs)) {
			t.Errorf("%s: %v, %q, not %d frames", c.name, x.pcs, x.cut, c.left)
		}
	}
}

// codeOf returns the executable mappings of a process.
func codeOf(pid int) ([]stack.Mapping, error) {
	proc, err := target.Open(pid)
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	maps, err := proc.Maps()
	return slices.DeleteFunc(maps, func(m stack.Mapping) bool { return !m.Exec }), err
}

// ours walks the stacks of a stopped process in the same way as a recording with
// --stop=always: package live passes the sampler target's copies.
func ours(pid int) (map[int]trace, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	proc, err := target.Open(pid)
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	tg, err := live.New(proc, nil)
	if err != nil {
		return nil, err
	}
	tr, err := tg.Engine(target.MaxStack)
	if err != nil {
		return nil, err
	}
	defer tr.Close()
	tids, err := tg.Threads(nil)
	if err != nil {
		return nil, err
	}
	w := unwind.NewWalker(tg.Space())
	out := map[int]trace{}
	for _, tid := range tids {
		x, err := one(tg, tr, w, tid)
		if err != nil {
			return nil, fmt.Errorf("thread %d: %w", tid, err)
		}
		out[int(tid)] = x
	}
	return out, nil
}

// looks is how often a thread is sampled before its stack counts as the profiler's
// result: the first samples learn how much to copy.
const looks = 4

func one(tg *live.Target, tr sampler.Engine, w *unwind.Walker, tid stack.TID) (trace, error) {
	th, err := tg.Open(&stack.ThreadInfo{TID: tid})
	if err != nil {
		return trace{}, err
	}
	defer th.Close()
	info, err := tg.Info(tid)
	if err != nil {
		return trace{}, err
	}
	known := &unwind.Thread{TID: stack.TID(info.NSTID)}
	v := &sampler.View{Deadline: patience.Nanoseconds()}
	v.More = func(regs *stack.Regs, mem *unwind.Copy) []stack.Span {
		spans, _ := w.More(known, regs, mem)
		return spans
	}
	var (
		frames []stack.Frame
		why    stack.Reason
	)
	for range looks {
		v.Spans = w.Plan(known)
		v.StackLow, v.StackHigh, v.StackDefault = w.StackPlan(known)
		if err := tr.Stop(th, v); err != nil {
			return trace{}, err
		}
		frames, why = w.Walk(known, v.Regs, &v.Mem)
		if why == stack.ReasonNone {
			break
		}
	}
	frames = slices.Clone(frames)
	if why == stack.ReasonNone {
		lookBlind(tg, known, v, frames)
	}
	var x trace
	for i, f := range frames {
		if f.Kind != stack.KindError {
			name := f.Kind.String() + " by " + f.Trust.String()
			if i > 0 && f.Exact {
				name += interrupted
			}
			x.pcs = append(x.pcs, f.PC)
			x.names = append(x.names, name)
		}
	}
	if why != stack.ReasonNone {
		x.cut = fmt.Sprintf("%v; the leaf's SP is %#x", why, v.Regs.R[tg.Space().Arch().SP()])
	}
	return x, nil
}

// tool runs an oracle and ignores its exit status, as the output is enough.
func tool(path string, args ...string) (out, errs []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	// No search for debug files over the network, and no user settings.
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=", "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // Pdeathsig applies to the thread
	defer runtime.UnlockOSThread()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	if _, ended := err.(*exec.ExitError); ended && ctx.Err() == nil {
		err = nil
	}
	return o.Bytes(), e.Bytes(), err
}

// euStack runs eu-stack. Its addresses are the return addresses themselves.
func euStack(t testing.TB, pid int) (map[int]trace, error) {
	out, errs, err := tool(testprog.Tool(t, "eu-stack"), "-n", "0", "-p", strconv.Itoa(pid))
	if err != nil {
		return nil, err
	}
	traces := map[int]trace{}
	tid := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "TID":
			if tid, err = strconv.Atoi(strings.TrimSuffix(f[1], ":")); err != nil {
				return nil, fmt.Errorf("eu-stack: %q", line)
			}
			traces[tid] = trace{}
		case len(f) >= 2 && f[0][0] == '#':
			pc, err := strconv.ParseUint(f[1], 0, 64)
			if err != nil {
				return nil, fmt.Errorf("eu-stack: %q", line)
			}
			x := traces[tid]
			x.pcs = append(x.pcs, pc)
			x.names = append(x.names, strings.Join(f[2:], " "))
			traces[tid] = x
		}
	}
	// Format: "eu-stack: dwfl_thread_getframes tid 7 at 0x… in FILE: why"
	for line := range strings.Lines(string(errs)) {
		_, rest, ok := strings.Cut(line, "dwfl_thread_getframes tid ")
		if !ok {
			continue
		}
		id, why, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if n, err := strconv.Atoi(id); err == nil {
			x := traces[n]
			x.cut = why
			traces[n] = x
		}
	}
	if len(traces) == 0 {
		return nil, fmt.Errorf("eu-stack: no threads; it says %q", errs)
	}
	return traces, nil
}

// gdbScript prints every physical frame. Frames that gdb derives from debug information
// (inlined calls, tail calls) share the PC of a printed frame or have none. main is not
// the end: its callers are real.
const gdbScript = `import gdb
for s in ("pagination off", "confirm off", "backtrace past-main on", "backtrace limit 100000", "width 0"):
    gdb.execute("set " + s)
for th in gdb.selected_inferior().threads():
    th.switch()
    print("T %d" % th.ptid[1])
    try:
        f = gdb.newest_frame()
        while f is not None:
            if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                print("F %d %s" % (f.pc(), f.name()))
            last, f = f, f.older()
        if last.unwind_stop_reason() > gdb.FRAME_UNWIND_OUTERMOST:
            print("E " + gdb.frame_stop_reason_string(last.unwind_stop_reason()))
    except gdb.error as e:
        print("E " + str(e).replace("\n", " "))
print("done")
`

// gdbFrames runs gdb.
func gdbFrames(t testing.TB, pid int) (map[int]trace, error) {
	script := filepath.Join(t.TempDir(), "frames.py")
	if err := os.WriteFile(script, []byte(gdbScript), 0o644); err != nil {
		return nil, err
	}
	out, errs, err := tool(testprog.Tool(t, "gdb"), "-nx", "-batch", "-iex", "set auto-load off", "-p", strconv.Itoa(pid), "-x", script)
	if err != nil {
		return nil, err
	}
	traces := map[int]trace{}
	tid, done := 0, false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		kind, rest, _ := strings.Cut(line, " ")
		x := traces[tid]
		switch kind {
		case "T":
			if tid, err = strconv.Atoi(rest); err != nil {
				continue // other output
			}
			x = trace{}
		case "F":
			pc, name, _ := strings.Cut(rest, " ")
			n, err := strconv.ParseUint(pc, 10, 64)
			if err != nil {
				continue
			}
			x.pcs, x.names = append(x.pcs, n), append(x.names, name)
		case "E":
			x.cut = rest
		case "done":
			done = true
			continue
		default:
			continue
		}
		traces[tid] = x
	}
	if !done || len(traces) == 0 {
		return nil, fmt.Errorf("gdb did not print the stacks (built without Python?); it says %q", errs)
	}
	return traces, nil
}

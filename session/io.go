package session

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/session/canary"
	"github.com/sliverprof/sliver/session/oneshot"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// IOOptions have the I/O operations of the process recorded, beside the samples.
type IOOptions struct {
	Rules  iowatch.Config
	Slower time.Duration // shorter reads and writes are only in the sums
	// ToEntry, if not nil, lets a command that is held run to its entry, where its libraries are mapped and its runtime is
	// known: see target.Command. Members of a family have none.
	ToEntry func() error
}

// ioLog writes the I/O of a process to its recording. Its fields belong to its own goroutine.
type ioLog struct {
	o    *IOOptions
	c    *canary.Canary
	rec  *trace.Recorder
	stop context.CancelFunc
	done chan struct{}
	err  error     // of Run, after done
	last *trace.IO // the newest accounts, after done

	began   stack.Time
	files   map[string]int
	calls   map[string]int
	frames  map[trace.IOFrame]int
	stacks  int                     // written stacks
	ids     map[iowatch.StackID]int // stacks by number of the canary
	want    []iowatch.StackID       // stacks that are not written yet, in the order of their numbers
	names   trace.IONames           // not written yet
	ops     []trace.IOOp
	written time.Time // of the accounts
	dropped uint64    // files beyond maxIOPaths
}

// Bounds of the recording.
const (
	maxIOPaths  = 1 << 17 // different paths
	maxIORows   = 5000    // rows of the table of files
	ioBatch     = 1 << 14 // operations that wait for the next second
	accountsFor = 10 * time.Second
)

// logIO begins to record I/O. If this user or kernel cannot load the programs, the recording says so
// and goes on without. ring is that of kernel.IOOptions.
func logIO(p *target.Process, o *IOOptions, names oneshot.Options, rec *trace.Recorder, ring int) (*ioLog, error) {
	ctx, stop := context.WithCancel(context.Background())
	x := &ioLog{o: o, rec: rec, stop: stop, done: make(chan struct{}), files: map[string]int{}, calls: map[string]int{},
		frames: map[trace.IOFrame]int{}, ids: map[iowatch.StackID]int{}, written: time.Now()}
	opened := make(chan error, 1)
	go func() {
		defer close(x.done)
		// The canary belongs to one thread, which ends with this goroutine.
		runtime.LockOSThread()
		x.began = target.Now()
		var err error
		x.c, err = canary.Open(p, canary.Options{Rules: o.Rules, Names: names, Each: x.each, Slower: o.Slower, Ring: ring})
		if canary.Refused(err) {
			x.last = noIO(rec, strings.TrimPrefix(err.Error(), "watch I/O: "))
			err = nil
		}
		if err == nil && x.c != nil && o.ToEntry != nil && o.ToEntry() == nil {
			x.c.Loaded()
		}
		opened <- err
		if x.c == nil {
			return
		}
		defer x.c.Close()
		x.err = x.c.Run(ctx, x.tick)
		x.flush()
		x.account()
	}()
	if err := <-opened; err != nil {
		stop()
		return nil, err
	}
	return x, nil
}

// noIO writes why I/O was not recorded.
func noIO(rec *trace.Recorder, why string) *trace.IO {
	now := target.Now()
	x := &trace.IO{At: now, Began: now, Lost: []string{"I/O was not recorded: " + why}}
	rec.IO(x)
	return x
}

// each takes an operation.
func (x *ioLog) each(r *kernel.IORecord, path string, kind iowatch.Kind) {
	if r.Sort == iowatch.OpNone || r.Sort > iowatch.OpClose && r.Sort != iowatch.OpConnect && r.Sort != iowatch.OpFault && r.Sort != iowatch.OpCall {
		return
	}
	o := trace.IOOp{TID: r.TID, Op: r.Sort, Begin: r.End - stack.Time(r.Took), Took: r.Took, Queued: r.Queued, FD: r.FD, File: x.file(path, kind), Call: x.call(r.Call),
		Want: r.Want, Ret: r.Ret, Stack: x.stack(r.Event.Stack), Missed: r.Missed}
	if x.ops = append(x.ops, o); len(x.ops) >= ioBatch {
		x.flushOps()
	}
}

func (x *ioLog) file(path string, kind iowatch.Kind) int {
	if path == "" {
		path = kind.String()
	}
	n, ok := x.files[path]
	if !ok {
		if len(x.files) >= maxIOPaths {
			x.dropped++
			return -1
		}
		n = len(x.files)
		x.files[path] = n
		x.names.Files = append(x.names.Files, trace.IOPath{Path: path, Kind: kind.String()})
	}
	return n
}

func (x *ioLog) call(name string) int {
	n, ok := x.calls[name]
	if !ok {
		n = len(x.calls)
		x.calls[name] = n
		x.names.Calls = append(x.names.Calls, name)
	}
	return n
}

// stack returns the number of a stack. Its frames are written with the next names.
func (x *ioLog) stack(id iowatch.StackID) int {
	if id == 0 {
		return -1
	}
	n, ok := x.ids[id]
	if !ok {
		n = len(x.ids)
		x.ids[id] = n
		x.want = append(x.want, id)
	}
	return n
}

func (x *ioLog) tick() {
	x.flush()
	if time.Since(x.written) >= accountsFor {
		x.account()
	}
}

func (x *ioLog) flushOps() {
	if len(x.ops) > 0 {
		x.rec.Ops(x.ops)
		x.ops = x.ops[:0]
	}
}

// flush writes what waits.
func (x *ioLog) flush() {
	x.flushOps()
	x.flushNames()
}

func (x *ioLog) flushNames() {
	n := &x.names
	n.First = [4]int{len(x.files) - len(n.Files), len(x.calls) - len(n.Calls), len(x.frames), x.stacks}
	for _, id := range x.want {
		frames, why := x.c.Stacks.Frames(uint32(id))
		var s trace.IOStack
		for i, runtime := range stacks.Runtime(frames) {
			f := &frames[i]
			if runtime {
				s.Hidden = append(s.Hidden, i)
			}
			name := f.Func
			if f.Kind == stack.KindError {
				name = iowatch.Gap + name
			}
			s.Frames = append(s.Frames, x.frame(trace.IOFrame{Func: name, File: f.File, Line: f.Line, Module: f.Module, Addr: f.Addr}))
		}
		if why != stack.ReasonNone {
			s.Cut = why.String()
		} else if !x.c.Stacks.Complete(uint32(id)) {
			s.Cut = "frames of the runtime are missing"
		}
		n.Stacks = append(n.Stacks, s)
	}
	x.stacks += len(n.Stacks)
	if len(n.Files)+len(n.Calls)+len(n.Stacks) > 0 {
		x.rec.IONames(n)
	}
	x.want = x.want[:0]
	*n = trace.IONames{}
}

func (x *ioLog) frame(f trace.IOFrame) int {
	n, ok := x.frames[f]
	if !ok {
		n = len(x.frames)
		x.frames[f] = n
		x.names.Frames = append(x.names.Frames, f)
	}
	return n
}

// account writes the sums and findings so far, and the names that they need.
func (x *ioLog) account() {
	x.written = time.Now()
	a := &trace.IO{At: target.Now(), Began: x.began, Slow: int64(x.o.Rules.Slow), Slower: int64(x.o.Slower), Skipped: x.c.Skipped(), Lost: x.c.Losses()}
	files := x.c.Engine.Files()
	if n := len(files) - maxIORows; n > 0 {
		files = files[:maxIORows]
		a.MoreFiles = n
	}
	for i := range files {
		f := &files[i]
		a.Files = append(a.Files, trace.IOFile{File: x.file(f.Path, f.Kind), Opens: f.Opens, Open: f.Open, Ops: f.Ops, Syncs: f.Syncs, Want: f.Want,
			Read: f.Got - f.Written, Written: f.Written, Time: f.Time, P50: iowatch.Percentile(&f.Hist, .5), P99: iowatch.Percentile(&f.Hist, .99),
			Max: f.Longest, Misses: f.Misses, Missed: f.Missed, Faults: f.Faults, Faulted: f.Faulted, Stack: x.stack(f.Stack)})
	}
	for _, f := range x.c.Rings() {
		if len(a.Rings) == maxIORows {
			break
		}
		a.Rings = append(a.Rings, trace.IORing{Path: f.Path, Ops: f.Ops, Syncs: f.Syncs, Others: f.Others, Errors: f.Errors, Read: f.Read, Written: f.Written, Time: f.Time, Max: f.Longest})
	}
	for _, f := range x.c.Engine.Findings() {
		a.Findings = append(a.Findings, trace.IOFinding{Rule: string(f.Rule), At: f.At, TID: f.TID, Thread: x.c.Thread(f.TID), Path: f.Path,
			Kind: f.Kind.String(), Size: f.Size, Ops: f.Ops, Buffer: f.Buffer, Cost: f.Cost, Longest: f.Longer, First: f.First.String(), Want: f.Bytes,
			Count: f.Count, Stack: x.stack(f.Stack), Where: x.stack(f.Where), Advice: f.Advice()})
	}
	for _, n := range x.c.Counts() {
		a.Calls = append(a.Calls, trace.IOCalls{Call: n.Name, Calls: n.Calls, Errors: n.Errors, Time: n.Time})
	}
	x.flushNames()
	x.rec.IO(a)
	x.last = a
}

// end stops watching and writes the rest. It may be called again.
func (x *ioLog) end() error {
	x.stop()
	<-x.done
	return x.err
}

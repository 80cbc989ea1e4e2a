package exporttest

import (
	"slices"
	"strings"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Op adds an I/O operation of a thread on a file, which moved n bytes of twice as many. from and to are
// in ns after Start. where has the functions of its stack, leaf first; "": it has none.
func (b *Builder) Op(tid int, op iowatch.Op, path string, from, to, n int64, where string) {
	x := b.input()
	file := b.ioFile(path)
	call := slices.Index(b.ioNames.Calls, op.String())
	if call < 0 {
		call = len(b.ioNames.Calls)
		b.ioNames.Calls = append(b.ioNames.Calls, op.String())
	}
	b.ops = append(b.ops, trace.IOOp{TID: stack.TID(tid), Op: op, Begin: Start + stack.Time(from), Took: to - from, FD: int32(3 + file), File: file, Call: call,
		Want: 2 * n, Ret: n, Stack: b.ioStack(where)})
	f := &x.Files[file]
	switch op {
	case iowatch.OpOpen:
		f.Opens++
		f.Stack = b.ioStack(where)
		return
	case iowatch.OpSync:
		f.Syncs++
	case iowatch.OpFault:
		f.Faults, f.Faulted = f.Faults+1, f.Faulted+uint64(to-from)
		return
	case iowatch.OpWrite:
		f.Ops, f.Written = f.Ops+1, f.Written+uint64(n)
	default:
		f.Ops, f.Read = f.Ops+1, f.Read+uint64(n)
	}
	f.Want += 2 * uint64(n)
	f.Time += uint64(to - from)
	f.Max = max(f.Max, uint64(to-from))
	f.P50, f.P99 = int64(f.Max/2), int64(f.Max)
}

// Miss adds a read that waited for storage.
func (b *Builder) Miss(tid int, path string, from, to, n int64) {
	b.Op(tid, iowatch.OpRead, path, from, to, n, "")
	b.ops[len(b.ops)-1].Missed = true
	f := &b.io.Files[b.ioFile(path)]
	f.Misses, f.Missed = f.Misses+1, f.Missed+uint64(to-from)
}

// Ring adds a file that io_uring used.
func (b *Builder) Ring(r trace.IORing) {
	x := b.input()
	x.Rings = append(x.Rings, r)
}

// Finding adds a finding of main-io about a file. at is in ns after Start, and longest in ns.
func (b *Builder) Finding(tid int, path string, at, longest int64, opened, where string) {
	x := b.input()
	x.Findings = append(x.Findings, trace.IOFinding{Rule: "main-io", At: Start + stack.Time(at), TID: stack.TID(tid), Thread: "main", Path: path, Kind: "file", Size: 1000,
		Ops: 2, Buffer: 200, Cost: longest, Longest: longest, First: "read", Want: 300, Count: 1, Stack: b.ioStack(opened), Where: b.ioStack(where),
		Advice: "One operation on " + path + " held the main thread: move it to another thread."})
}

func (b *Builder) input() *trace.IO {
	if b.io == nil {
		b.io = &trace.IO{Began: Start, Slow: 13 * Ms}
	}
	return b.io
}

func (b *Builder) ioFile(path string) int {
	i := slices.IndexFunc(b.ioNames.Files, func(f trace.IOPath) bool { return f.Path == path })
	if i < 0 {
		i = len(b.ioNames.Files)
		b.ioNames.Files = append(b.ioNames.Files, trace.IOPath{Path: path, Kind: "file"})
		b.io.Files = append(b.io.Files, trace.IOFile{File: i, Stack: -1})
	}
	return i
}

func (b *Builder) ioStack(where string) int {
	if where == "" {
		return -1
	}
	s := trace.IOStack{}
	for _, name := range strings.Fields(where) {
		f := trace.IOFrame{Func: name, File: "/src/" + name + ".c", Line: 7, Module: "/usr/bin/work"}
		i := slices.Index(b.ioNames.Frames, f)
		if i < 0 {
			i = len(b.ioNames.Frames)
			b.ioNames.Frames = append(b.ioNames.Frames, f)
		}
		s.Frames = append(s.Frames, i)
	}
	i := slices.IndexFunc(b.ioNames.Stacks, func(o trace.IOStack) bool { return slices.Equal(o.Frames, s.Frames) })
	if i < 0 {
		i = len(b.ioNames.Stacks)
		b.ioNames.Stacks = append(b.ioNames.Stacks, s)
	}
	return i
}

package query

import (
	"strings"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/trace"
)

// ioTables are those of I/O. thread, ts, dur and process are the columns that tables share.
func ioTables(ts, dur, process Column) []Table {
	tid := Column{"tid", "INTEGER", "of the thread"}
	thread := Column{"thread", "INTEGER", "threads.id; NULL if the thread was not sampled"}
	path := Column{"file", "TEXT", "path, or kind of descriptor"}
	kind := Column{"kind", "TEXT", "file, directory, pipe, socket, …"}
	requested := Column{"requested", "INTEGER", "bytes"}
	return []Table{
		{"io", "I/O operations that succeeded, and slow calls (`sliver record --io`)", []Column{
			tid, thread, ts, dur, {"op", "TEXT", "read, write, sync, open, make (a socket, pipe, …), close, connect, fault (a page of a mapped file was read), call (flock, stat, rename …, only slow ones)"}, {"call", "TEXT", "system call"},
			path, kind, {"fd", "INTEGER", "descriptor; NULL of a fault, and of a call on a path"}, {"requested", "INTEGER", "bytes; NULL if it moves none"}, {"bytes", "INTEGER", "that were read or written"},
			{"missed", "INTEGER", "1: a read waited, since the page cache did not have the data"},
			{"queued", "INTEGER", "ns of dur in which the thread waited for a CPU or, in a sendfile or splice, for the peer of the other descriptor: rules and sums leave them out"},
			{"stack", "TEXT", "functions, leaf first, with ' < ' between them; NULL for quick operations"}, process}},
		{"io_files", "the files of `io`, with all operations; of the whole recording", []Column{
			path, kind, {"opens", "INTEGER", ""}, {"open", "INTEGER", "descriptors that were open at the end"}, {"ops", "INTEGER", "reads and writes"}, {"syncs", "INTEGER", ""},
			requested, {"read", "INTEGER", "bytes"}, {"written", "INTEGER", "bytes"}, {"dur", "INTEGER", "ns in reads, writes and syncs, without waits for a CPU"},
			{"p50", "INTEGER", "ns, at most half too high"}, {"p99", "INTEGER", "the same"}, {"longest", "INTEGER", "ns"},
			{"misses", "INTEGER", "reads that waited, since the page cache did not have the data"}, {"missed", "INTEGER", "ns in those"},
			{"faults", "INTEGER", "major page faults in the mapped file"}, {"faulted", "INTEGER", "ns in those"}, {"stack", "TEXT", "of the last open, as in io"}, process}},
		{"io_uring", "the files that io_uring used, which passes by the system calls of `io`; of the whole recording", []Column{
			path, {"ops", "INTEGER", "reads and writes"}, {"syncs", "INTEGER", ""}, {"others", "INTEGER", "accepts, opens, polls …"}, {"errors", "INTEGER", ""},
			{"read", "INTEGER", "bytes"}, {"written", "INTEGER", "bytes"}, {"dur", "INTEGER", "ns from submissions to completions"}, {"longest", "INTEGER", "ns"}, process}},
		{"findings", "slow and wasteful uses of files, by the rules of docs/io.md", []Column{
			{"rule", "TEXT", "main-io, small-buffer, …"}, {"advice", "TEXT", "what to change"}, path, tid, thread, {"name", "TEXT", "of the thread"}, ts,
			{"ops", "INTEGER", "reads and writes"}, requested, {"buffer", "INTEGER", "most bytes requested at once"}, {"size", "INTEGER", "of the file, in bytes; NULL if unknown"},
			dur, {"longest", "INTEGER", "ns of the longest operation or run"}, {"count", "INTEGER", "times; main-io and loop-io: 1 a slow operation, 2 a slow run, 3 both"},
			{"opened", "TEXT", "stack of the open, as in io"}, {"stack", "TEXT", "stack of the operation, as in io"}, process}},
	}
}

// io writes the operations, files and findings.
func (f *filler) io() {
	if f.v.Rec.IO == nil && !f.v.Rec.HasOps() || !f.asked("io", "io_files", "io_uring", "findings") {
		return
	}
	stacks := map[int]any{}
	text := func(stack int) any {
		if stack < 0 {
			return nil
		}
		t, ok := stacks[stack]
		if !ok {
			lines, cut := f.v.IOStack(stack)
			if cut != "" {
				lines = append(lines, "… "+cut)
			}
			t = orNull(strings.Join(lines, " < "))
			if len(stacks) < maxStackTexts {
				stacks[stack] = t
			}
		}
		return t
	}
	names := &f.v.Rec.IONames
	kind := func(file int) any {
		if file < 0 || file >= len(names.Files) {
			return nil
		}
		return orNull(view.Text(names.Files[file].Kind, 64))
	}
	thread := func(i int) any {
		if i < 0 {
			return nil
		}
		return f.thread(f.v.Threads[i].Seq)
	}
	if f.asked("io") {
		f.v.Ops(func(o *view.Op) bool {
			var want, got, fd any
			if o.Op == iowatch.OpRead || o.Op == iowatch.OpWrite {
				want, got = o.Want, o.Ret
			}
			if o.Op != iowatch.OpFault && o.FD >= 0 {
				fd = int64(o.FD)
			}
			missed := int64(0)
			if o.Missed {
				missed = 1
			}
			f.row("io", int64(o.TID), thread(o.Thread), f.ts(o.Begin), o.Took, o.Op.String(), orNull(view.Text(names.Call(o.Call), 64)), orNull(f.v.IOPath(o.File)),
				kind(o.File), fd, want, got, missed, o.Queued, text(o.Stack), f.process)
			return f.err == nil
		})
	}
	if f.v.Rec.IO == nil {
		return
	}
	if f.asked("io_files") {
		for i := range f.v.Rec.IO.Files {
			x := &f.v.Rec.IO.Files[i]
			f.row("io_files", orNull(f.v.IOPath(x.File)), kind(x.File), int64(x.Opens), x.Open, int64(x.Ops), int64(x.Syncs), int64(x.Want), int64(x.Read),
				int64(x.Written), int64(x.Time), x.P50, x.P99, int64(x.Max), int64(x.Misses), int64(x.Missed), int64(x.Faults), int64(x.Faulted), text(x.Stack), f.process)
		}
	}
	f.rings()
	if f.asked("findings") {
		f.v.Findings(func(x *trace.IOFinding, i int) bool {
			var size any
			if x.Size >= 0 {
				size = x.Size
			}
			f.row("findings", view.Text(x.Rule, 64), view.Text(x.Advice, view.MaxName), orNull(view.Text(x.Path, view.MaxName)), int64(x.TID), thread(i),
				view.Text(x.Thread, 256), f.ts(x.At), int64(x.Ops), int64(x.Want), int64(x.Buffer), size, x.Cost, x.Longest, x.Count, text(x.Stack), text(x.Where), f.process)
			return f.err == nil
		})
	}
}

// rings writes the sums of io_uring.
func (f *filler) rings() {
	if !f.asked("io_uring") {
		return
	}
	for i := range f.v.Rec.IO.Rings {
		x := &f.v.Rec.IO.Rings[i]
		f.row("io_uring", orNull(view.Text(x.Path, view.MaxName)), int64(x.Ops), int64(x.Syncs), int64(x.Others), int64(x.Errors), int64(x.Read), int64(x.Written),
			int64(x.Time), int64(x.Max), f.process)
	}
}

// maxStackTexts bounds the stacks whose texts are kept.
const maxStackTexts = 1 << 16

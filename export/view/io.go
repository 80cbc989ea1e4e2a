package view

import (
	"fmt"
	"strings"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Op is an I/O operation.
type Op struct {
	trace.IOOp
	Thread int // position in View.Threads; -1: the thread was not sampled
}

// Ops yields the I/O operations that were under way in the view, those of one thread in the order in
// which they ended. Those of threads that were not sampled are there if no threads were chosen.
func (v *View) Ops(yield func(*Op) bool) {
	if v.Rec.IO == nil && !v.Rec.HasOps() {
		return
	}
	of := v.threadsByNumber()
	for o, err := range v.Rec.Ops() {
		if err != nil || o.End() < v.from || o.Begin > v.to {
			continue
		}
		i, chosen := of(o.TID, o.End())
		if !chosen {
			continue
		}
		if !yield(&Op{o, i}) {
			return
		}
	}
}

// Findings yields the findings of I/O in the view, with the position of their thread as in Op.
func (v *View) Findings(yield func(f *trace.IOFinding, thread int) bool) {
	if v.Rec.IO == nil {
		return
	}
	of := v.threadsByNumber()
	for i := range v.Rec.IO.Findings {
		f := &v.Rec.IO.Findings[i]
		if f.At < v.from || f.At > v.to {
			continue
		}
		if th, chosen := of(f.TID, f.At); chosen && !yield(f, th) {
			return
		}
	}
}

// threadsByNumber returns a function that finds a thread's position in v.Threads by its number at a
// time; -1: it was not sampled. Threads that were not chosen are not.
func (v *View) threadsByNumber() func(tid stack.TID, t stack.Time) (i int, chosen bool) {
	position := map[int]int{} // in View.Threads, by Seq
	for i := range v.Threads {
		position[v.Threads[i].Seq] = i
	}
	known := map[stack.TID]int{} // the only thread that had a number
	all := len(v.Threads) == len(v.Rec.Threads)
	return func(tid stack.TID, t stack.Time) (int, bool) {
		k, ok := known[tid]
		if !ok {
			k = v.Rec.ThreadOf(tid, t)
			if len(known) < maxKnown && v.sharing(tid) <= 1 {
				known[tid] = k
			}
		}
		if k < 0 {
			return -1, all
		}
		i, is := position[v.Rec.Threads[k].Seq]
		return i, is
	}
}

// maxKnown bounds the thread numbers that are kept.
const maxKnown = 1 << 16

// IOStack returns the functions of an operation's stack, leaf first, each with its place, and why the
// stack is not complete.
func (v *View) IOStack(stack int) (lines []string, cut string) {
	return v.ioLines(v.Rec.IONames.Stack(stack, false))
}

// IOCallers is IOStack from the innermost function of the program itself on: see iowatch.Caller.
func (v *View) IOCallers(stack int) (lines []string, cut string) {
	frames, cut := v.Rec.IONames.Stack(stack, false)
	own := iowatch.Caller(len(frames), func(i int) iowatch.Frame {
		return iowatch.Frame{Func: frames[i].Func, File: frames[i].File, Module: frames[i].Module}
	})
	return v.ioLines(frames[own:], cut)
}

func (v *View) ioLines(frames []trace.IOFrame, cut string) (lines []string, why string) {
	for i := range frames {
		f := &frames[i]
		name := Text(f.Func, MaxName)
		if name == "" {
			name = fmt.Sprintf("%s+%#x", Text(baseName(f.Module), 256), f.Addr)
		}
		if f.File != "" {
			name += fmt.Sprintf(" (%s:%d)", Text(baseName(f.File), 256), f.Line)
		}
		lines = append(lines, name)
	}
	return lines, Text(cut, 256)
}

// IOPath is a file's path; "": unknown.
func (v *View) IOPath(file int) string { return Text(v.Rec.IONames.Path(file), MaxName) }

func baseName(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[i+1:]
		}
	}
	return path
}

// ioLosses describes missing I/O operations, one line each.
func ioLosses(x *trace.IO) (out []string) {
	if x == nil {
		return nil
	}
	if x.Skipped > 0 {
		out = append(out, fmt.Sprintf("%s in the sums only: their threads had too many in a second", plural.Either(x.Skipped, "read or write is", "reads and writes are")))
	}
	for i, l := range x.Lost {
		if i == maxReasons {
			break
		}
		if l = Text(l, 200); !strings.HasPrefix(l, "I/O ") {
			l = "I/O: " + l
		}
		out = append(out, l)
	}
	return out
}

// Package collapsed writes a recording as collapsed stacks, one line for each:
// thread;outermost;…;innermost VALUE. The value is a time in ns: elapsed, on a CPU, or
// off the CPUs. Flame graph scripts, speedscope, inferno and Perfetto read it.
//
// Idle waits are omitted unless Options.Idle is set; Options.Left reports them.
//
// The format can show missing data only as frames: error frames and "[gap: overwritten]"
// are in brackets, as is "[N frames left out]" in stacks that tally.Cutter cuts.
//
// Of a recording of several processes, the stacks of one follow those of another; equal
// stacks of two processes are two lines. With Options.Processes, the process comes before
// the thread: name (PID).
//
// The functions may run for several recordings at once.
package collapsed

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/export/tally"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait/idle"
)

// Wall writes elapsed time.
func Wall(w io.Writer, rec *trace.Recording, o view.Options) error {
	return write(w, rec, o, false, func(v *tally.Values) int64 { return v.Wall })
}

// CPU writes the kernel's CPU time.
func CPU(w io.Writer, rec *trace.Recording, o view.Options) error {
	return write(w, rec, o, false, func(v *tally.Values) int64 { return v.CPU })
}

// Off writes the time observed off the CPUs, blocked or waiting for one. A frame in
// brackets on top of the stack names the wait.
func Off(w io.Writer, rec *trace.Recording, o view.Options) error {
	return write(w, rec, o, true, func(v *tally.Values) int64 { return v.Off })
}

func write(w io.Writer, rec *trace.Recording, o view.Options, waits bool, value func(*tally.Values) int64) error {
	out := bufio.NewWriterSize(w, 1<<16)
	views := view.All(rec, o)
	var left idle.Left
	for _, v := range views {
		process := ""
		if o.Processes {
			process = escape(v.Process()) + ";"
		}
		l := one(out, v, process, waits, value)
		left.Join(&l)
	}
	views[0].Left(left)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write collapsed stacks: %w", err)
	}
	return nil
}

// one writes the stacks of one process.
func one(out *bufio.Writer, v *view.View, process string, waits bool, value func(*tally.Values) int64) idle.Left {
	c := tally.ByCalls(v, waits, value)
	names := map[int32]string{}
	name := func(label int32) string {
		s, ok := names[label]
		if !ok {
			if s, ok = c.Word(label); !ok {
				s = v.FuncName(int(label))
			}
			s = escape(s)
			names[label] = s
		}
		return s
	}
	stacks := c.Cutter()
	var path []int32
	var line []byte
	for n := 1; n < c.Len(); n++ {
		ns := c.Self[n]
		if ns <= 0 {
			continue
		}
		var inner, omitted int
		path, inner, omitted = stacks.Path(int32(n), path[:0])
		line = append(line[:0], process...)
		for i := len(path) - 1; i >= 0; i-- {
			if omitted > 0 && i == inner-1 {
				line = append(append(line, tally.Omitted(omitted)...), ';')
			}
			line = append(line, name(path[i])...)
			if i > 0 {
				line = append(line, ';')
			}
		}
		line = append(line, ' ')
		line = strconv.AppendInt(line, ns, 10)
		line = append(line, '\n')
		out.Write(line) // out keeps the first error until Flush
	}
	return c.Left
}

// escape replaces the frame separator in a name, and changes names that would make a line
// a comment or empty.
func escape(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(s, ";", ","))
	if s == "" {
		return "?"
	}
	if s[0] == '#' {
		return "_" + s
	}
	return s
}

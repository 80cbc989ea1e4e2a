// Command record records a process for two seconds and prints in which functions its threads spent the most
// time, running and waiting. It uses only packages that are for other programs: see docs/design.md.
//
//	go run ./examples/record PID
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sliverprof/sliver/record"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments; give the process's number", len(args))
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("%q is not a process's number", args[0])
	}
	dir, err := os.MkdirTemp("", "record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run.sliver")
	done, err := record.Process(context.Background(), pid, record.Options{Duration: 2 * time.Second}, path)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	rec, err := trace.Open(f, st.Size())
	if err != nil {
		return err
	}
	names := trace.NewNames(rec)
	sums := totals{}
	for _, th := range rec.Threads {
		rec.Replay(th.Seq, names, &calls{names: names, sums: sums})
	}
	fmt.Printf("%s (%d): %s, %s in %v\n", rec.Process.Comm, pid, count(uint64(done.Threads), "thread"), count(done.Stats.Total().Samples, "sample"), done.Duration.Round(time.Millisecond))
	for i, t := range sums.longest() {
		if i == 10 {
			break
		}
		fmt.Printf("%10v  %s\n", time.Duration(t.ns).Round(time.Microsecond), t.name)
	}
	return nil
}

// count writes a number and what it counts: "1 thread", "2 threads".
func count(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}

// total is the time of all threads in a function itself, running or waiting, without what it called.
type total struct {
	name string
	ns   stack.Time
}

type totals map[string]stack.Time

func (s totals) longest() []total {
	var all []total
	for name, ns := range s {
		all = append(all, total{name, ns})
	}
	slices.SortFunc(all, func(a, b total) int { return cmp.Or(cmp.Compare(b.ns, a.ns), cmp.Compare(a.name, b.name)) })
	return all
}

// calls adds up the calls of one thread. It implements trace.SliceHandler.
type calls struct {
	names *trace.Names
	sums  totals
	inner []stack.Time // by depth: time in calls that ended, of the function on the stack there
}

// Begin implements trace.SliceHandler.
func (c *calls) Begin(_ stack.Time, depth int, _ *trace.Slice) {
	c.inner = append(c.inner[:depth], 0)
}

// End implements trace.SliceHandler.
func (c *calls) End(t stack.Time, depth int, s *trace.Slice) {
	took := t - s.Entered
	c.sums[c.names.Func(&s.Frame).Name] += took - c.inner[depth]
	if depth > 0 {
		c.inner[depth-1] += took
	}
}

// Other implements trace.SliceHandler.
func (*calls) Other(event.Event) {}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/session/methods"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// errMethods says that no native function matches in a process that runs Java, whose methods may.
var errMethods = errors.New("no native function matches")

// traceMethods traces Java methods to the process's end, a signal or the end of the time.
func (f *traceFlags) traceMethods(e *env, p *target.Process) error {
	end := &ender{stderr: e.stderr}
	end.stay() // for the virtual machine's answer to the end of tracing, whose time is bounded
	ctx, stop := end.context(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	limit := f.calls.limitOf(methods.Engine)
	t, err := methods.New(p, f.calls.patterns, methods.Options{Limit: limit})
	if err != nil {
		return err
	}
	end.atExit(t.Abandon, methods.AbandonLimit+leaveWithin) // before anything is begun in the process
	if err := t.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("ended before tracing had begun")
		}
		return err
	}
	defer t.Close()
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	for _, note := range t.Notes {
		fmt.Fprintf(e.stderr, "sliver: %s\n", printable(note))
	}
	if !f.quiet {
		fmt.Fprintf(e.stderr, "tracing Java methods of process %d (engine %s); calls are shown a few seconds after they end; Ctrl-C ends it\n", p.PID(), methods.Engine)
	}
	out := &callPrinter{f: f, w: bufio.NewWriter(e.stdout), limit: limit, traced: javaCalls{t}}
	if err := t.Run(ctx, out.calls); err != nil {
		_ = out.w.Flush()
		return err
	}
	if out.err != nil {
		return out.err
	}
	return out.end()
}

// tracedCalls is what calls are printed of.
type tracedCalls interface {
	function(i int) *exact.Function
	functions() []exact.Function
	engine() string
	began() stack.Time
	stats() exact.Stats
	thread(c *calls.Call) string
	how(c *calls.Call) string // how it ended
	ends() bool               // how calls ended is known
	losses() []string
}

// javaCalls are those of Java methods.
type javaCalls struct{ t *methods.Tracer }

func (j javaCalls) function(i int) *exact.Function { return &j.t.Functions[i] }
func (j javaCalls) functions() []exact.Function    { return j.t.Functions }
func (j javaCalls) engine() string                 { return methods.Engine }
func (j javaCalls) began() stack.Time              { return j.t.Began }
func (j javaCalls) stats() exact.Stats             { return j.t.Stats().Stats }
func (j javaCalls) thread(c *calls.Call) string    { return printable(j.t.Thread(c)) }
func (j javaCalls) how(c *calls.Call) string       { return c.How.String() }
func (j javaCalls) ends() bool                     { return false }

func (j javaCalls) losses() []string {
	st := j.t.Stats()
	return methodLosses(st.LostBytes, st.Missing, j.t.Silent())
}

// methodLosses says which calls of Java methods are missing, a line for each reason.
func methodLosses(bytes uint64, missing time.Duration, silent []string) (out []string) {
	if bytes > 0 {
		out = append(out, fmt.Sprintf("JFR lost %d bytes of events because its buffers were full: calls are missing", bytes))
	}
	if missing > 0 {
		out = append(out, fmt.Sprintf("the calls of %s are missing: JFR had removed them, or the process was killed", callTime(int64(missing))))
	}
	if len(silent) > 0 {
		more := ""
		if n := len(silent) - maxCallRows; n > 0 {
			silent, more = silent[:maxCallRows], fmt.Sprintf(" and %d more", n)
		}
		out = append(out, "no call seen of "+printable(strings.Join(silent, ", "))+more+": not called, native, abstract, not a method of the class, or left by exceptions of others")
	}
	return out
}

// nativeCalls are those of native functions.
type nativeCalls struct {
	t     *exact.Tracer
	p     *target.Process
	names map[stack.TID]string
}

func (n *nativeCalls) function(i int) *exact.Function { return &n.t.Functions[i] }
func (n *nativeCalls) functions() []exact.Function    { return n.t.Functions }
func (n *nativeCalls) engine() string                 { return n.t.Engine }
func (n *nativeCalls) began() stack.Time              { return n.t.Began }
func (n *nativeCalls) stats() exact.Stats             { return n.t.Stats() }
func (n *nativeCalls) how(c *calls.Call) string       { return c.How.String() }
func (n *nativeCalls) ends() bool                     { return true }
func (n *nativeCalls) losses() []string               { return nil }

// maxNamed bounds the thread names that are kept.
const maxNamed = 1 << 14

func (n *nativeCalls) thread(c *calls.Call) string {
	if name, ok := n.names[c.TID]; ok {
		return name
	}
	name := ""
	if in, err := n.p.ThreadInfo(c.TID); err == nil {
		name = printable(in.Name)
	}
	if len(n.names) >= maxNamed {
		clear(n.names)
	}
	n.names[c.TID] = name
	return name
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/session"
	"github.com/sliverprof/sliver/session/exact"
	"github.com/sliverprof/sliver/session/methods"
	"github.com/sliverprof/sliver/target"
)

// traceOfRecord are the flags of record for exact calls.
type traceOfRecord struct {
	patterns []string
	slower   time.Duration
	calls    callFlags
	java     atomic.Pointer[methods.Tracer] // of Java methods; nil: none was started
}

func (t *traceOfRecord) register(fs *pflag.FlagSet) {
	t.calls.methods = true
	fs.StringArrayVar(&t.patterns, "trace", nil, "record all calls of these functions exactly, beside the samples: a\nname, a glob, /regexp/ or file.c:function, of Java 25 Class::method; repeatable\n('sliver trace --list' shows what matches)")
	fs.DurationVar(&t.slower, "slower", 0, "of traced calls, record only those that took at least this long")
	t.calls.register(fs)
}

func (t *traceOfRecord) parse() error {
	if t.slower < 0 {
		return usagef("record", "slower: %v is negative", t.slower)
	}
	if t.slower > 0 && len(t.patterns) == 0 {
		return usagef("record", "--slower is for traced calls: give --trace too")
	}
	return t.calls.parse("record", "trace", t.patterns)
}

// options finds the functions in a process; nil if none are asked for. c is the command that the process is, nil for
// one that ran before.
func (t *traceOfRecord) options(w io.Writer, p *target.Process, c *target.Command, debug []string) (*session.TraceOptions, error) {
	if len(t.patterns) == 0 {
		return nil, nil
	}
	if t.calls.engine == methods.Engine {
		return t.methods(p, c)
	}
	names, fns, err := t.calls.of(w, p, c, debug)
	var o *session.TraceOptions
	if errors.Is(err, errMethods) {
		if o, err = t.methods(p, c); err == nil {
			return o, nil
		}
	}
	var only sampledOnly
	if t.calls.engine == exact.Auto && (errors.As(err, &only) || errors.Is(err, methods.ErrOld)) {
		fmt.Fprintf(w, "sliver: %s; this recording has samples alone\n", oneLine(err))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &session.TraceOptions{Functions: fns, Engine: t.calls.engine, Limit: exact.Limit(t.calls.limit), Slower: t.slower, Later: names}, nil
}

// methods returns the options for Java methods.
func (t *traceOfRecord) methods(p *target.Process, c *target.Command) (*session.TraceOptions, error) {
	if c != nil {
		return nil, usagef("record", "engine jfr is for a process: start the command, and give -p PID")
	}
	if err := methods.Check(context.Background(), p); err != nil {
		return nil, err
	}
	begin := func() (*methods.Tracer, error) {
		m, err := methods.New(p, t.calls.patterns, methods.Options{Limit: t.calls.limitOf(methods.Engine)})
		t.java.Store(m)
		return m, err
	}
	if _, err := begin(); err != nil { // an invalid pattern
		return nil, err
	}
	return &session.TraceOptions{Slower: t.slower, Methods: begin}, nil
}

// abandon ends the tracing of Java methods at once. It returns a note for the user or "".
func (t *traceOfRecord) abandon() string {
	if m := t.java.Load(); m != nil {
		return m.Abandon()
	}
	return ""
}

// leaves is how long abandon may take.
func (t *traceOfRecord) leaves() time.Duration {
	if t.java.Load() == nil {
		return leaveWithin
	}
	return leaveWithin + methods.AbandonLimit
}

// maxCallRows is how many traced functions the summary shows.
const maxCallRows = 10

// writeCalls prints the accounts of traced functions; c may be nil.
func writeCalls(w io.Writer, c *session.Calls, flags *callFlags) {
	if c == nil {
		return
	}
	if len(c.Functions) == 0 && c.Engine != methods.Engine {
		fmt.Fprintln(w, "  no call was traced: no function of the program or of a library that it loaded matched --trace")
	}
	for _, note := range c.Notes {
		fmt.Fprintf(w, "  %s\n", printable(note))
	}
	names := tracedNames(len(c.Functions), func(i int) (string, string) { return c.Functions[i].Name, c.Functions[i].Module })
	for n, i := range c.Busiest() {
		if n == maxCallRows {
			fmt.Fprintf(w, "  %s more ('sliver report' shows them)\n", fnCount(len(c.Funcs)-n))
			break
		}
		s := &c.Funcs[i]
		if s.Calls == 0 && s.Left == 0 {
			fmt.Fprintf(w, "  %s: not called\n", names[i])
			continue
		}
		fmt.Fprintf(w, "  %s: %s", names[i], plural.Of(s.Calls, "call"))
		if s.Times.N > 0 {
			fmt.Fprintf(w, ", p50 %s, p99 %s, longest %s", callTime(s.Times.Percentile(.5)), callTime(s.Times.Percentile(.99)), callTime(s.Times.Max))
		}
		if s.Left > 0 {
			fmt.Fprintf(w, ", %d left without a return", s.Left)
		}
		fmt.Fprintln(w)
	}
	writeLater(w, c.Functions, c.Untraced)
	for i := range c.Hot {
		h := &c.Hot[i]
		fmt.Fprintf(w, "  %s\n", hotLine(c.Functions[h.Fn].Name, h, flags.limitOf(c.Engine), "and goes on by samples"))
	}
	if line := costLine(&c.Stats); line != "" {
		fmt.Fprintf(w, "  %s\n", line)
	}
	if c.Lost > 0 {
		fmt.Fprintf(w, "  %s lost: calls are missing, and some ends are wrong\n", plural.Either(c.Lost, "entry or exit was", "entries and exits were"))
	}
	for _, loss := range methodLosses(c.LostBytes, c.Missing, c.Silent) {
		fmt.Fprintf(w, "  %s\n", loss)
	}
	if c.ClockError > 0 {
		fmt.Fprintf(w, "  calls are by JFR's clock, which is off by about %s; durations are not\n", callTime(int64(c.ClockError)))
	}
}

// writeLater says which functions were found after tracing had begun, by file, and why others are not traced.
func writeLater(w io.Writer, fns []exact.Function, untraced []string) {
	n, order := map[string]int{}, []string{}
	for i := range fns {
		if f := &fns[i]; f.Since > 0 {
			if n[f.Module] == 0 {
				order = append(order, f.Module)
			}
			n[f.Module]++
		}
	}
	for _, module := range order[:min(len(order), maxCallRows)] {
		fmt.Fprintf(w, "  %s of %s, which was loaded later, traced from then on: calls in its first moments are not seen\n", fnCount(n[module]), printable(module))
	}
	if more := len(order) - maxCallRows; more > 0 {
		fmt.Fprintf(w, "  and functions of %d more files that were loaded later\n", more)
	}
	for i, why := range untraced {
		if i == maxCallRows {
			fmt.Fprintf(w, "  %s %s not traced\n", plural.Of(len(untraced)-i, "more function"), plural.Word(len(untraced)-i, "is", "are"))
			break
		}
		fmt.Fprintf(w, "  not traced: %s\n", printable(why))
	}
}

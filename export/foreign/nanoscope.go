package foreign

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
)

// maxLine limits a line of a Nanoscope trace: a time and a name.
const maxLine = maxName + 64

// ReadNanoscope reads a Nanoscope trace, which covers one thread, and writes it to w as a
// recording. states is the file with the trace's name and ".state"; nil if there is none.
func ReadNanoscope(r, states io.Reader, w io.Writer, o Options) (*Report, error) {
	in := &lines{r: bufio.NewReaderSize(r, 1<<16)}
	n := &nanoscope{rep: &Report{Threads: 1}, o: o, w: w}
	if states != nil {
		n.states = &lines{r: bufio.NewReaderSize(states, 1<<16)}
		if err := n.nextState(); err != nil {
			return nil, fmt.Errorf("thread states: %w", err)
		}
	}
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		if err := n.line(line); err != nil {
			return nil, fmt.Errorf("line %d, byte %d: %w", in.n, in.at, err)
		}
	}
	if n.th == nil {
		return nil, errors.New("it holds no call")
	}
	if err := n.statesUntil(stack.Time(maxTime)); err != nil {
		return nil, err
	}
	note(n.rep, n.th.open, "call had no end, and ends with the trace", "calls had no end, and end with the trace")
	note(n.rep, n.pops, "end of a call had no begin", "ends of calls had no begin")
	note(n.rep, n.fell, "time fell, and is taken for the time before", "times fell, and are taken for the time before")
	note(n.rep, n.deep, "call was too deep", "calls were too deep")
	if err := n.th.close(n.at); err != nil {
		return nil, err
	}
	n.rep.Calls = n.b.calls
	return n.rep, n.b.finish(&n.names, n.th.at, trace.Imported+"a Nanoscope trace")
}

type nanoscope struct {
	rep   *Report
	o     Options
	w     io.Writer
	b     *builder
	names names
	th    *thread
	at    stack.Time
	pops  int
	fell  int
	deep  int // open calls below maxDepth
	skip  int

	states *lines
	state  struct {
		at   stack.Time
		to   int
		some bool
	}
}

func (n *nanoscope) line(line []byte) (err error) {
	digits, what, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return errors.New("missing colon after the time")
	}
	at, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || at < 0 || at > maxTime {
		return fmt.Errorf("invalid time %.40q, expected ns", digits)
	}
	t := stack.Time(at)
	if n.th == nil {
		if err := n.begin(t); err != nil {
			return err
		}
	}
	if t < n.at {
		n.fell++
		t = n.at
	}
	n.at = t
	if err := n.statesUntil(t); err != nil {
		return err
	}
	if string(what) == "POP" {
		switch {
		case n.skip > 0:
			n.skip--
		case n.th.open > 0:
			return n.th.exit(t)
		default:
			n.pops++
		}
		return nil
	}
	if n.th.open >= maxDepth {
		n.deep++
		n.skip++
		return nil
	}
	id, err := n.names.id(string(bytes.TrimPrefix(what, []byte("+"))))
	if err != nil {
		return err
	}
	return n.th.enter(t, id)
}

func (n *nanoscope) begin(t stack.Time) (err error) {
	p := trace.Process{PID: 1, Comm: n.o.Name, Sliver: n.o.Version, Clocks: trace.Clocks{Monotonic: t}}
	if n.b, err = newBuilder(n.w, p, t); err != nil {
		return err
	}
	n.th, err = n.b.thread(trace.Thread{TID: 1, Name: n.o.Name, Main: true, Born: t, Since: t})
	return err
}

// statesUntil writes the states up to t.
func (n *nanoscope) statesUntil(t stack.Time) error {
	for n.states != nil && n.state.some && n.state.at <= t {
		s, nr := artState(n.state.to), int32(-1)
		if err := n.th.put(n.state.at, event.State, event.StateOf(s, nr)); err != nil {
			return err
		}
		n.at = max(n.at, n.th.at)
		if err := n.nextState(); err != nil {
			return fmt.Errorf("thread states: %w", err)
		}
	}
	return nil
}

// nextState reads the next line "time, state before, state after".
func (n *nanoscope) nextState() error {
	n.state.some = false
	for {
		line, err := n.states.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(line) == 0 {
			continue
		}
		f := bytes.Split(line, []byte(","))
		if len(f) != 3 {
			return fmt.Errorf("line %d, byte %d: %.40q is not a time and two states", n.states.n, n.states.at, line)
		}
		at, err1 := strconv.ParseInt(string(bytes.TrimSpace(f[0])), 10, 64)
		to, err2 := strconv.Atoi(string(bytes.TrimSpace(f[2])))
		if err1 != nil || err2 != nil || at < 0 || at > maxTime {
			return fmt.Errorf("line %d, byte %d: %.40q is not a time and two states", n.states.n, n.states.at, line)
		}
		n.state.at, n.state.to, n.state.some = stack.Time(at), to, true
		return nil
	}
}

// artState converts a thread state of ART. The numbers are those of
// runtime/thread_state.h as Nanoscope's page lists them: 66 terminated, 67 runnable, 68
// to 88 kinds of waiting, 89 in native code (which may do anything), 90 suspended.
func artState(n int) stack.State {
	switch {
	case n == 66:
		return stack.StateDead
	case n == 67:
		return stack.StateRunning
	case n >= 68 && n <= 88:
		return stack.StateBlocked
	case n == 90:
		return stack.StateStopped
	}
	return stack.StateUnknown
}

// lines reads lines of bounded length, without their ends.
type lines struct {
	r   *bufio.Reader
	n   int   // number of the current line, from 1
	at  int64 // its offset
	off int64
	buf []byte
}

func (l *lines) next() ([]byte, error) {
	l.n++
	l.at = l.off
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		l.off += int64(len(part))
		l.buf = append(l.buf, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(l.buf) <= maxLine:
			continue
		case len(l.buf) > maxLine:
			return nil, fmt.Errorf("line %d, byte %d: it is longer than %d bytes", l.n, l.at, maxLine)
		case errors.Is(err, io.EOF) && len(l.buf) > 0:
		case err != nil:
			return nil, err
		}
		return bytes.TrimRight(l.buf, "\r\n"), nil
	}
}

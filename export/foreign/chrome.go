package foreign

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// ReadChrome reads a trace in Chrome's trace event format and writes it to w as a
// recording. The trace is an object with traceEvents, or an array that may lack its end.
// Calls are its B and E events and its X events.
func ReadChrome(r io.Reader, w io.Writer, o Options) (*Report, error) {
	c := &chrome{o: o, rep: &Report{}, byKey: map[string]int32{}, sort: &sorter{dir: o.TempDir}, first: maxTime}
	defer c.sort.close()
	// A byte order mark is not part of JSON.
	b := bufio.NewReaderSize(r, 1<<16)
	if head, err := b.Peek(3); err == nil && string(head) == "\xef\xbb\xbf" {
		b.Discard(3)
	}
	c.v = newValues(b)
	if err := c.read(); err != nil {
		return nil, fmt.Errorf("byte %d: %w", c.v.offset(), err)
	}
	if c.calls == 0 {
		return nil, errors.New("it holds no calls (B, E or X events): is it a trace of Chrome's format?")
	}
	return c.rep, c.write(w)
}

type chrome struct {
	o     Options
	rep   *Report
	v     *values
	sort  *sorter
	names names

	threads []source
	byKey   map[string]int32
	procs   []process
	procKey map[string]int32

	calls   int
	first   int64
	other   int // events of other kinds
	odd     int // invalid events
	cut     bool
	strayed int // ends without a begin
	clipped int // calls cut at the end of their caller
	open    int
}

// source is a thread of the trace.
type source struct {
	proc  int32
	tid   int64 // 0: not a number
	text  string
	name  string
	calls bool
}

type process struct {
	pid  int64
	text string
	name string
}

func (c *chrome) read() error {
	switch got := c.v.peek(); {
	case got == '[':
		return c.events()
	case c.v.atEnd():
		return c.v.ended()
	case got != '{':
		return fmt.Errorf("it begins with %c", got)
	}
	for between := byte('{'); ; between = ',' {
		if err := c.v.want(between); err != nil {
			return err
		}
		if between == '{' && c.v.peek() == '}' {
			return nil
		}
		b, err := c.v.next()
		if err != nil {
			return err
		}
		key := string(b)
		if err := c.v.want(':'); err != nil {
			return err
		}
		if key == `"traceEvents"` {
			if c.v.peek() != '[' {
				return errors.New("traceEvents is not an array")
			}
			if err := c.events(); err != nil || c.cut {
				return err
			}
		} else if _, err := c.v.next(); err != nil {
			return err
		}
		if got := c.v.peek(); got == '}' || c.v.atEnd() && c.v.err == io.EOF {
			return nil
		}
	}
}

// events reads an array of events up to its end or the end of the file.
func (c *chrome) events() error {
	if err := c.v.want('['); err != nil {
		return err
	}
	for n := 0; ; n++ {
		switch got := c.v.peek(); {
		case got == ']':
			c.v.pos++
			return nil
		case c.v.atEnd():
			if c.v.err == io.EOF {
				return nil // an array may lack its end
			}
			return c.v.err
		case n > 0:
			if err := c.v.want(','); err != nil {
				return err
			}
			if got := c.v.peek(); got == ']' || c.v.atEnd() {
				continue // a trailing comma: writers that stream do not know which event is the last
			}
		}
		b, err := c.v.next()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			c.cut = true
			return nil
		case err != nil:
			return err
		}
		var e jsonEvent
		if err := e.parse(b); isWrongType(err) {
			c.odd++
			continue
		} else if err != nil {
			c.v.pos -= len(b) // start of the event
			return err
		}
		if err := c.event(&e); err != nil {
			return err
		}
	}
}

const (
	begins = iota
	ends
	complete
)

func (c *chrome) event(e *jsonEvent) error {
	var kind uint8
	switch e.Ph {
	case "B":
		kind = begins
	case "E":
		kind = ends
	case "X":
		kind = complete
	case "M":
		return c.meta(e)
	default:
		c.other++
		return nil
	}
	ts, ok := micros(e.Ts)
	if !ok {
		c.odd++
		return nil
	}
	dur := int64(0)
	if kind == complete && len(e.Dur) > 0 {
		if dur, ok = micros(e.Dur); !ok {
			c.odd++
			return nil
		}
	}
	th, err := c.thread(e)
	if err != nil {
		return err
	}
	c.threads[th].calls = true
	name, err := c.names.id(e.Name)
	if err != nil {
		return err
	}
	c.calls++
	c.first = min(c.first, ts)
	return c.sort.add(record{ts: ts, dur: dur, thread: th, name: name, kind: kind})
}

func (c *chrome) thread(e *jsonEvent) (int32, error) {
	key := string(e.Pid) + "/" + string(e.Tid)
	if i, ok := c.byKey[key]; ok {
		return i, nil
	}
	if len(c.threads) >= maxThreads || len(key) > 256 {
		return 0, errThreads
	}
	if c.procKey == nil {
		c.procKey = map[string]int32{}
	}
	p, ok := c.procKey[string(e.Pid)]
	if !ok {
		p = int32(len(c.procs))
		c.procKey[string(e.Pid)] = p
		n, text := number(e.Pid)
		c.procs = append(c.procs, process{pid: n, text: text})
	}
	n, text := number(e.Tid)
	i := int32(len(c.threads))
	c.byKey[key] = i
	c.threads = append(c.threads, source{proc: p, tid: n, text: text})
	return i, nil
}

func (c *chrome) meta(e *jsonEvent) error {
	if e.Name != "thread_name" && e.Name != "process_name" {
		return nil
	}
	var a struct{ Name string }
	if json.Unmarshal(e.Args, &a) != nil || a.Name == "" {
		return nil
	}
	if len(a.Name) > 256 {
		a.Name = a.Name[:256]
	}
	i, err := c.thread(e)
	if err != nil {
		return err
	}
	if e.Name == "thread_name" {
		c.threads[i].name = a.Name
	} else {
		c.procs[c.threads[i].proc].name = a.Name
	}
	return nil
}

// number returns an ID as a text, and as a number if Linux could have assigned it.
func number(b []byte) (int64, string) {
	s := string(bytes.Trim(b, `"`))
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt32 {
		n = 0
	}
	return n, s
}

// micros converts a time in µs, which may have decimals and quotes, to ns.
func micros(b []byte) (int64, bool) {
	b = bytes.Trim(b, `"`)
	whole, frac, _ := bytes.Cut(b, []byte("."))
	if n := len(whole); n == 0 || n > 15 || len(frac) > 32 || !digits(whole) || !digits(frac) {
		f, err := strconv.ParseFloat(string(b), 64)
		if err != nil || !(f >= 0 && f*1e3 <= float64(maxTime)) {
			return 0, false
		}
		return int64(math.Round(f * 1e3)), true
	}
	ns := int64(0)
	for _, d := range whole {
		ns = ns*10 + int64(d-'0')
	}
	for i := range 3 {
		ns *= 10
		if i < len(frac) {
			ns += int64(frac[i] - '0')
		}
	}
	if len(frac) > 3 && frac[3] >= '5' {
		ns++
	}
	return ns, ns <= maxTime
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func (c *chrome) write(w io.Writer) error {
	at := stack.Time(c.first)
	p := trace.Process{PID: 1, Comm: c.o.Name, Sliver: c.o.Version, Clocks: trace.Clocks{Monotonic: at}}
	if c.procs[0].pid > 0 {
		p.PID = int(c.procs[0].pid)
	}
	if c.procs[0].name != "" {
		p.Comm = c.procs[0].name
	}
	b, err := newBuilder(w, p, at)
	if err != nil {
		return err
	}
	t := &chromeThread{c: c, b: b, seq: -1}
	last := at
	if err := c.sort.each(func(r *record) error { return t.record(r) }); err != nil {
		return err
	}
	if err := t.finish(); err != nil {
		return err
	}
	last = max(last, t.last)
	c.rep.Calls, c.rep.Threads = b.calls, t.threads
	note(c.rep, c.other, "event was skipped because it is not a call", "events were skipped because they are not calls")
	note(c.rep, c.odd, "event was skipped because it is malformed", "events were skipped because they are malformed")
	note(c.rep, c.strayed, "end of a call had no begin", "ends of calls had no begin")
	note(c.rep, c.open, "call had no end, and ends with its thread", "calls had no end, and end with their thread")
	note(c.rep, c.clipped, "call outlived its caller, and ends with it", "calls outlived their callers, and end with them")
	if c.cut {
		c.rep.Notes = append(c.rep.Notes, "the file is truncated: using the part that is complete")
	}
	return b.finish(&c.names, last, trace.Imported+"Chrome JSON")
}

// chromeThread turns the sorted records of one thread after another into calls.
type chromeThread struct {
	c       *chrome
	b       *builder
	th      *thread
	source  int32
	seq     int
	threads int
	main    bool
	open    []int64 // end time of each open call; forever: until its E event
	skip    int     // B events beyond the maximum depth
	last    stack.Time
	newest  int64
}

const forever = math.MaxInt64

func (t *chromeThread) record(r *record) error {
	if t.th == nil || t.source != r.thread {
		if err := t.next(r); err != nil {
			return err
		}
	}
	// Calls that ended before this record.
	for n := len(t.open) - 1; n >= 0 && t.open[n] <= r.ts; n-- {
		if err := t.exit(t.open[n]); err != nil {
			return err
		}
	}
	t.newest = max(t.newest, r.ts)
	if r.kind == ends {
		return t.end(r.ts)
	}
	if len(t.open) >= maxDepth {
		t.c.odd++
		if r.kind == begins {
			t.skip++
		}
		return nil
	}
	end := int64(forever)
	if r.kind == complete {
		if end = min(r.ts+r.dur, maxTime); len(t.open) > 0 && end > t.open[len(t.open)-1] {
			end = t.open[len(t.open)-1]
			t.c.clipped++
		}
	}
	t.open = append(t.open, end)
	return t.th.enter(stack.Time(r.ts), r.name)
}

func (t *chromeThread) exit(at int64) error {
	t.open = t.open[:len(t.open)-1]
	t.newest = max(t.newest, at)
	return t.th.exit(stack.Time(at))
}

// end handles an E event: it closes the innermost B and all calls open inside it.
func (t *chromeThread) end(at int64) error {
	if t.skip > 0 {
		t.skip--
		return nil
	}
	n := len(t.open) - 1
	for n >= 0 && t.open[n] != forever {
		n--
	}
	if n < 0 {
		t.c.strayed++
		return nil
	}
	for len(t.open) > n {
		if t.open[len(t.open)-1] != forever {
			t.c.clipped++
		}
		if err := t.exit(at); err != nil {
			return err
		}
	}
	return nil
}

func (t *chromeThread) finish() error {
	if t.th == nil {
		return nil
	}
	for len(t.open) > 0 {
		end := t.open[len(t.open)-1]
		if end == forever {
			t.c.open++
			end = t.newest
		}
		if err := t.exit(end); err != nil {
			return err
		}
	}
	t.last = max(t.last, t.th.at)
	return t.th.close(t.th.at)
}

func (t *chromeThread) next(r *record) error {
	if err := t.finish(); err != nil {
		return err
	}
	s := &t.c.threads[r.thread]
	p := &t.c.procs[s.proc]
	name := s.name
	if name == "" {
		name = "thread " + s.text
	}
	if len(t.c.procs) > 1 && s.proc > 0 { // a recording covers one process
		pn := p.name
		if pn == "" {
			pn = p.text
		}
		name = pn + ": " + name
	}
	main := !t.main && s.proc == 0 && s.tid != 0 && s.tid == p.pid
	t.main = t.main || main
	t.seq++
	t.threads++
	t.source, t.skip, t.newest = r.thread, 0, r.ts
	var err error
	// Threads keep their order in the file.
	t.th, err = t.b.thread(trace.Thread{TID: stack.TID(s.tid), Name: name, Main: main, Born: stack.Time(r.thread) + 1, Since: stack.Time(r.ts), Seq: t.seq})
	return err
}

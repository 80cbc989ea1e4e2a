package methods

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/lang/jvm/jfr"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

const (
	eventCall = "jdk.MethodTrace" // HotSpot's metadata.xml, JDK 25
	eventLoss = "jdk.DataLoss"

	// maxBatch is how many calls are sorted and delivered at once.
	maxBatch = 1 << 17
	// maxThreads bounds the threads whose names are kept.
	maxThreads = 1 << 14
	// maxKeys bounds the keys of methods, and those of threads, that are kept of one chunk.
	maxKeys = 1 << 16
	// maxFile bounds the bytes of a recording's file. JFR's bound leaves out the newest chunk.
	maxFile = 4 * maxSize
	// early is by how much a call may have begun before tracing did, by a clock that was set since.
	early = int64(time.Hour)
	// maxTime bounds the end of a call, in ns.
	maxTime = int64(1) << 62
)

// reader makes calls of JFR's events.
type reader struct {
	proc    *target.Process
	last    int64 // ticks at which the newest chunk began that was read
	batch   []calls.Call
	methods map[methodKey]int // numbers in the current chunk; -1: not traced by this program
	threads map[int64]thread  // of the current chunk, by key
	tids    map[int]stack.TID // by their number in the process's own namespace
	looked  bool              // tids is of this file
	names   map[thread]string
	clock   clock
}

type methodKey struct {
	typ *jfr.Type
	key int64
}

// thread identifies one.
type thread struct {
	tid  stack.TID // 0: not known, or a virtual thread
	task uint64    // number of a virtual thread
}

// take reads a recording's file, delivers its calls and removes it.
func (t *Tracer) take(r recording, deliver func([]calls.Call)) error {
	f, size, err := t.f.place.Open(r.file)
	if err != nil {
		return fmt.Errorf("read JFR's recording: %w", err)
	}
	defer func() { _ = t.f.place.Remove(r.file) }()
	defer f.Close()
	if size == 0 { // JFR makes the file when the recording begins
		return errors.New("read JFR's recording: nothing was written")
	}
	if size > maxFile {
		return fmt.Errorf("read JFR's recording: it has %d bytes, more than %d", size, maxFile)
	}
	x := &t.calls
	x.looked = false
	x.clock.look()
	// The clock is read at the beginnings of chunks: those after a chunk count for it, too.
	_ = jfr.Each(f, size, func(h *jfr.Header) bool { x.clock.add(h); return false }, nil)
	t.mu.Lock()
	t.stats.ClockError = x.clock.error
	t.mu.Unlock()
	newer := func(h *jfr.Header) bool { return h.StartTicks > x.last }
	return jfr.Each(f, size, newer, func(c *jfr.Chunk) error {
		x.last = c.StartTicks
		t.gap(c.Start, chunkSlack)
		err := t.chunk(c, deliver)
		t.covered = max(t.covered, c.Time(c.StartTicks)+c.Duration)
		return err
	})
}

// chunk delivers the calls of one chunk.
func (t *Tracer) chunk(c *jfr.Chunk, deliver func([]calls.Call)) error {
	x := &t.calls
	clear(x.methods)
	x.threads = map[int64]thread{}
	err := c.Events(eventCall, []string{"startTime", "duration", "eventThread", "method"}, func(v []jfr.Value) error {
		fn := t.method(c, v[3])
		if fn < 0 {
			return nil
		}
		who := x.thread(c, v[2])
		enter := x.clock.line.time(v[0].Int)
		if began := int64(t.Began); enter < max(began-early, 0) || enter > int64(target.Now())+early {
			return fmt.Errorf("a call that began %v after tracing", time.Duration(enter-began))
		}
		x.batch = append(x.batch, calls.Call{Fn: fn, TID: who.tid, Task: who.task, Enter: stack.Time(enter),
			Exit: stack.Time(x.clock.line.time(v[0].Int + min(max(v[1].Int, 0), math.MaxInt64-max(v[0].Int, 0)))), How: calls.Ended})
		if len(x.batch) == maxBatch {
			t.flush(deliver)
		}
		return nil
	})
	t.flush(deliver)
	if err != nil {
		return err
	}
	return c.Events(eventLoss, []string{"amount"}, func(v []jfr.Value) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stats.LostBytes += uint64(max(v[0].Int, 0))
		return nil
	})
}

// activation identifies a call.
type activation struct {
	who   thread
	fn    int
	enter stack.Time
}

// once leaves out all events of a call but the last one. JFR writes an event at each throw and return (jdk.jfr.internal.
// tracing.Transform), also at a throw that the method itself catches.
func once(b []calls.Call) []calls.Call {
	last := make(map[activation]int, len(b))
	out := b[:0]
	for _, c := range b {
		k := activation{thread{c.TID, c.Task}, c.Fn, c.Enter}
		if i, ok := last[k]; ok {
			out[i].Exit = max(out[i].Exit, c.Exit)
			continue
		}
		last[k] = len(out)
		out = append(out, c)
	}
	return out
}

// flush delivers the calls of the batch, in the order in which they ended.
func (t *Tracer) flush(deliver func([]calls.Call)) {
	b := once(t.calls.batch)
	if len(b) == 0 {
		return
	}
	slices.SortStableFunc(b, func(x, y calls.Call) int { return cmp.Compare(x.Exit, y.Exit) })
	t.mu.Lock()
	for i := range b {
		s := &t.stats.Funcs[b[i].Fn]
		s.Calls++
		s.Returned++
		s.Hits += 2
		s.Times.Add(b[i].Duration())
		t.part.calls[b[i].Fn]++
	}
	t.mu.Unlock()
	deliver(b)
	t.calls.batch = b[:0]
}

// method returns the number of an event's method; -1: another user of JFR traces it.
func (t *Tracer) method(c *jfr.Chunk, v jfr.Value) int {
	k := methodKey{v.Type, v.Int}
	if n, ok := t.calls.methods[k]; ok {
		return n
	}
	n := -1
	class := jvm.ClassName(c.Path(v, "type", "name", "string").Text)
	method := c.Path(v, "name", "string").Text
	if class != "" && method != "" && len(class) <= maxName && len(method) <= maxName {
		for _, f := range t.asked {
			if f.match(class, method) {
				n = t.number(f, class, method)
				break
			}
		}
	}
	if len(t.calls.methods) >= maxKeys {
		clear(t.calls.methods)
	}
	t.calls.methods[k] = n
	return n
}

// thread identifies an event's thread.
func (x *reader) thread(c *jfr.Chunk, v jfr.Value) thread {
	if t, ok := x.threads[v.Int]; ok {
		return t
	}
	var t thread
	if c.Path(v, "virtual").Int != 0 {
		t.task = uint64(c.Path(v, "javaThreadId").Int)
	} else {
		t.tid = x.tid(int(c.Path(v, "osThreadId").Int))
	}
	name := c.Path(v, "javaName").Text
	if name == "" {
		name = c.Path(v, "osName").Text
	}
	if len(x.names) >= maxThreads {
		clear(x.names)
	}
	if x.names == nil {
		x.names = map[thread]string{}
	}
	x.names[t] = strings.Clone(name[:min(len(name), maxName)]) // not the chunk's whole text
	if len(x.threads) >= maxKeys {
		clear(x.threads)
	}
	x.threads[v.Int] = t
	return t
}

// tid converts a thread's number in the process's own namespace. 0: the thread has ended, and had another number here.
func (x *reader) tid(inner int) stack.TID {
	if !x.proc.Facts().Container {
		return stack.TID(inner)
	}
	if tid, ok := x.tids[inner]; ok || x.looked {
		return tid
	}
	x.looked = true
	all, err := x.proc.Threads(nil)
	if err != nil {
		return 0
	}
	if x.tids == nil || len(x.tids) > maxThreads {
		x.tids = map[int]stack.TID{}
	}
	for _, tid := range all {
		if in, err := x.proc.ThreadInfo(tid); err == nil {
			x.tids[in.NSTID] = tid
		}
	}
	return x.tids[inner]
}

// Thread returns the Java name of a call's thread.
func (t *Tracer) Thread(c *calls.Call) (name string) {
	name = t.calls.names[thread{c.TID, c.Task}]
	if c.Task != 0 && strings.TrimSpace(name) == "" {
		name = "virtual thread"
	}
	return name
}

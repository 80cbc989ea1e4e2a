package trace

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Part selects the part of a recording that Cut writes.
type Part struct {
	From, To stack.Time // both inclusive; 0 leaves that side open
	Threads  []int      // of the first process, by Seq; nil selects all
	Reason   string     // why it ends; "": the reason of the whole recording
}

// Cut writes the selected part of rec to w as a separate recording with rec's names.
// Calls that were open at From begin there. Its statistics are those of the whole
// recording for the selected threads. Threads of rec.Others are all selected.
func Cut(w io.Writer, rec *Recording, p Part) error {
	tw, err := NewWriter(w)
	if err != nil {
		return err
	}
	for i, one := range rec.All() {
		if i > 0 {
			p.Threads = nil
			if err := tw.chunk(chunkSection, binary.AppendUvarint(nil, uint64(i))); err != nil {
				return err
			}
		}
		if err := cutProcess(tw, one, p); err != nil {
			return err
		}
	}
	return nil
}

func cutProcess(tw *Writer, rec *Recording, p Part) error {
	if err := tw.Process(rec.Process); err != nil {
		return err
	}
	if rec.Left != nil {
		if err := tw.json(chunkLeft, rec.Left); err != nil {
			return err
		}
	}
	if err := cutMaps(tw, rec); err != nil {
		return err
	}
	for _, c := range rec.Captured {
		if err := tw.json(chunkNames, c); err != nil {
			return err
		}
	}
	if len(rec.Waits) > 0 {
		var ws []Wait
		for _, x := range rec.Waits {
			ws = append(ws, x)
		}
		slices.SortFunc(ws, func(a, b Wait) int { return a.ID - b.ID })
		if err := tw.Waits(ws); err != nil {
			return err
		}
	}
	if err := cutTasks(tw, rec, p); err != nil {
		return err
	}
	if err := cutCalls(tw, rec, p); err != nil {
		return err
	}
	if err := cutIO(tw, rec, p); err != nil {
		return err
	}
	if err := cutSwitches(tw, rec, p); err != nil {
		return err
	}
	last := stack.Time(0)
	tids := map[stack.TID]bool{}
	for _, th := range rec.Threads {
		if p.Threads != nil && !slices.Contains(p.Threads, th.Seq) {
			continue
		}
		at, err := cutThread(tw, rec, th, p)
		if err != nil {
			return err
		}
		last = max(last, at)
		tids[th.TID] = true
	}
	st := rec.Stats
	st.Threads = slices.DeleteFunc(slices.Clone(st.Threads), func(x ThreadStats) bool { return !tids[x.TID] })
	if err := tw.Stats(st); err != nil {
		return err
	}
	if rec.Symbols != nil {
		if err := tw.Symbols(rec.Symbols); err != nil {
			return err
		}
	}
	end := End{At: last, Reason: p.Reason}
	if rec.End != nil {
		if p.To == 0 || rec.End.At < p.To {
			end.At, end.Gone, end.Exit = rec.End.At, rec.End.Gone, rec.End.Exit
		}
		if end.Reason == "" {
			end.Reason = rec.End.Reason
		}
	}
	return tw.End(end)
}

func cutMaps(tw *Writer, rec *Recording) error {
	if len(rec.Maps) == 0 {
		return nil
	}
	// Generations are sorted by time, which may differ from the order of their modules.
	// The first one carries all modules.
	for i := range rec.Maps {
		first, mods := len(rec.Modules), []Module(nil)
		if i == 0 {
			first, mods = 0, rec.Modules
		}
		if err := tw.Maps(rec.Maps[i], first, mods); err != nil {
			return err
		}
	}
	return nil
}

// cutThread writes a thread and its events. A thread without events in the part is
// omitted. It returns the time of the last event written.
func cutThread(tw *Writer, rec *Recording, th Thread, p Part) (stack.Time, error) {
	c := cutter{tw: tw, th: th, part: p}
	for e := range rec.events(th.Seq) {
		if p.To != 0 && e.Time > p.To && !c.inSync() {
			c.stop()
			break
		}
		c.event(e)
		if c.err != nil {
			return c.last, c.err
		}
	}
	c.begin()
	c.flush(true)
	return c.last, c.err
}

type cutter struct {
	tw   *Writer
	th   Thread
	part Part

	replay diff.Replayer
	known  bool // the stack is known
	begun  bool
	seen   bool                   // any event of this thread was read
	newest [event.Task + 1]uint64 // payload of the newest event of each lasting kind
	sync   int                    // remaining Enter events of a Sync
	out    []event.Event
	last   stack.Time
	err    error
}

func (c *cutter) inSync() bool { return c.sync > 0 }

// Enter implements diff.Handler, as do the methods below.
func (c *cutter) Enter(stack.Time, int, diff.Frame) {}

func (c *cutter) Exit(stack.Time, int, diff.Frame) {}

func (c *cutter) Move(stack.Time, int, diff.Frame) {}

func (c *cutter) Other(event.Event) {}

// lasting are the kinds that hold until the next event of the same kind, in the order in
// which they are written.
var lasting = [...]event.Kind{event.Rate, event.State, event.Wait, event.Lock, event.Holder, event.Task}

func (c *cutter) event(e event.Event) {
	c.seen = true
	// The frames of a Sync have older times but belong to it.
	if !c.begun && e.Time >= c.part.From && !c.inSync() {
		c.begin()
	}
	switch k := e.Kind(); {
	case k == event.Sync:
		c.sync, c.known = int(min(e.Payload(), diff.MaxDepth)), true
	case k == event.Enter && c.sync > 0:
		c.sync--
	default:
		c.sync = 0
		if k == event.Gap {
			if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
				c.known = false
			}
		}
	}
	if c.begun {
		c.put(e)
		return
	}
	c.replay.Apply(e, c)
	k := e.Kind()
	if k == event.State && c.newest[k] != e.Payload() {
		c.newest[event.Wait], c.newest[event.Lock], c.newest[event.Holder] = 0, 0, 0
	}
	if int(k) < len(c.newest) {
		c.newest[k] = e.Payload()
	}
}

// begin writes the thread and its stack at the start of the part.
func (c *cutter) begin() {
	if c.begun || !c.seen {
		return
	}
	c.begun = true
	at := max(c.part.From, c.th.Since)
	c.th.Since = at
	if c.err = c.tw.Thread(c.th); c.err != nil || !c.known {
		return
	}
	c.put(event.Make(at, event.Sync, uint64(len(c.replay.Stack))))
	for _, f := range c.replay.Stack {
		c.put(event.Make(f.Entered, event.Enter, uint64(f.Word)))
	}
	for _, k := range lasting {
		if c.newest[k] != 0 {
			c.put(event.Make(at, k, c.newest[k]))
		}
	}
}

// stop ends the part at To; open calls continue beyond it.
func (c *cutter) stop() {
	c.begin()
	if c.known {
		c.put(event.Make(c.part.To, event.Seen, event.SeenOf(stack.WayStop, 0, 0)))
	}
}

func (c *cutter) put(e event.Event) {
	c.out = append(c.out, e)
	c.last = max(c.last, e.Time)
	c.flush(false)
}

func (c *cutter) flush(all bool) {
	if len(c.out) > 0 && (all || len(c.out) >= maxDirect) && c.err == nil {
		c.err = c.tw.Events(c.th.Seq, c.out)
		c.out = c.out[:0]
	}
}

package trace

import (
	"iter"

	"github.com/sliverprof/sliver/diff"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Limits of the merge of samples and context switches.
const (
	// lookAhead is how far before a wait, in ns, a sample may have its time and still describe the wait: all
	// threads of a tick have the tick's time, and are read one after the other.
	lookAhead = 1_000_000
	// maxAside is how many events without a sample are held back.
	maxAside = 1 << 12
)

// edge is a time at which a thread's state changes.
type edge struct {
	at   stack.Time
	what edgeKind
	off  *Switch // of edgeOff and edgeReady
}

type edgeKind uint8

const (
	edgeUnknown edgeKind = iota // nothing is known of the time from here on
	edgeOn                      // it runs
	edgeOff                     // it left the CPU
	edgeReady                   // it was woken
)

// edges makes edges of the times off the CPUs of a thread.
type edges struct {
	next func() (Switch, error, bool)
	born stack.Time
	now  *Switch // the newest one
	done bool
	q    []edge // still to come, in order
}

// fill reads records until the queue has the edges up to t and one later edge, or the records end.
func (x *edges) fill(t stack.Time) {
	for !x.done && (len(x.q) == 0 || x.q[len(x.q)-1].at <= t) {
		s, err, ok := x.next()
		if !ok || err != nil {
			x.done = true
			if x.now != nil && !x.now.Open { // what it did then is not known
				x.q = append(x.q, edge{x.now.In, edgeUnknown, nil})
			}
			return
		}
		if s.Out < x.born { // another thread had the number
			continue
		}
		x.add(&s)
	}
}

func (x *edges) add(s *Switch) {
	if before := x.now; before != nil && !before.Open && before.State != stack.StateDead {
		what := edgeOn
		if s.Skipped > 0 {
			what = edgeUnknown
		}
		x.q = append(x.q, edge{before.In, what, nil})
	}
	x.now = s
	switch s.State {
	case stack.StateDead:
		x.q = append(x.q, edge{s.Out, edgeUnknown, nil})
		return
	case stack.StateRunning:
		s.Open = true // the next state is unknown
		x.q = append(x.q, edge{s.Out, edgeUnknown, nil})
		return
	}
	x.q = append(x.q, edge{s.Out, edgeOff, s})
	if s.Wake != 0 && s.State != stack.StateRunnable {
		x.q = append(x.q, edge{s.Wake, edgeReady, s})
	}
	if s.Open {
		x.q = append(x.q, edge{s.In, edgeUnknown, nil})
	}
}

// merger replaces the states of samples by those that the context switches show, where they cover the time. What a
// sample found in a time off the CPUs holds for all of that time, since the thread did not run: its stack and its
// wait begin when the thread left the CPU. Times off the CPUs without a sample have a state, and no description.
type merger struct {
	yield func(event.Event) bool
	edges edges
	more  bool // yield wants more

	sampled uint64       // payload of the last sample's State
	waiting diff.Waiting // by the samples
	quiet   bool         // no sample has shown the thread, or it is lost
	seg     edge         // present segment
	begun   bool         // a sample has described it
	call    int32        // system call of the present time off the CPUs
	said    uint64       // payload of the last State that was passed on

	batch   []event.Event // of one sample
	at      stack.Time    // its time
	enters  uint64        // remaining Enter events of a Sync
	sync    int           // index behind the frames of a Sync in batch
	aside   []event.Event
	high    stack.Time // of the events that were passed on
	another bool       // the batch has a State
}

// exactly yields the events of a thread, which was born at a time, with states by its context switches.
func exactly(events iter.Seq[event.Event], switched iter.Seq2[Switch, error], born stack.Time) iter.Seq[event.Event] {
	return func(yield func(event.Event) bool) {
		next, stop := iter.Pull2(switched)
		defer stop()
		m := &merger{yield: yield, more: true, quiet: true, call: -1, edges: edges{born: born, next: func() (Switch, error, bool) {
			s, err, ok := next()
			return s, err, ok
		}}}
		for e := range events {
			if m.apply(e); !m.more {
				return
			}
		}
		m.flush()
		m.settle(m.high)
		if off := m.seg.off; m.seg.what == edgeOff && off.Open && off.Stack > 0 && !m.quiet { // it is not over
			m.put(event.Make(m.high, event.Kernel, uint64(off.Stack)))
		}
		m.asides(1<<63 - 1)
	}
}

// put passes on an event, not before the one before it.
func (m *merger) put(e event.Event) {
	if m.high = max(m.high, e.Time); m.more {
		m.more = m.yield(event.Event{Time: m.high, Value: e.Value})
	}
}

// state passes on a State, unless it repeats the present one.
func (m *merger) state(t stack.Time, payload uint64) {
	if payload != m.said {
		m.said = payload
		m.put(event.Make(t, event.State, payload))
	}
}

// asides passes on the events that were held back until t.
func (m *merger) asides(t stack.Time) {
	n := 0
	for n < len(m.aside) && m.aside[n].Time <= t {
		m.put(m.aside[n])
		n++
	}
	m.aside = append(m.aside[:0], m.aside[n:]...)
}

func (m *merger) apply(e event.Event) {
	k := e.Kind()
	switch {
	case k == event.Enter && m.enters > 0: // with the time at which its frame was entered
		m.enters--
		m.batch = append(m.batch, e)
		m.sync = len(m.batch)
		return
	case k == event.Sync, found(k):
		if m.enters = 0; k == event.Sync || len(m.batch) > 0 && e.Time != m.at {
			m.flush()
		}
		if len(m.batch) == 0 {
			m.at = e.Time
		}
		if k == event.Sync {
			m.enters, m.sync = e.Payload(), 1
		}
		m.batch = append(m.batch, e)
		return
	}
	m.enters = 0
	m.flush()
	lost := false
	if k == event.Gap {
		why, _ := event.GapFields(e.Payload())
		lost = why == stack.WhyLost
	} else if k == event.Mark {
		why := stack.Why(e.Payload())
		lost = why == stack.WhyGone
		if why == stack.WhyExec {
			m.waiting.Apply(e)
		}
	}
	if aside(k) && !lost && len(m.aside) < maxAside {
		m.aside = append(m.aside, e)
		return
	}
	m.settle(e.Time)
	m.asides(e.Time)
	m.put(e)
	if lost {
		m.waiting = diff.Waiting{}
		m.quiet, m.said, m.sampled = true, 0, 0
	}
}

// settle passes on the edges up to t.
func (m *merger) settle(t stack.Time) {
	m.edges.fill(t)
	for len(m.edges.q) > 0 && m.edges.q[0].at <= t && m.more {
		m.take()
	}
}

// take makes the next edge the present one.
func (m *merger) take() {
	x := m.edges.q[0]
	m.edges.q = append(m.edges.q[:0], m.edges.q[1:]...)
	was := m.seg
	m.seg = x
	if x.what != edgeReady {
		m.begun, m.call = false, -1
	}
	if m.quiet {
		return
	}
	m.asides(x.at)
	switch x.what {
	case edgeOn:
		m.state(x.at, event.StateOfSwitch(stack.StateRunning, -1, m.sampled))
	case edgeOff:
		m.state(x.at, event.StateOfSwitch(x.off.State, -1, m.sampled))
	case edgeReady:
		if x.off.Stack > 0 {
			m.put(event.Make(x.at, event.Kernel, uint64(x.off.Stack)))
		}
		m.put(event.Make(x.at, event.Waker, event.WakerOf(x.off.Waker, x.off.By)))
		m.state(x.at, event.StateOfSwitch(stack.StateRunnable, m.call, m.sampled))
	case edgeUnknown:
		if was.what != edgeUnknown {
			for _, e := range m.waiting.Append(nil, x.at) {
				if e.Kind() == event.State {
					m.said = e.Payload()
				}
				m.put(e)
			}
		}
	}
}

// flush passes on what a sample found.
func (m *merger) flush() {
	if len(m.batch) == 0 {
		return
	}
	m.another = false
	for i := range m.batch {
		if e := m.batch[i]; e.Kind() == event.State {
			m.sampled, m.another = e.Payload(), true
		}
	}
	to := m.place()
	first := m.quiet && m.another
	if first {
		m.quiet = false
	}
	m.asides(to)
	exact := m.seg.what != edgeUnknown
	m.begun = m.begun || m.another
	for i, e := range m.batch {
		if i > 0 && i < m.sync { // a frame of a Sync
			if m.more {
				m.more = m.yield(event.Event{Time: min(e.Time, to), Value: e.Value})
			}
			continue
		}
		m.waiting.Apply(e)
		switch k := e.Kind(); {
		case exact && !m.quiet && k == event.State:
			m.state(to, m.payload())
		case exact && !m.quiet && m.seg.what == edgeOn && (k == event.Wait || k == event.Lock || k == event.Holder): // it waited for less time than the sample took
		default:
			if k == event.State {
				m.said = e.Payload()
			}
			m.put(event.Event{Time: to, Value: e.Value})
		}
	}
	m.batch, m.sync, m.enters = m.batch[:0], 0, 0
}

// payload is that of the present segment, with what the last sample found.
func (m *merger) payload() uint64 {
	switch m.seg.what {
	case edgeOn:
		return event.StateOfSwitch(stack.StateRunning, -1, m.sampled)
	case edgeReady:
		return event.StateOfSwitch(stack.StateRunnable, m.call, m.sampled)
	}
	s, nr := event.StateFields(m.sampled)
	if m.call = nr; s == stack.StateRunning {
		m.call = -1
	}
	state := m.seg.off.State
	if s == stack.StateFault && state == stack.StateDisk { // the kernel's states do not show what the memory is for
		state = s
	}
	return event.StateOfSwitch(state, m.call, m.sampled)
}

// place takes the edges before the batch, and returns the time from which on what the sample found holds.
func (m *merger) place() stack.Time {
	m.edges.fill(m.at + lookAhead)
	q := m.edges.q
	n := 0 // edges up to the sample
	for n < len(q) && q[n].at <= m.at {
		n++
	}
	unit := -1 // the edge of the time off the CPUs that the sample is of
	for i := n - 1; i >= 0; i-- {
		if q[i].what == edgeOff {
			unit = i
		}
		if q[i].what != edgeReady {
			break
		}
	}
	last := m.seg.what
	if n > 0 {
		last = q[n-1].what
	}
	if s, _ := event.StateFields(m.sampled); unit < 0 && m.another && last == edgeOn && waits(s) && n < len(q) && q[n].what == edgeOff && q[n].at-m.at <= lookAhead {
		unit = n
	}
	if unit < 0 || m.quiet {
		m.settle(m.at)
		return max(m.at, m.high)
	}
	to := q[unit].at
	for range unit {
		m.take()
	}
	m.asides(to)
	// The edge of the wait itself says nothing: the sample does.
	m.seg, m.begun, m.call = m.edges.q[0], false, -1
	m.edges.q = append(m.edges.q[:0], m.edges.q[1:]...)
	if !m.another {
		m.sampledOnly(to)
	}
	return max(to, m.high)
}

// sampledOnly begins a time off the CPUs in which a sample shows other frames and no other state.
func (m *merger) sampledOnly(to stack.Time) {
	m.state(to, event.StateOfSwitch(m.seg.off.State, -1, m.sampled))
	m.begun = true
}

// waits reports whether a sample found the thread neither on a CPU nor waiting for one.
func waits(s stack.State) bool {
	switch s {
	case stack.StateBlocked, stack.StateDisk, stack.StateFault, stack.StateStopped, stack.StateTraced:
		return true
	}
	return false
}

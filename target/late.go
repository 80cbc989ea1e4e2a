package target

import "slices"

// Arrival is the sample of a thread that stopped after the deadline: a thread that
// has no CPU stops when it gets one, without having run anything of its own in
// between. So it shows the thread as it was when it was asked.
type Arrival struct {
	Thread *Thread
	Window *Window // good until the next Reap; nil: there is Err
	Err    error   // as Capture's
}

// Arrived hands out the samples that have arrived, one at a time.
func (tr *Tracer) Arrived() (a Arrival, ok bool) {
	if len(tr.arrived) == 0 {
		return a, false
	}
	a = tr.arrived[0]
	tr.arrived = slices.Delete(tr.arrived, 0, 1)
	if a.Window != nil {
		tr.used = append(tr.used, a.Window)
	}
	return a, true
}

// Free reports whether all late threads are let go by others than Reap.
func (tr *Tracer) Free() bool { return len(tr.late) == 0 }

// arrive has the sample of the thread that s kept.
func (tr *Tracer) arrive(s *stopper) {
	w := s.kept
	if w == s.w { // its own, of which it gets another one
		s.w, s.spans = &Window{}, nil
	}
	if parseSchedstat(w.raw.line[:w.raw.lineLen], &w.Counters) != nil {
		return
	}
	tr.done(s.thread, w)
	tr.arrived = append(tr.arrived, Arrival{Thread: s.thread, Window: w})
}

// maxWindows is how many are kept.
const maxWindows = maxSpares

// another is a window with so many bytes of memory.
func (tr *Tracer) another(n int) *Window {
	for i, w := range tr.windows {
		if len(w.buf) == n {
			last := len(tr.windows) - 1
			tr.windows[i], tr.windows[last] = tr.windows[last], nil
			tr.windows = tr.windows[:last]
			return w
		}
	}
	return &Window{buf: make([]byte, n)}
}

// settle takes back what was handed out by Arrived. What nobody has asked for is
// dropped at some time.
func (tr *Tracer) settle() {
	for len(tr.arrived) > maxStoppers {
		tr.Arrived()
	}
	tr.windows = append(tr.windows, tr.used...)
	if n := len(tr.windows) - maxWindows; n > 0 {
		tr.windows = slices.Delete(tr.windows, 0, n)
	}
	clear(tr.used)
	tr.used = tr.used[:0]
}

package target

import "slices"

// Arrival is the sample of a thread that stopped after the deadline. A thread without a CPU stops
// when it gets one, without having run anything of its own before. So the sample shows the thread
// as of the request.
type Arrival struct {
	Thread *Thread
	Window *Window // valid until the next Reap; nil if Err is set
	Err    error   // as Capture's
}

// Arrived returns the samples that have arrived, one at a time.
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

// Free reports whether all late threads are released without Reap.
func (tr *Tracer) Free() bool { return len(tr.late) == 0 }

// arrive processes the sample of the thread that s kept. shown is false if there is none.
func (tr *Tracer) arrive(s *stopper) (shown bool) {
	w := s.kept
	if w == s.w { // its own window: replace it
		s.w, s.spans = &Window{}, nil
	}
	if parseSchedstat(w.raw.line[:w.raw.lineLen], &w.Counters) != nil {
		return false
	}
	tr.done(s.thread, w)
	tr.arrived = append(tr.arrived, Arrival{Thread: s.thread, Window: w})
	return true
}

// Limits of the windows that are kept for reuse.
const (
	maxWindows     = maxHerd + maxSpares
	maxWindowBytes = 16 << 20
)

// leastLater is the least size of the stack, in bytes, in a window of a thread that the Tracer
// waits for; each waiting thread has one.
const leastLater = 64 << 10

// another returns a window that copies from t the same as w, sized by the thread's last stop:
// there may be one for each thread that the Tracer waits for.
func (tr *Tracer) another(t *Thread, w *Window) *Window {
	spans := 0
	for i := range min(len(w.Spans), MaxSpans) {
		spans += max(w.Spans[i].Len, 0)
	}
	spans = min(pages(spans), w.spans)
	most := w.max
	if t.want > 0 {
		most = min(most, max(leastLater, pages(2*t.want)))
	}
	x := tr.withRoom(spans + pageBytes + most)
	buf, own, extra := x.buf, append(x.own[:0], w.Spans...), x.extra
	*x = *w
	x.buf, x.max, x.spans, x.most, x.own, x.Spans, x.extra = buf, most, spans, spans, own, own, extra
	return x
}

// withRoom returns a window with at least n bytes of memory: the smallest kept one that fits.
func (tr *Tracer) withRoom(n int) *Window {
	best := -1
	for i, w := range tr.windows {
		if have := len(w.buf); have >= n && (best < 0 || have < len(tr.windows[best].buf)) {
			best = i
		}
	}
	if best < 0 {
		return &Window{buf: makeBuf(n)}
	}
	w := tr.windows[best]
	tr.dropWindow(best)
	return w
}

// dropWindow removes a window from those kept.
func (tr *Tracer) dropWindow(i int) {
	last := len(tr.windows) - 1
	tr.windows[i], tr.windows[last] = tr.windows[last], nil
	tr.windows = tr.windows[:last]
}

// settle takes back the windows that Arrived returned. Samples that no caller took are dropped
// eventually, and of too many windows the largest are dropped.
func (tr *Tracer) settle() {
	for len(tr.arrived) > maxHerd+maxStoppers {
		tr.Arrived()
	}
	if len(tr.used) == 0 {
		return
	}
	tr.windows = append(tr.windows, tr.used...)
	for {
		bytes, largest := 0, 0
		for i, w := range tr.windows {
			bytes += len(w.buf)
			if len(w.buf) > len(tr.windows[largest].buf) {
				largest = i
			}
		}
		if bytes <= maxWindowBytes && len(tr.windows) <= maxWindows {
			break
		}
		tr.dropWindow(largest)
	}
	clear(tr.used)
	tr.used = tr.used[:0]
}

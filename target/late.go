package target

// Arrival is the sample of a thread that stopped after the deadline: a thread that
// has no CPU stops when it gets one, without having run anything of its own in
// between. So it shows the thread as it was when it was asked.
type Arrival struct {
	Thread *Thread
	Window *Window // good until the next Reap
}

// Arrived hands out the samples that have arrived, one at a time.
func (tr *Tracer) Arrived() (a Arrival, ok bool) {
	if len(tr.arrived) == 0 {
		return a, false
	}
	a, tr.arrived = tr.arrived[0], tr.arrived[1:]
	tr.used = append(tr.used, a.Window.buf)
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
	tr.arrived = append(tr.arrived, Arrival{s.thread, w})
}

// maxBuffers is how many are kept for windows.
const maxBuffers = 8

// buffer is memory for a window.
func (tr *Tracer) buffer(n int) []byte {
	for i, b := range tr.buffers {
		if len(b) == n {
			last := len(tr.buffers) - 1
			tr.buffers[i] = tr.buffers[last]
			tr.buffers = tr.buffers[:last]
			return b
		}
	}
	return make([]byte, n)
}

// settle takes back what was handed out by Arrived. What nobody has asked for is
// dropped at some time.
func (tr *Tracer) settle() {
	for len(tr.arrived) > maxStoppers {
		tr.Arrived()
	}
	tr.buffers = append(tr.buffers, tr.used...)
	if n := len(tr.buffers) - maxBuffers; n > 0 {
		tr.buffers = append(tr.buffers[:0], tr.buffers[n:]...)
	}
	tr.used = tr.used[:0]
}

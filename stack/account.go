package stack

// ThreadStats are the accounts of one thread.
type ThreadStats struct {
	TID         TID    `json:"tid"`
	Samples     uint64 `json:"samples"`
	Stops       uint64 `json:"stops"`       // how often it was stopped: some samples take two, and some stops lead to none
	StopReads   uint64 `json:"stop_reads"`  // reads of its memory while it was stopped: one a stop, mostly
	Unrun       uint64 `json:"unrun"`       // it had not run: nothing read
	Read        uint64 `json:"read"`        // read while blocked, without a stop
	Part        uint64 `json:"part"`        // of these, with a stack that is not complete
	Late        uint64 `json:"late"`        // ticks that came too late and were left out
	Behind      uint64 `json:"behind"`      // of these, left out because the file did not keep up
	Rested      uint64 `json:"rested"`      // ticks left out of a thread that mostly slept, and had run by its next look
	Truncated   uint64 `json:"truncated"`   // samples whose stack is not complete
	TimedOut    uint64 `json:"timed_out"`   // stops not confirmed in time
	Denied      uint64 `json:"denied"`      // samples another tracer or the kernel forbade
	Restarted   uint64 `json:"restarted"`   // interrupted calls that were put back
	Stretched   uint64 `json:"stretched"`   // ticks left out for the overhead budget
	Overwritten uint64 `json:"overwritten"` // events lost between ring and file
	PauseNS     int64  `json:"pause_ns"`    // time held, in all
	SpanNS      int64  `json:"span_ns"`     // time the thread was under observation
	CPUNS       int64  `json:"cpu_ns"`      // time it ran, by the kernel's account
	WalkNS      int64  `json:"walk_ns"`     // time sliver took to unwind its stacks
	// Cuts are the truncated samples by the Reason that their stack was cut for.
	Cuts [MaxReason]uint64 `json:"cuts,omitzero"`
}

// Stopped is how many of the samples were had by stopping the thread.
func (s ThreadStats) Stopped() uint64 { return s.Samples - min(s.Unrun+s.Read, s.Samples) }

// Add adds up the accounts of two threads; TID stays.
func (s *ThreadStats) Add(x *ThreadStats) {
	s.Samples += x.Samples
	s.Stops += x.Stops
	s.StopReads += x.StopReads
	s.Unrun += x.Unrun
	s.Read += x.Read
	s.Part += x.Part
	s.Late += x.Late
	s.Behind += x.Behind
	s.Rested += x.Rested
	s.Truncated += x.Truncated
	s.TimedOut += x.TimedOut
	s.Denied += x.Denied
	s.Restarted += x.Restarted
	s.Stretched += x.Stretched
	s.Overwritten += x.Overwritten
	s.PauseNS += x.PauseNS
	s.SpanNS += x.SpanNS
	s.CPUNS += x.CPUNS
	s.WalkNS += x.WalkNS
	for i := range s.Cuts {
		s.Cuts[i] += x.Cuts[i]
	}
}

// Pauses sum up the distribution of stops, in ns.
type Pauses struct {
	Count uint64 `json:"count"`
	Mean  int64  `json:"mean"`
	P50   int64  `json:"p50"`
	P90   int64  `json:"p90"`
	P99   int64  `json:"p99"`
	P999  int64  `json:"p999"`
	P9999 int64  `json:"p9999"` // the worst of 10,000: the longest where there are fewer
	Max   int64  `json:"max"`
	Under uint64 `json:"under_40us"` // stops shorter than 40 µs
}

// UnderShare is the share of the stops that were shorter than 40 µs, 0 where
// there was none.
func (p *Pauses) UnderShare() float64 {
	if p.Count == 0 {
		return 0
	}
	return float64(p.Under) / float64(p.Count)
}

// ThreadInfo is what is known of a thread without looking at its stack.
type ThreadInfo struct {
	TID   TID
	NSTID int    // its number in the target's own PID namespace; 0 or TID where that is the same
	Name  string // that its runtime gives it, or else the kernel's
	Comm  string // the kernel's, where that is not Name; else ""
	Main  bool
	Born  Time  // when it began
	State State // when asked
	CPU   int64 // ns it has run
}

package stack

import "sort"

// ThreadStats are the accounts of one thread.
type ThreadStats struct {
	TID         TID    `json:"tid"`
	Samples     uint64 `json:"samples"`
	Stops       uint64 `json:"stops"`       // stops: some samples take two, and some stops result in none
	StopReads   uint64 `json:"stop_reads"`  // reads of its memory while it was stopped: usually one per stop
	Unrun       uint64 `json:"unrun"`       // it had not run: not read
	Read        uint64 `json:"read"`        // read while blocked, without a stop
	Part        uint64 `json:"part"`        // of these, with an incomplete stack
	Clocked     uint64 `json:"clocked"`     // copied by a clock of the kernel while it ran, without a stop
	Late        uint64 `json:"late"`        // ticks that came too late and were left out
	Behind      uint64 `json:"behind"`      // of these, left out because the file did not keep up
	Rested      uint64 `json:"rested"`      // ticks left out of a thread that mostly slept, and had run by its next look
	Truncated   uint64 `json:"truncated"`   // samples with an incomplete stack
	TimedOut    uint64 `json:"timed_out"`   // stops not confirmed in time
	Denied      uint64 `json:"denied"`      // samples refused by another tracer or the kernel
	Restarted   uint64 `json:"restarted"`   // interrupted calls that were resumed
	Stretched   uint64 `json:"stretched"`   // ticks left out for the overhead budget
	Overwritten uint64 `json:"overwritten"` // events lost between ring and file
	PauseNS     int64  `json:"pause_ns"`    // total time held by stops
	SpanNS      int64  `json:"span_ns"`     // time the thread was under observation
	CPUNS       int64  `json:"cpu_ns"`      // time it ran, by the kernel's account
	WalkNS      int64  `json:"walk_ns"`     // time sliver took to unwind its stacks
	// Cuts counts the truncated samples by the Reason for which their stack was cut.
	Cuts [MaxReason]uint64 `json:"cuts,omitzero"`
}

// Stopped returns how many of the samples were taken by stopping the thread.
func (s ThreadStats) Stopped() uint64 {
	return s.Samples - min(s.Unrun+s.Read+s.Clocked, s.Samples)
}

// Lost returns the number of ticks and events that left no sample.
func (s *ThreadStats) Lost() uint64 {
	return s.Late + s.Rested + s.TimedOut + s.Denied + s.Stretched + s.Overwritten
}

// Add adds the accounts of another thread; TID does not change.
func (s *ThreadStats) Add(x *ThreadStats) {
	s.Samples += x.Samples
	s.Stops += x.Stops
	s.StopReads += x.StopReads
	s.Unrun += x.Unrun
	s.Read += x.Read
	s.Part += x.Part
	s.Clocked += x.Clocked
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

// Pauses summarizes the distribution of stops, in ns.
type Pauses struct {
	Count uint64 `json:"count"`
	Mean  int64  `json:"mean"`
	P50   int64  `json:"p50"`
	P90   int64  `json:"p90"`
	P99   int64  `json:"p99"`
	P999  int64  `json:"p999"`
	P9999 int64  `json:"p9999"` // the worst of 10,000: the longest if there are fewer
	Max   int64  `json:"max"`
	Under uint64 `json:"under_40us"` // stops shorter than 40 µs
}

// UnderShare returns the share of stops shorter than 40 µs, 0 if there were none.
func (p *Pauses) UnderShare() float64 {
	if p.Count == 0 {
		return 0
	}
	return float64(p.Under) / float64(p.Count)
}

// Add adds the stops of another process. Their distribution is known at its percentiles only: those of both are where straight
// lines between the known ones lead.
func (p *Pauses) Add(x *Pauses) {
	if x.Count == 0 {
		return
	} else if p.Count == 0 {
		*p = *x
		return
	}
	n := float64(p.Count) + float64(x.Count)
	sum := Pauses{Count: p.Count + x.Count, Under: p.Under + x.Under, Max: max(p.Max, x.Max),
		Mean: int64((float64(p.Mean)*float64(p.Count) + float64(x.Mean)*float64(x.Count)) / n)}
	at := func(q float64) int64 {
		return int64(sort.Search(int(sum.Max), func(v int) bool { return p.upTo(int64(v))+x.upTo(int64(v)) >= q*n }))
	}
	sum.P50, sum.P90, sum.P99, sum.P999, sum.P9999 = at(.5), at(.9), at(.99), at(.999), sum.Max
	if sum.Count > 10_000 {
		sum.P9999 = at(.9999)
	}
	*p = sum
}

// upTo returns about how many stops took at most ns.
func (p *Pauses) upTo(ns int64) float64 {
	from, below := int64(0), 0.
	for _, x := range [...]struct {
		ns    int64
		share float64
	}{{p.P50, .5}, {p.P90, .9}, {p.P99, .99}, {p.P999, .999}, {p.P9999, .9999}, {p.Max, 1}} {
		if ns < x.ns {
			return float64(p.Count) * (below + (x.share-below)*float64(ns-from)/float64(x.ns-from))
		}
		from, below = x.ns, x.share
	}
	return float64(p.Count)
}

// ThreadInfo describes a thread without its stack.
type ThreadInfo struct {
	TID   TID
	NSTID int    // its number in the target's own PID namespace; 0 or TID if that is the same
	Name  string // the name set by its runtime, or the kernel's name
	Comm  string // the kernel's name if it differs from Name; else ""
	Main  bool
	Born  Time  // start time
	State State // when read
	CPU   int64 // ns of CPU time when sampling began
	// Before is the part of CPU that belongs to the recording: all of it if the thread was started since the
	// recording began, else 0.
	Before int64
}

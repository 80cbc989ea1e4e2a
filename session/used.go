package session

import "sync/atomic"

// used is the CPU time that was used since sampling began, in ns. Its methods may be called by any goroutine.
type used struct {
	own  atomic.Int64 // CPU time of this program at the beginning
	from atomic.Int64 // CPU time of the process at the beginning; -1: unknown
	last atomic.Int64 // the newest that is known, of the process
}

func (u *used) begin(s *Session) {
	u.own.Store(s.live.SelfCPU())
	ns, ok := s.proc.CPU()
	if !ok {
		ns = -1
	}
	u.from.Store(ns)
	u.last.Store(ns)
}

func (u *used) ownCPU(s *Session) int64 { return s.live.SelfCPU() - u.own.Load() }

// processCPU returns trace.Stats.CPU. A process that was reaped keeps the last that was read.
func (u *used) processCPU(s *Session) int64 {
	from := u.from.Load()
	if from < 0 || !s.smp.Selection().All() {
		return 0
	}
	if ns, ok := s.proc.CPU(); ok && ns > u.last.Load() {
		u.last.Store(ns)
	}
	return u.last.Load() - from
}

package sampler

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/sliverprof/sliver/stack"
)

// Refused counts threads that are not recorded for one reason.
type Refused struct {
	Threads int
	Why     string
}

// untakenWhy is the reason for threads that were not reached in time.
const untakenWhy = "not looked at yet when it ended; choose fewer with -t, or record longer"

// refusals are the threads that could not be opened. Its size is bounded by the number of live
// threads.
type refusals struct {
	mu   sync.Mutex
	now  map[stack.TID]string // newest reason of each listed thread
	past map[string]int       // number of ended threads by reason
}

// note records that tid could not be read or opened, or, with a nil err, that it could. Threads
// that have ended do not count.
func (r *refusals) note(tid stack.TID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || errors.Is(err, ErrGone) {
		delete(r.now, tid)
		return
	}
	if r.now == nil {
		r.now = map[stack.TID]string{}
	}
	r.now[tid] = refusal(err)
}

// has reports whether tid is counted.
func (r *refusals) has(tid stack.TID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now[tid] != ""
}

// listed records which threads live: the others keep their last reason.
func (r *refusals) listed(tids []stack.TID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.now) == 0 {
		return
	}
	live := make(map[stack.TID]bool, len(tids))
	for _, t := range tids {
		live[t] = true
	}
	for tid, why := range r.now {
		if !live[tid] {
			if r.past == nil {
				r.past = map[string]int{}
			}
			r.past[why]++
			delete(r.now, tid)
		}
	}
}

// counts returns the refused threads by reason, most frequent first.
func (r *refusals) counts() []Refused {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[string]int{}
	for why, k := range r.past {
		n[why] += k
	}
	for _, why := range r.now {
		n[why]++
	}
	var out []Refused
	for why, k := range n {
		out = append(out, Refused{k, why})
	}
	slices.SortFunc(out, func(a, b Refused) int { return cmp.Or(cmp.Compare(b.Threads, a.Threads), cmp.Compare(a.Why, b.Why)) })
	return out
}

// refusal returns the reason in err without the thread's number, so that equal reasons have equal
// text. There are at most as many as error numbers.
func refusal(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// Refused returns the threads that are not recorded so far, by reason: those that could not be
// opened, and, once Run has returned, those that were not reached in time.
func (s *Sampler) Refused() []Refused {
	out := s.refused.counts()
	if n := s.Untaken(); n > 0 {
		out = append(out, Refused{n, untakenWhy})
	}
	return out
}

// Untaken returns how many selected threads had not been taken up when sampling ended, including
// those of which nothing had been read yet.
func (s *Sampler) Untaken() int { return int(s.run.untaken.Load()) }

// leave counts the threads of tids that are selected and were never sampled, including those of
// which nothing is known yet. Refused threads are not counted here.
func (s *Sampler) leave(r *roster, tids []stack.TID) {
	n := 0
	var rest []stack.ThreadInfo
	s.roll.mu.Lock()
	for _, tid := range tids {
		if s.roll.threads[tid] != nil || s.refused.has(tid) {
			continue
		}
		if k := r.known[tid]; k == nil {
			n++
		} else if !k.taken {
			rest = append(rest, k.info)
		}
	}
	s.roll.mu.Unlock()
	s.run.untaken.Store(int64(n + len(s.ctl.chosen.Load().Pick(rest))))
}

// ClockRefused reports whether the kernel has refused a clock of a thread, so that no samples come from them.
func (s *Sampler) ClockRefused() bool { return s.clocks.refused.Load() }

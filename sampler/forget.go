package sampler

import "github.com/sliverprof/sliver/stack"

// Forget drops the accounts of threads that ended before t. Without it, memory would grow without
// bound for a target whose threads come and go. Accounts no longer lists them; Roles still counts
// them.
func (s *Sampler) Forget(t stack.Time) {
	s.roll.mu.Lock()
	defer s.roll.mu.Unlock()
	kept := s.roll.all[:0]
	for _, th := range s.roll.all {
		if s.roll.threads[th.info.TID] == th || th.acc.to.Load() >= int64(t) || !th.acc.over.Load() {
			kept = append(kept, th)
			continue
		}
		if s.roll.past == nil {
			s.roll.past = map[string]*RoleAccount{}
		}
		a := s.roll.past[th.acc.role]
		if a == nil {
			a = &RoleAccount{Role: th.acc.role}
			s.roll.past[th.acc.role] = a
		}
		a.Threads++
		x := th.acc.snapshot(0)
		a.Stats.Add(&x)
	}
	clear(s.roll.all[len(kept):])
	s.roll.all = kept
}

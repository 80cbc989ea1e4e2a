package sampler

import "github.com/sliverprof/sliver/stack"

// Forget drops the accounts of threads that ended before t. Without it, memory would grow without
// bound for a target whose threads come and go. Accounts no longer lists them; Roles still counts
// them.
func (s *Sampler) Forget(t stack.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.all[:0]
	for _, th := range s.all {
		if s.threads[th.info.TID] == th || th.acc.to.Load() >= int64(t) || !th.over.Load() {
			kept = append(kept, th)
			continue
		}
		if s.past == nil {
			s.past = map[string]*RoleAccount{}
		}
		a := s.past[th.role]
		if a == nil {
			a = &RoleAccount{Role: th.role}
			s.past[th.role] = a
		}
		a.Threads++
		x := th.acc.snapshot(0)
		a.Stats.Add(&x)
	}
	clear(s.all[len(kept):])
	s.all = kept
}

package sampler

import (
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Roles of threads. Accounts are summed by role if one account per thread would be too many.
const (
	RoleMain  = "main"
	RoleOther = "other" // all roles that appear after maxRoles
	// maxRoles bounds the cost of a target that names its threads at random.
	maxRoles = 32
)

// RoleOf returns the role of a thread: main, or its name with each number replaced by *. That is
// a glob that --threads accepts for similar threads.
func RoleOf(in *stack.ThreadInfo) string {
	if in.Main {
		return RoleMain
	}
	var b strings.Builder
	digits := false
	for i := range len(in.Name) {
		c := in.Name[i]
		d := c >= '0' && c <= '9'
		switch {
		case !d:
			b.WriteByte(c)
		case !digits:
			b.WriteByte('*')
		}
		digits = d
	}
	switch role := b.String(); role {
	case RoleMain, RoleOther:
		return role + "*" // keeps its name distinct from the role
	default:
		return role
	}
}

// RoleAccount is the account of all threads of one role.
type RoleAccount struct {
	Role    string
	Threads int               // all that were ever taken up
	Stats   stack.ThreadStats // sum; TID is 0
	Pauses  Distribution
}

// Roles returns the accounts so far by role, ordered by name. Any goroutine may call it.
func (s *Sampler) Roles() []RoleAccount {
	s.roll.mu.Lock()
	defer s.roll.mu.Unlock()
	by := map[string]*RoleAccount{}
	for role, a := range s.roll.past {
		by[role] = new(*a)
	}
	for _, th := range s.roll.all {
		a := by[th.acc.role]
		if a == nil {
			a = &RoleAccount{Role: th.acc.role}
			by[th.acc.role] = a
		}
		a.Threads++
		x := th.acc.snapshot(0)
		a.Stats.Add(&x)
	}
	out := make([]RoleAccount, 0, len(by))
	for role, a := range by {
		var hs []*Histogram
		for _, g := range s.groups {
			if h := g.tally.pauses[role]; h != nil {
				hs = append(hs, h)
			}
		}
		a.Pauses = distribution(hs)
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b RoleAccount) int { return strings.Compare(a.Role, b.Role) })
	return out
}

// assign gives a new thread of g its role and that role's histogram. The caller holds s.mu.
func (s *Sampler) assign(th *thread, g *group) {
	th.acc.role = RoleOf(&th.info)
	if !s.roll.roles[th.acc.role] {
		if len(s.roll.roles) >= maxRoles {
			th.acc.role = RoleOther
		}
		s.roll.roles[th.acc.role] = true
	}
	if g.tally.pauses[th.acc.role] == nil {
		g.tally.pauses[th.acc.role] = new(Histogram)
	}
	th.acc.pauses = g.tally.pauses[th.acc.role]
}

// First returns the time of the first sample; 0: none yet.
func (s *Sampler) First() stack.Time { return stack.Time(s.run.first.Load()) }

// Held returns the total time, in ns, for which stops have held threads, without the time that
// the threads waited for a CPU during stops. Copies of clocks count as ClockLimits.Copy.
func (s *Sampler) Held() (ns int64) {
	s.roll.mu.Lock()
	defer s.roll.mu.Unlock()
	ns = s.clocks.cost.Load()
	for _, g := range s.groups {
		for _, h := range g.tally.pauses {
			ns += h.sum.Load()
		}
	}
	return ns
}

package sampler

import (
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Roles of threads: the words under which accounts are summed up where one for
// each thread would be too many.
const (
	RoleMain  = "main"
	RoleOther = "other" // of all that came when there were maxRoles already
	// maxRoles bounds what a target that names its threads at random can cost.
	maxRoles = 32
)

// RoleOf is the role of a thread: main, or its name with each number in it
// replaced by *, which --threads takes as a glob for its like.
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
		return role + "*" // its name is not its role
	default:
		return role
	}
}

// RoleAccount is the account of all threads of one role.
type RoleAccount struct {
	Role    string
	Threads int               // ever taken up
	Stats   stack.ThreadStats // summed up; TID is 0
	Pauses  Distribution
}

// Roles are the accounts so far by role, in order of their names. For any
// goroutine.
func (s *Sampler) Roles() []RoleAccount {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := map[string]*RoleAccount{}
	for role, a := range s.past {
		by[role] = new(*a)
	}
	for _, th := range s.all {
		a := by[th.role]
		if a == nil {
			a = &RoleAccount{Role: th.role}
			by[th.role] = a
		}
		a.Threads++
		x := th.acc.snapshot(0)
		a.Stats.Add(&x)
	}
	out := make([]RoleAccount, 0, len(by))
	for role, a := range by {
		var hs []*Histogram
		for _, g := range s.groups {
			if h := g.pauses[role]; h != nil {
				hs = append(hs, h)
			}
		}
		a.Pauses = distribution(hs)
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b RoleAccount) int { return strings.Compare(a.Role, b.Role) })
	return out
}

// assign gives a new thread of g its role, and the histogram of that. s.mu is
// held.
func (s *Sampler) assign(th *thread, g *group) {
	th.role = RoleOf(&th.info)
	if !s.roles[th.role] {
		if len(s.roles) >= maxRoles {
			th.role = RoleOther
		}
		s.roles[th.role] = true
	}
	if g.pauses[th.role] == nil {
		g.pauses[th.role] = new(Histogram)
	}
	th.pauses = g.pauses[th.role]
}

// First is when the first sample was had; 0: none yet.
func (s *Sampler) First() stack.Time { return stack.Time(s.first.Load()) }

// Held is for how long, in ns, stops have held threads, all together, without what
// these waited for a CPU meanwhile.
func (s *Sampler) Held() (ns int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		for _, h := range g.pauses {
			ns += h.sum.Load()
		}
	}
	return ns
}

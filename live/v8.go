package live

import (
	"github.com/sliverprof/sliver/unwind/managed"
)

// seekV8 is the seeker of V8. Once it is there, what it says is its own problem.
func (t *Target) seekV8(table *managed.Table) (found, again bool, err error) {
	rt := t.space.V8()
	if rt == nil {
		rt, err = t.space.FollowV8(table)
	}
	if rt == nil {
		return false, false, err
	}
	return true, false, rt.Problem()
}

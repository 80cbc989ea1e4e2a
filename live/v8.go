package live

import (
	"github.com/sliverprof/sliver/unwind/managed"
)

// seekV8 is the seeker of V8. Once it is there, what it says is its own problem.
func (t *Target) seekV8(table *managed.Table) (found, again bool, err error) {
	rt := t.space.V8()
	if rt == nil {
		if rt, err = t.space.FollowV8(table); rt != nil {
			_, _ = t.remap(false) // unwind.Space.Copies; without it functions of V8's own lack names
		}
	}
	if rt == nil {
		return false, false, err
	}
	return true, false, rt.Problem()
}

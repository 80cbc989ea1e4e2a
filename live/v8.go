package live

import (
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/v8"
)

// seekV8 is the seeker of V8. Once it is there, what it says is its own problem.
func (t *Target) seekV8(table *managed.Table) (found, again bool, err error) {
	rt := t.space.V8()
	if rt == nil {
		rt, err = t.FollowV8(table)
	}
	if rt == nil {
		return false, false, err
	}
	return true, false, rt.Problem()
}

// FollowV8 is unwind.Space.FollowV8, and has the maps say where V8 copied its own code to.
func (t *Target) FollowV8(table *managed.Table) (*v8.Runtime, error) {
	rt, err := t.space.FollowV8(table)
	if rt != nil {
		_, _ = t.remap(false, 0) // unwind.Space.Copies; without it functions of V8's own lack names
	}
	return rt, err
}

package live

import (
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/v8"
)

// seekV8 is the seeker for V8. After it found V8, V8's runtime reports its problems itself.
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

// FollowV8 is unwind.Space.FollowV8. It also updates the maps with V8's copies of its own code.
func (t *Target) FollowV8(table *managed.Table) (*v8.Runtime, error) {
	rt, err := t.space.FollowV8(table)
	if rt != nil {
		_, _ = t.remap(false, 0) // unwind.Space.Copies; without it V8's own functions have no names
	}
	return rt, err
}

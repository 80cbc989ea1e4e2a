package live

import (
	"errors"

	"github.com/sliverprof/sliver/unwind/jvm"
	"github.com/sliverprof/sliver/unwind/managed"
)

// seekJVM is the seeker of HotSpot.
func (t *Target) seekJVM(table *managed.Table) (found, again bool, err error) {
	if t.space.JVM() != nil {
		return true, false, nil
	}
	rt, err := t.space.FollowJVM(table)
	var version *jvm.VersionError
	return rt != nil, err != nil && !errors.As(err, &version), err
}

package snapshot

import (
	"errors"

	"github.com/sliverprof/sliver/heap/hotspot"
	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/target"
)

// Fallback reports whether Stream may succeed where Take failed with err.
func Fallback(err error) bool {
	var u *hotspot.UnsupportedError
	var v *jvm.VersionError
	var c *target.CloneError
	if errors.As(err, &u) || errors.As(err, &v) || errors.As(err, &c) {
		return true
	}
	for _, e := range []error{target.ErrSeccomp, target.ErrTraced, target.ErrBusy, target.ErrNoThread, target.ErrTimeout, target.ErrShort} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

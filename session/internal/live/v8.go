package live

import (
	"errors"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/lang/v8"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
)

var javascript = &lang.Language{
	Name:   "JavaScript",
	Stacks: unwind.V8,
	Range:  managed.JS,
	Slow:   true,
	Final: func(err error) bool {
		var version *v8.VersionError
		return errors.As(err, &version)
	},
	Open: func(s *unwind.Space, _ unwind.Stepper) lang.Runtime { return &v8Runtime{rt: s.V8()} },
}

// v8Runtime is the V8 of a process.
type v8Runtime struct {
	lang.None
	rt *v8.Runtime
}

// Problem implements lang.Runtime.
func (x *v8Runtime) Problem() error { return x.rt.Problem() }

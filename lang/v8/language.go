package v8

import (
	"errors"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
)

// Language is JavaScript.
var Language = &lang.Language{
	Name:   "JavaScript",
	Stacks: Stacks,
	Range:  managed.Of(stack.KindJS),
	Slow:   true,
	Final: func(err error) bool {
		var version *VersionError
		return errors.As(err, &version)
	},
	Open: func(_ *unwind.Space, st unwind.Stepper) lang.Runtime { return &process{rt: st.(*engine).rt} },
}

// process is the V8 of a process beside its stacks.
type process struct {
	lang.None
	rt *Runtime
}

// Problem implements lang.Runtime.
func (x *process) Problem() error { return x.rt.Problem() }

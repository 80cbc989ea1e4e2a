package live

import (
	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/unwind"
)

// golang's runtime has no names of threads. Its tasks are listed by Routines.
var golang = &lang.Language{
	Name:   "Go",
	Stacks: unwind.Golang,
	Open:   func(*unwind.Space, unwind.Stepper) lang.Runtime { return lang.None{} },
}

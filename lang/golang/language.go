// Package golang is Go's part in walks (unwind.Stepper), the stacks of goroutines that no thread runs, and Go's
// row in the list of languages. Package unwind/gopcln reads Go's tables and the runtime's data.
//
// A Runtime may be used by several goroutines at once. A Parked must be used by one.
package golang

import (
	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/unwind"
)

// Language is Go. Its functions are machine code, and its runtime has no names of threads. Its tasks are listed by
// Census.
var Language = &lang.Language{
	Name:   "Go",
	Stacks: Stacks,
	Open:   func(*unwind.Space, unwind.Stepper) lang.Runtime { return lang.None{} },
}

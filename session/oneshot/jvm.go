package oneshot

import (
	"fmt"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
)

// java finds the process's Java virtual machine.
func (v *view) java() {
	table := managed.NewTable(managed.Java, nil)
	rt, err := v.t.Space().FollowJVM(table)
	if err != nil {
		v.lacks = append(v.lacks, fmt.Sprintf("process %d: %v", v.p.PID(), err))
	}
	if rt != nil {
		v.names.jvm = table
	}
}

// carries returns the virtual thread of Java that a thread runs; "": none.
func (v *view) carries(e *eye) string {
	space := v.t.Space()
	if vm := space.JVM(); vm != nil {
		if thread := space.JavaThread(stack.TID(own(&e.info))); thread != 0 {
			return vm.Mounted(thread)
		}
	}
	return ""
}

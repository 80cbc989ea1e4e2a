package live

import (
	"sync"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// ownNames are the names of threads in their runtime, by the TIDs that the process
// itself sees.
type ownNames struct {
	mu sync.Mutex // guards the fields below
	at time.Time
	of map[int32]string
}

// Names are read again after namesEach for a thread without one, and after namesLast
// for a thread whose name may have changed.
const (
	namesEach = 100 * time.Millisecond
	namesLast = time.Second
)

// ownName returns a thread's name in its runtime (Python, Java); "" if that carries no information.
func (t *Target) ownName(in *stack.ThreadInfo) string {
	if in.Main || !t.hasRuntime() {
		return ""
	}
	tid := int32(in.TID)
	if in.NSTID > 0 {
		tid = int32(in.NSTID)
	}
	o := &t.own
	o.mu.Lock()
	defer o.mu.Unlock()
	name, ok := o.of[tid]
	if since := time.Since(o.at); since > namesLast || !ok && since > namesEach {
		o.of = t.ThreadNames()
		o.at = time.Now()
		name = o.of[tid]
	}
	return name
}

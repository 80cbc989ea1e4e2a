package live

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/kind"
	"github.com/sliverprof/sliver/wait/lock"
)

// Descriptions numbers the things that threads wait for, for event.Wait: equal waits
// have the same number. It may be used by several goroutines at once.
type Descriptions struct {
	// Put receives each new wait and reports whether it accepted it. It must not block.
	Put func(trace.Wait) bool

	mu  sync.Mutex
	ids map[trace.Wait]int // by all fields except the ID
}

// Limits for programs that wait for something new each time: above the first limit only
// calls and files are distinguished, above the second nothing more.
const (
	maxDetailed = 1 << 14
	maxCoarse   = 1 << 15
)

// id returns the number of a wait; 0: it has no description.
func (d *Descriptions) id(in *wait.Info) int {
	w := describe(in)
	d.mu.Lock()
	defer d.mu.Unlock()
	if id, ok := d.ids[w]; ok {
		return id
	}
	if len(d.ids) >= maxDetailed {
		w = trace.Wait{Call: w.Call, Kind: w.Kind, File: w.File, Symbol: w.Symbol, Lock: w.Lock, LockType: w.LockType, KnownBy: w.KnownBy}
		if id, ok := d.ids[w]; ok {
			return id
		}
	}
	if len(d.ids) >= maxCoarse {
		return 0
	}
	if d.ids == nil {
		d.ids = map[trace.Wait]int{}
	}
	key := w
	w.ID = len(d.ids) + 1
	if !d.Put(w) {
		return 0 // retry next time
	}
	d.ids[key] = w.ID
	return w.ID
}

// describe omits what differs between samples of the same wait: the remaining time of a
// timeout.
func describe(in *wait.Info) trace.Wait {
	w := trace.Wait{Call: in.Call, Args: in.Args, File: in.File, Kind: in.Kind, Peer: in.Peer, ChildPID: in.Child, Why: in.Why}
	if !in.Peers {
		w.PeerPID = in.PeerPID
	}
	if l := in.Lock; l != nil {
		w.Lock, w.LockType, w.KnownBy = l.Kind, l.Type, string(l.Basis)
		w.Symbol, w.Module, w.Shared = l.Symbol, l.Module, l.Shared
		if l.Holder.TID == 0 && !comesAndGoes(l) {
			w.NoHolder = l.Holder.Why
		}
		if l.Other != "" {
			w.HolderTID, w.HolderName = l.Holder.TID, l.Other
		}
	}
	if in.Timeout <= 0 {
		return w
	}
	exact := in.Timeout.String()
	t := round(in.Timeout)
	w.Timeout = int64(t)
	left := strings.HasSuffix(w.Args, exact+wait.Left)
	if left {
		w.Args = strings.TrimSuffix(w.Args, wait.Left)
	}
	switch {
	case in.Kind == kind.WaitSleep && w.Args == exact && left:
		w.Args = t.String() + wait.Left
	case in.Kind == kind.WaitSleep && w.Args == exact:
		w.Args = t.String()
	case in.Kind == kind.WaitSleep: // a runtime's sleep, already described
		w.Args = strings.TrimSuffix(w.Args, ", "+exact)
	default:
		w.Args = strings.TrimPrefix(strings.TrimSuffix(w.Args, "timeout "+exact), ", ")
		w.Args = strings.TrimSuffix(w.Args, ", ")
	}
	return w
}

// comesAndGoes reports whether l has a holder at some times only. The reason for a
// missing holder is then true of one moment, not of the lock.
func comesAndGoes(l *wait.Lock) bool {
	switch l.Kind {
	case kind.LockGIL, kind.LockMonitor, kind.LockSynchronizer, kind.LockClassInit:
		return true
	case kind.LockMutex, kind.LockRW, kind.LockStdio:
		return l.Impl == lock.Ruby || l.Impl == "glibc" || l.Impl == "musl" || l.Impl == "kernel"
	}
	return false
}

// round keeps two significant digits.
func round(d time.Duration) time.Duration {
	p := time.Duration(1)
	for n := len(strconv.FormatInt(int64(d), 10)); n > 2; n-- {
		p *= 10
	}
	return d.Round(p)
}

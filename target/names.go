package target

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sliverprof/sliver/stack"
)

// threadNames are the names that a thread was seen to have. State sees the present one, and the thread's
// clock each new one; its records are read later, with copies of the thread that are as old.
type threadNames struct {
	given string     // by NewName
	from  stack.Time // of given
	fresh []seenName // since then, by time
}

type seenName struct {
	name string
	at   stack.Time
}

// maxNames bounds the names that NewName has not returned. Beyond it, the oldest ones are dropped.
const maxNames = 16

// newest reports whether name is the last one that was seen.
func (n *threadNames) newest(name []byte) bool {
	if len(n.fresh) > 0 {
		return n.fresh[len(n.fresh)-1].name == string(name)
	}
	return n.given == string(name)
}

// saw adds a name that the thread had at a time.
func (n *threadNames) saw(name []byte, at stack.Time) {
	if at < n.from {
		return
	}
	i := len(n.fresh)
	for i > 0 && n.fresh[i-1].at > at {
		i--
	}
	n.fresh = slices.Insert(n.fresh, i, seenName{string(name), at})
	if len(n.fresh) > maxNames {
		n.fresh = slices.Delete(n.fresh, 0, 1)
	}
}

// NewName returns the name that the thread had at a time, if State, or the kernel's clock of the thread, has
// seen it and NewName did not return it last. Times do not decrease. It reads nothing.
func (t *Thread) NewName(at stack.Time) (name string, ok bool) {
	n := &t.names
	passed := 0
	for passed < len(n.fresh) && n.fresh[passed].at <= at {
		passed++
	}
	if passed == 0 {
		return "", false
	}
	was, is := n.given, n.fresh[passed-1]
	n.given, n.from = is.name, is.at
	n.fresh = slices.Delete(n.fresh, 0, passed)
	return is.name, is.name != was
}

// nameIn returns the new name of a thread from a record of it (PERF_RECORD_COMM of perf_event_open(2)), which
// ends with PERF_SAMPLE_TID and PERF_SAMPLE_TIME.
func nameIn(b []byte) (tid stack.TID, name []byte, at stack.Time, ok bool) {
	const head, tail = 16, 16
	if len(b) < head+tail || binary.NativeEndian.Uint32(b) != unix.PERF_RECORD_COMM {
		return 0, nil, 0, false
	}
	name, _, ok = bytes.Cut(b[head:len(b)-tail], []byte{0})
	return stack.TID(int32(binary.NativeEndian.Uint32(b[12:]))), name, stack.Time(binary.NativeEndian.Uint64(b[len(b)-8:])), ok
}

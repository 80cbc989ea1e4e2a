package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
	"github.com/sliverprof/sliver/trace/event"
	"github.com/sliverprof/sliver/wait/kind"
)

// waits describes what the thread waits for, briefly; "" if it does not wait.
func (t *Thread) waits(names Names) string {
	switch t.key.state {
	case stack.StateBlocked, stack.StateDisk, stack.StateFault, stack.StateStopped, stack.StateTraced:
	default:
		return ""
	}
	call := ""
	if t.call >= 0 {
		call = names.Call(t.call)
	}
	w, ok := trace.Wait{}, false
	if t.wait != 0 {
		w, ok = names.Wait(t.wait)
	}
	if !ok && t.lock == 0 {
		return call
	}
	if t.lock != 0 {
		return t.lockText(&w)
	}
	return waitText(&w, call)
}

// lockText returns "mutex name, held by 12 worker-1", with the address if the lock has no name. Details
// are brief: "ReentrantLock at 0xf017a150", "Shop monitor at 0x7f…", "GIL".
func (t *Thread) lockText(w *trace.Wait) string {
	s := string(w.Lock)
	class := w.LockType[strings.LastIndexByte(w.LockType, '.')+1:]
	switch {
	case s == "":
		s = string(w.Kind)
	case w.Lock == kind.LockSynchronizer && class != "":
		s, _, _ = strings.Cut(class, "$") // without NonfairSync
	case w.Lock == kind.LockMonitor && class != "":
		s = class + " " + s
	}
	if s == "" {
		s = "lock"
	}
	switch {
	case w.Symbol != "":
		s += " " + w.Symbol
	case !w.Lock.Single():
		s += fmt.Sprintf(" at %#x", t.lock)
	}
	if t.hold == 0 {
		return s
	}
	s += fmt.Sprintf(", held by %d", t.hold)
	for _, x := range t.m.threads {
		if x.info.TID == t.hold && !x.ended {
			s += " " + x.info.Name
			break
		}
	}
	if t.by == event.KnownByInferred {
		s += " (inferred)"
	}
	return s
}

// waitText puts the important part first, as columns are narrow.
func waitText(w *trace.Wait, call string) string {
	if w.Call != "" {
		call = w.Call
	}
	var parts []string
	switch {
	case w.File != "" && call != "":
		parts = append(parts, call+" "+w.File)
	case w.File != "":
		parts = append(parts, string(w.Kind)+" "+w.File)
	case call == "":
		parts = append(parts, string(w.Kind))
	case w.Args != "":
		parts = append(parts, call+"("+w.Args+")")
	default:
		parts = append(parts, call)
	}
	if w.Timeout > 0 && !strings.Contains(parts[0], time.Duration(w.Timeout).String()) {
		parts = append(parts, "timeout "+time.Duration(w.Timeout).String())
	}
	return strings.Join(parts, ", ")
}

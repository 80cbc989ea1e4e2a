package iowatch

import "fmt"

// whole reports whether the stacks of a finding are complete. One without that of an open that was seen is
// not: most likely it is of a place that has a finding, or gets one.
func (e *Engine) whole(f *Finding) bool {
	return (f.Stack != 0 || f.seeded && f.Where != 0) && e.complete(f.Stack) && e.complete(f.Where)
}

// complete reports whether a stack is complete, or there is none.
func (e *Engine) complete(id StackID) bool { return id == 0 || e.Complete == nil || e.Complete(id) }

// better reports whether more of the stacks of f than of old are complete: the first stacks of a program
// may lack frames of its runtime.
func (e *Engine) better(f, old *Finding) bool {
	good := func(id, was StackID) int {
		switch {
		case !e.complete(id), id == 0 && was != 0:
			return -1
		case id != 0 && (was == 0 || !e.complete(was)):
			return 1
		}
		return 0
	}
	return good(f.Stack, old.Stack)+good(f.Where, old.Where) > 0
}

// publish reports a finding if its rule has none yet for the path and the top four frames; of a leak, for the kind,
// the call and the top four frames.
func (e *Engine) publish(f *Finding) {
	if !e.c.On[f.Rule] {
		return
	}
	f.Main = f.TID == e.main
	at := f.Stack
	if f.First == OpCall && at == 0 { // on a path: the call is all there is
		at = f.Where
	}
	top := fmt.Sprint(at)
	if e.Top != nil {
		top = e.Top(at)
	}
	about := string(f.Rule) + "\x00" + f.Path
	switch f.Rule {
	case MainIO, LoopIO: // a slow open does not hide slow reads
		about += "\x00" + f.Call
	case Leak: // each descriptor of a group may have a path of its own
		about = fmt.Sprint(f.Rule, "\x00", f.Kind, "\x00", f.Call)
	}
	key := about + "\x00" + top
	old := e.known[key]
	if w := e.weak[about]; old == nil && w != nil {
		old = w // the same, with a stack that is known by now, or still is not
	}
	if old != nil {
		if e.better(f, old) {
			old.Stack, old.Where = f.Stack, f.Where
			e.known[key] = old
			if e.whole(f) {
				delete(e.weak, about)
			}
		}
		return
	}
	if !e.whole(f) {
		if e.about[about] {
			return // most likely one of those, with a stack that lacks frames
		}
		e.weak[about] = f
	}
	e.about[about] = true
	if len(e.found) >= maxFound {
		e.Forgotten++
		return
	}
	e.known[key] = f
	e.found = append(e.found, f)
	if e.Found != nil {
		e.Found(f)
	}
}

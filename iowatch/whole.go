package iowatch

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

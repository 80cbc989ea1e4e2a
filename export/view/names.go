package view

import "github.com/sliverprof/sliver/stack"

// Name is a name that a thread had from a time on.
type Name struct {
	From  stack.Time
	Label string // as Thread.Label
}

// Names returns the thread's names over time, oldest first, at least one. The first one has the time
// of the thread's first sample, or an earlier one.
func (th *Thread) Names() []Name {
	out := make([]Name, 0, 1+len(th.Was))
	for _, n := range th.Thread.Names() {
		out = append(out, Name{From: n.From, Label: label(n.Name)})
	}
	out[0].From = min(out[0].From, th.Since)
	return out
}

// label returns a thread's name as text that is never empty.
func label(name string) string {
	if s := Text(name, maxThreadName); s != "" {
		return s
	}
	return "thread"
}

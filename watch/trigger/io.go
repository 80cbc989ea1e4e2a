package trigger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// IOFinding is a finding of the rules of package iowatch.
type IOFinding struct {
	Rule    iowatch.Rule
	At      stack.Time
	TID     stack.TID
	Path    string
	Longest int64 // ns
	Text    string
}

// IO: a slow or wasteful use of a file.
const IO Kind = "io"

var io = Subject{
	Kind: IO, Flag: "io", Help: "an operation on a file holds the main thread or an event loop: slow=13ms; or a rule of 'sliver io', or all",
	value: (*Rule).ioValue,
	check: (*Set).io,
}

// ioValue parses the value of a rule of kind IO: slow=13ms for operations that block the main thread
// or an event loop, all, or a rule of iowatch with its thresholds.
func (r *Rule) ioValue(v string) error {
	if v == "" {
		return fmt.Errorf("write slow=TIME, all, or a rule of 'sliver io'")
	}
	if limit, slow := strings.CutPrefix(v, "slow="); slow {
		if d, err := time.ParseDuration(limit); err != nil || d < minIO || d > maxLimit {
			return fmt.Errorf("invalid time %q; use %v to %v (example: slow=13ms)", limit, minIO, maxLimit)
		}
	}
	r.IO = v
	_, err := r.watches()
	return err
}

// minIO is the shortest operation that a rule may ask for: each gets a copy of the stack.
const minIO = 100 * time.Microsecond

// watches returns the rules of iowatch that a rule of kind IO asks for.
func (r *Rule) watches() (iowatch.Config, error) {
	switch {
	case r.IO == "all":
		return iowatch.Parse(nil)
	case r.slowIO():
		return iowatch.Parse([]string{string(iowatch.MainIO) + " " + r.IO, string(iowatch.LoopIO)})
	}
	return iowatch.Parse([]string{r.IO})
}

func (r *Rule) slowIO() bool { return strings.HasPrefix(r.IO, "slow=") }

// WatchIO returns what to watch of the I/O for all rules: the thresholds are those of the last rule that
// sets them, and of slow operations the lowest. ok is false if no rule needs it.
func WatchIO(rules []*Rule) (all iowatch.Config, ok bool) {
	var texts []string
	slow := time.Duration(maxLimit)
	for _, r := range rules {
		c, err := r.watches()
		if r.Kind != IO || err != nil { // Parse has accepted it
			continue
		}
		ok = true
		for _, x := range c.Enabled() {
			texts = append(texts, string(x))
		}
		if r.IO != "all" && !r.slowIO() {
			texts = append(texts, r.IO)
		}
		slow = min(slow, c.Slow)
	}
	if !ok {
		return all, false
	}
	all, err := iowatch.Parse(texts)
	all.Slow = slow
	return all, err == nil
}

// io returns the findings that the rule asks for.
func (s *Set) io(r *state, l *Look) (out []Fired) {
	if len(l.IO) == 0 {
		return nil
	}
	c, err := r.watches()
	if err != nil {
		return nil // Parse has accepted it
	}
	for _, f := range l.IO {
		if !c.On[f.Rule] || r.slowIO() && f.Longest <= int64(c.Slow) { // another rule has a lower limit
			continue
		}
		label := fmt.Sprintf("thread %d", f.TID)
		if i := slices.IndexFunc(l.Threads, func(t *Track) bool { return t.TID == f.TID }); i >= 0 {
			label = "thread " + l.Threads[i].label()
		}
		out = append(out, Fired{At: f.At, TID: f.TID, Text: label + ": " + f.Text,
			Values: []Value{{"rule", string(f.Rule)}, {"file", f.Path}, {"longest", time.Duration(f.Longest).String()}}})
	}
	return out
}

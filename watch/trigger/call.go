package trigger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
)

// Call: the target calls a function, or a call of it took too long.
const Call Kind = "call"

var call = Subject{
	Kind: Call, Flag: "call", Help: "this function is called; or 'handle_request slower=200ms': all its calls are traced, and one took longer",
	options: []string{"slower", "threads"},
	value: func(r *Rule, v string) (err error) {
		fn, limit, slow := cutSlower(v)
		if r.Function = fn; slow {
			err = r.slower(limit)
		}
		if fn == "" {
			err = fmt.Errorf("write the name of a function")
		}
		return err
	},
	whole: (*Rule).traceable,
	check: func(s *Set, r *state, l *Look) []Fired {
		if r.Slower > 0 {
			return s.slowCalls(r, l)
		}
		return s.called(r, l)
	},
}

// SlowCall is a traced call of a Rule's function that took at least the rule's time.
type SlowCall struct {
	Rule     *Rule
	Function string
	TID      stack.TID // that entered it
	Enter    stack.Time
	Took     int64  // ns
	How      string // how it ended, where that was not by a return
}

// minSlower is the shortest call that a rule may ask for.
const minSlower = 100 * time.Microsecond

// cutSlower splits FUNCTION slower=TIME. The name of a function may have spaces.
func cutSlower(v string) (fn, limit string, ok bool) {
	i := strings.LastIndex(" "+v, " slower=") - 1
	if i == -1 {
		return "", v[len("slower="):], true
	}
	if i < 0 {
		return v, "", false
	}
	return strings.TrimSpace(v[:i]), v[i+len(" slower="):], true
}

// slower parses the time of a rule of kind Call.
func (r *Rule) slower(v string) error {
	d, err := time.ParseDuration(strings.TrimSpace(v))
	if err != nil || d < minSlower || d > maxLimit {
		return fmt.Errorf("slower: invalid time %q; use %v to %v (example: slower=200ms)", v, minSlower, maxLimit)
	}
	r.Slower = d
	return nil
}

// traceable reports why the function of a rule cannot be traced.
func (r *Rule) traceable() error {
	if r.Slower == 0 {
		return nil
	}
	_, err := calls.ParsePattern(r.Function)
	return err
}

// Slower returns the rules about slow calls of functions, which are traced, and the shortest of their times.
func Slower(rules []*Rule) (mine []*Rule, least time.Duration) {
	for _, r := range rules {
		if r.Kind == Call && r.Slower > 0 {
			if mine = append(mine, r); least == 0 || r.Slower < least {
				least = r.Slower
			}
		}
	}
	return mine, least
}

// slowCalls evaluates a rule about slow calls: by the calls that were traced, and by samples where they are
// not, or do not end.
func (s *Set) slowCalls(r *state, l *Look) (out []Fired) {
	for i := range l.Slow {
		c := &l.Slow[i]
		if c.Rule != r.Rule || c.Took < int64(r.Slower) {
			continue
		}
		label := fmt.Sprintf("%d", c.TID)
		if i := slices.IndexFunc(l.Threads, func(t *Track) bool { return t.TID == c.TID }); i >= 0 {
			if !r.Picks(l.Threads[i]) {
				continue
			}
			label = l.Threads[i].label()
		} else if r.Threads != "" && r.Threads != "all" {
			continue // it is gone, with its name
		}
		f := Fired{At: c.Enter, TID: c.TID, Text: fmt.Sprintf("thread %s was in %s for %s", label, c.Function, short(time.Duration(c.Took)))}
		if c.How != "" {
			f.Text += " (" + c.How + ")"
		}
		f.Values = []Value{{"function", c.Function}, {"for", time.Duration(c.Took).String()}, {"limit", r.Slower.String()}, {"known_by", "tracing"}}
		out = append(out, f)
	}
	limit := r.Slower
	if l.Traced != nil && l.Traced(r.Rule) {
		limit += unended
	}
	return append(out, s.calls(r, l, limit)...)
}

// unended is how much longer than the rule's time a traced call may take until samples report it before
// it ends.
const unended = 5 * time.Second

// Hit is a counted call of a Rule's function.
type Hit struct {
	Rule  *Rule
	TID   stack.TID
	Since stack.Time // lower bound of the call's time
}

// called evaluates a rule about each call of a function.
func (s *Set) called(r *state, l *Look) (out []Fired) {
	for _, h := range l.Hits {
		i := slices.IndexFunc(l.Threads, func(t *Track) bool { return t.TID == h.TID })
		if h.Rule != r.Rule || i < 0 {
			continue
		}
		out = append(out, Fired{At: h.Since, TID: h.TID, Text: fmt.Sprintf("thread %s calls %s", l.Threads[i].label(), r.Function),
			Values: []Value{{"function", r.Function}}})
	}
	for _, t := range l.Threads {
		for _, c := range t.calls {
			if c.bit != r.bit || l.Counted != nil && l.Counted(r.Rule, t.TID) {
				continue
			}
			fn := s.meant(r.Function, c.w, c.at)
			out = append(out, Fired{At: c.at, TID: t.TID, Text: fmt.Sprintf("thread %s calls %s", t.label(), fn), Values: []Value{{"function", fn}}})
		}
	}
	return out
}

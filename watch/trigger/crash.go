package trigger

import (
	"fmt"

	"github.com/sliverprof/sliver/stack"
)

// Crash: the target dies of a signal.
const Crash Kind = "crash"

var crash = Subject{
	Kind: Crash, Flag: "crash", Help: "a signal kills the program: yes (default, also with other triggers) or no", Word: "yes|no",
	value: func(r *Rule, v string) error {
		if r.Off = v == "no"; !r.Off && v != "yes" {
			return fmt.Errorf("write yes or no")
		}
		return nil
	},
}

// Crashed is Check for the end of the process.
func (s *Set) Crashed(now stack.Time, how string) (out []Fired) {
	for _, r := range s.rules {
		if r.Kind == Crash && !r.Off && r.happened(now) {
			out = append(out, Fired{Rule: r.Rule, Kind: Crash, At: now, Text: "the process was " + how, Values: []Value{{"end", how}}})
		}
	}
	return out
}

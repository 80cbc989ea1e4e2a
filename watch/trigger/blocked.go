package trigger

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// Blocked: a thread waits for one lock for too long.
const Blocked Kind = "blocked"

var blocked = Subject{
	Kind: Blocked, Flag: "blocked", Help: "a thread waits for one lock for this long",
	options: []string{"threads"},
	value:   (*Rule).limit,
	check:   (*Set).blocked,
}

// limit parses a value that is a time.
func (r *Rule) limit(v string) (err error) {
	r.Limit, err = duration(v)
	return err
}

// waits reports whether t waits for a lock now.
func (t *Track) waits() bool {
	return t.now.lock != 0 && (t.now.state == stack.StateBlocked || t.now.state == stack.StateDisk)
}

func (s *Set) blocked(r *state, l *Look) (out []Fired) {
	r.forget(l)
	for _, t := range l.Threads {
		lasts := time.Duration(l.Now - t.now.lockAt)
		if !r.Picks(t) || !r.edge(key{t.TID, t.now.lock}, t.waits() && lasts >= r.Limit) {
			continue
		}
		f := Fired{At: t.now.lockAt, TID: t.TID}
		f.Text = fmt.Sprintf("thread %s waits for lock at %#x for %s", t.label(), t.now.lock, short(lasts))
		f.Values = []Value{{"lock", fmt.Sprintf("%#x", t.now.lock)}, {"for", short(lasts)}, {"limit", short(r.Limit)}}
		if t.now.holder != 0 {
			f.Text += fmt.Sprintf(", held by %d", t.now.holder)
			f.Values = append(f.Values, Value{"holder", strconv.Itoa(int(t.now.holder))})
		}
		out = append(out, f)
	}
	return out
}

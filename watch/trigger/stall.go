package trigger

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Stall: a thread is out of its event loop, or in one call of a function, for too long. Slow: a call of a
// function takes too long, in any thread.
const (
	Stall Kind = "stall"
	Slow  Kind = "slow"
)

var stall = Subject{
	Kind: Stall, Flag: "stall", Help: "the main thread is outside its event loop, or in one call of a function, for this long: 5s, 'f>100ms' (repeatable; options below)",
	options: []string{"threads", "loop"},
	value: func(r *Rule, v string) (err error) {
		r.Threads = "main"
		if fn, limit, ok := cutFunction(v); ok {
			r.Function, v = fn, limit
		}
		r.Limit, err = duration(v)
		return err
	},
	check: func(s *Set, r *state, l *Look) []Fired { return s.calls(r, l, r.Limit) },
}

var slow = Subject{
	Kind: Slow, Flag: "slow", Help: "a call of a function takes longer: 'handle_request>50ms'",
	options: []string{"threads"},
	value: func(r *Rule, v string) (err error) {
		fn, limit, ok := cutFunction(v)
		if !ok || fn == "" {
			return fmt.Errorf("write FUNCTION>TIME, such as 'handle_request>50ms'")
		}
		r.Function = fn
		r.Limit, err = duration(limit)
		return err
	},
	check: stall.check,
}

// cutFunction splits FUNCTION>TIME at its last ">".
func cutFunction(v string) (fn, limit string, ok bool) {
	i := strings.LastIndexByte(v, '>')
	if i < 0 {
		return "", v, false
	}
	return strings.TrimSpace(v[:i]), strings.TrimSpace(v[i+1:]), true
}

// loopOption names the event loop of a stall rule without a function.
func (r *Rule) loopOption(v string) error {
	if r.Function != "" {
		return fmt.Errorf("a rule about a function needs no event loop")
	}
	r.Loop = v
	return nil
}

// calls evaluates the rules about one long call, of at least limit.
func (s *Set) calls(r *state, l *Look, limit time.Duration) (out []Fired) {
	r.forget(l)
	for _, t := range l.Threads {
		if !r.Picks(t) {
			continue
		}
		e, more := l.tail(t)
		if more = more && e.Time > t.seen; more {
			t.follow() // all its events except the last one are processed
		}
		var x run
		loopName := ""
		switch {
		case r.Function != "":
			x = t.runs[r.bit]
		default:
			lo := &t.loops[0]
			if r.bit >= 0 {
				lo = t.named(r.bit)
			}
			x = lo.run
			if x.on && lo.depth >= 0 && lo.depth < len(t.frames) && l.Name != nil {
				loopName = l.Name(t.frames[lo.depth].word, t.at)
			}
		}
		seen := t.seen
		if more {
			way, n, _ := event.SeenFields(e.Payload())
			x.count(n, way == stack.WayUnrun, t.now.state == stack.StateRunnable, int64(e.Time-max(seen, t.now.at)))
			seen = e.Time
		}
		if !r.edge(key{t.TID, uint64(x.begin)}, x.longer(int64(limit), seen)) {
			continue
		}
		lasts := time.Duration(seen - x.begin)
		f := Fired{At: x.begin, TID: t.TID}
		fn := ""
		if x.depth < len(t.frames) {
			fn = s.meant(r.Function, t.frames[x.depth].word, t.at)
		}
		if r.Function == "" && l.Name != nil && x.depth < len(t.frames) {
			fn = l.Name(t.frames[x.depth].word, t.at)
		}
		if r.Function == "" {
			f.Text = fmt.Sprintf("thread %s is out of its event loop %s, in %s, for %s%s", t.label(), loopName, fn, short(lasts), l.inner(t, x.depth))
			f.Values = append(f.Values, Value{"loop", loopName})
		} else {
			f.Text = fmt.Sprintf("thread %s is in %s for %s%s", t.label(), fn, short(lasts), l.inner(t, x.depth))
		}
		f.Values = append(f.Values, Value{"function", fn}, Value{"for", short(lasts)}, Value{"limit", short(limit)},
			Value{"samples", strconv.Itoa(x.loose[0] + x.loose[1])})
		out = append(out, f)
	}
	return out
}

func (l *Look) tail(t *Track) (event.Event, bool) {
	if l.Tails == nil {
		return event.Event{}, false
	}
	return l.Tails(t)
}

// meant returns the function at w that matches want.
func (s *Set) meant(want string, w event.Word, at stack.Time) string {
	for _, name := range s.names.Funcs(w, at) {
		if Names(want, name) {
			return name
		}
	}
	return want
}

// inner describes the frames of a thread above depth.
func (l *Look) inner(t *Track, depth int) string {
	const most = 3
	queued := ""
	if t.now.state == stack.StateRunnable {
		queued = "; it waits for a CPU"
	}
	if l.Name == nil || depth+1 >= len(t.frames) {
		return queued
	}
	var names []string
	for i := depth + 1; i < len(t.frames) && len(names) < most; i++ {
		names = append(names, l.Name(t.frames[i].word, t.at))
	}
	return "; now in " + strings.Join(names, ", ") + queued
}

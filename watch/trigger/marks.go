package trigger

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// Hit is a counted call of a Rule's function.
type Hit struct {
	Rule  *Rule
	TID   stack.TID
	Since stack.Time // lower bound of the call's time
}

// Written identifies the content of a file.
type Written struct {
	At   time.Time
	Size int64
}

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

func (s *Set) files(r *state, l *Look) (out []Fired) {
	if l.Files == nil {
		return nil
	}
	w := l.Files(r.Path)
	before := r.written
	r.written = &w
	if before == nil || *before == w || w == (Written{}) {
		return nil
	}
	return []Fired{{At: l.Now, Text: fmt.Sprintf("%s was written, %d bytes", r.Path, w.Size),
		Values: []Value{{"file", r.Path}, {"bytes", strconv.FormatInt(w.Size, 10)}}}}
}

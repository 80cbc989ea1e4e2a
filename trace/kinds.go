package trace

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Kinds is a set of frame kinds: a bit for each stack.Kind. Error frames are always
// included.
type Kinds uint8

// AllKinds contains every kind.
const AllKinds Kinds = 0xff

// KindNames returns the names of the kinds of code that ParseKinds accepts.
func KindNames() []string {
	var all []string
	for _, k := range stack.Kinds() {
		all = append(all, k.String())
	}
	return all
}

// ParseKinds parses a comma-separated list of kind names. "all" is all kinds, and "no-" before a
// name removes a kind; a list of removals alone begins with all kinds.
func ParseKinds(list string) (Kinds, error) {
	k, without, named := Kinds(1<<stack.KindError), Kinds(0), false
	for _, word := range strings.Split(list, ",") {
		if strings.TrimSpace(word) == "all" {
			k, named = AllKinds, true
			continue
		}
		word, remove := strings.CutPrefix(strings.TrimSpace(word), "no-")
		kinds := stack.Kinds()
		i := slices.IndexFunc(kinds, func(x stack.Kind) bool { return x.String() == strings.TrimSpace(word) })
		if i < 0 {
			return 0, fmt.Errorf("invalid kind of frames %q; use all, %s, or no- before one", strings.TrimSpace(word), strings.Join(KindNames(), ", "))
		}
		if remove {
			without |= 1 << kinds[i]
			continue
		}
		k, named = k|1<<kinds[i], true
	}
	if !named {
		k = AllKinds
	}
	return k &^ without, nil
}

// Without returns k without one kind.
func (k Kinds) Without(x stack.Kind) Kinds { return k &^ (1 << x) }

// Has reports whether frames of kind x are in the set.
func (k Kinds) Has(x stack.Kind) bool { return x == stack.KindError || k>>(x&7)&1 != 0 }

// Only returns a view of the recording with frames of these kinds only. If a caller is
// filtered out, its callees appear on top of its own caller. The view shares everything
// with rec.
func (rec *Recording) Only(k Kinds) *Recording {
	out := *rec
	out.less |= ^k
	out.Others = nil
	for _, x := range rec.Others {
		out.Others = append(out.Others, x.Only(k))
	}
	return &out
}

// Sieve filters frames out of a thread's events. The zero value removes all but error
// frames.
//
// An error frame marks frames that could not be found. If native frames are filtered out,
// it is shown only below another frame: as the innermost frame it would look like a
// function that used all of their time.
type Sieve struct {
	kinds  Kinds
	known  bool     // a Sync was seen
	frames []sifted // of the stack, outermost first
	left   uint64   // remaining frames of a Sync
	sync   []event.Event
}

// sifted is the decision about a frame.
type sifted struct {
	word  uint64 // payload of its Enter
	state uint8
}

const (
	leftOut  uint8 = iota
	shown          // it was passed on
	heldBack       // an error frame without a shown frame above it
)

// sift yields the events without frames of other kinds.
func sift(events iter.Seq[event.Event], kinds Kinds) iter.Seq[event.Event] {
	return func(yield func(event.Event) bool) {
		s := NewSieve(kinds)
		for e := range events {
			if !s.Apply(e, yield) {
				return
			}
		}
		s.flush(yield)
	}
}

// NewSieve returns a Sieve for a thread whose stack is unknown.
func NewSieve(kinds Kinds) *Sieve { return &Sieve{kinds: kinds} }

// Lose reports that events of the thread are missing before the next one.
func (s *Sieve) Lose() {
	s.known, s.left, s.frames, s.sync = false, 0, s.frames[:0], s.sync[:0]
}

// Apply passes what remains of the thread's next event to yield: nothing, the event, or
// also events held back before it. It returns false if yield did.
func (s *Sieve) Apply(e event.Event, yield func(event.Event) bool) bool {
	if s.left > 0 {
		if e.Kind() == event.Enter {
			s.left--
			s.enter(e, func(e event.Event) bool { s.sync = append(s.sync, e); return true })
			return s.left > 0 || s.flush(yield)
		}
		s.left = 0 // it announced too many frames
		if !s.flush(yield) {
			return false
		}
	}
	switch e.Kind() {
	case event.Sync:
		s.known, s.left, s.frames = true, e.Payload(), s.frames[:0]
		s.sync = append(s.sync[:0], e)
		return s.left > 0 || s.flush(yield)
	case event.Enter:
		return !s.known || s.enter(e, yield)
	case event.Exit:
		return s.exit(e, yield)
	case event.Move:
		n := len(s.frames) - 1
		return n < 0 || s.frames[n].state != shown || yield(e)
	case event.Gap:
		if why, _ := event.GapFields(e.Payload()); why == stack.WhyLost {
			s.known, s.frames = false, s.frames[:0]
		}
	}
	return yield(e)
}

// enter pushes a frame and passes it on, after the error frames below it that were held
// back.
func (s *Sieve) enter(e event.Event, yield func(event.Event) bool) bool {
	kind := event.Word(e.Payload()).Kind()
	f := sifted{word: e.Payload()}
	switch {
	case !s.kinds.Has(kind):
	case s.holds(kind):
		f.state = heldBack
	default:
		f.state = shown
		from := len(s.frames)
		for from > 0 && s.frames[from-1].state != shown {
			from--
		}
		for i := from; i < len(s.frames); i++ {
			if s.frames[i].state == heldBack {
				s.frames[i].state = shown
				if !yield(event.Make(e.Time, event.Enter, s.frames[i].word)) {
					return false
				}
			}
		}
	}
	s.frames = append(s.frames, f)
	return f.state != shown || yield(e)
}

// exit pops the innermost frame, and the error frames that no longer have a shown frame
// above them.
func (s *Sieve) exit(e event.Event, yield func(event.Event) bool) bool {
	n := len(s.frames) - 1
	if n < 0 {
		return true
	}
	was := s.frames[n].state
	s.frames = s.frames[:n]
	if was != shown {
		return true
	}
	if !yield(e) {
		return false
	}
	for i := n - 1; i >= 0; i-- {
		f := &s.frames[i]
		if f.state != shown {
			continue
		}
		if !s.holds(event.Word(f.word).Kind()) {
			break
		}
		f.state = heldBack
		if !yield(event.Event{Time: e.Time}) {
			return false
		}
	}
	return true
}

// holds reports whether frames of the kind are shown only below others.
func (s *Sieve) holds(k stack.Kind) bool {
	return k == stack.KindError && !s.kinds.Has(stack.KindNative)
}

// flush passes on a Sync with its remaining frames.
func (s *Sieve) flush(yield func(event.Event) bool) bool {
	if len(s.sync) == 0 {
		return true
	}
	s.sync[0] = event.Make(s.sync[0].Time, event.Sync, uint64(len(s.sync)-1))
	for _, e := range s.sync {
		if !yield(e) {
			return false
		}
	}
	s.sync = s.sync[:0]
	return true
}

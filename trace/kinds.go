package trace

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Kinds is a set of frame kinds: a bit for each stack.Kind, and Runtime. Error frames are always
// included.
type Kinds uint16

const (
	// Runtime is the native frames of an interpreter or virtual machine above a function that it
	// runs. Without it, their time counts for that function.
	Runtime Kinds = 1 << 15
	// AllKinds contains every kind, OwnKinds all but Runtime.
	AllKinds Kinds = 0xff | Runtime
	OwnKinds       = AllKinds &^ Runtime
)

// runtimeName is Runtime's name in a list of kinds.
const runtimeName = "runtime"

// KindNames returns the names of the kinds of code that ParseKinds accepts.
func KindNames() []string {
	var all []string
	for _, k := range stack.Kinds() {
		all = append(all, k.String())
	}
	return append(all, runtimeName)
}

// kindNamed returns the kind with a name.
func kindNamed(name string) (Kinds, bool) {
	if name == runtimeName {
		return Runtime, true
	}
	for _, k := range stack.Kinds() {
		if k.String() == name {
			return 1 << (k & 7), true
		}
	}
	return 0, false
}

// ParseKinds parses a comma-separated list of kind names. "all" is all kinds, and "no-" before a
// name removes a kind; a list of removals alone begins with all kinds. Native code includes the runtime's.
func ParseKinds(list string) (Kinds, error) {
	k, without, named := Kinds(1<<stack.KindError), Kinds(0), false
	for _, word := range strings.Split(list, ",") {
		word, remove := strings.CutPrefix(strings.TrimSpace(word), "no-")
		word = strings.TrimSpace(word)
		if word == "all" && !remove {
			k, named = AllKinds, true
			continue
		}
		x, ok := kindNamed(word)
		switch {
		case !ok:
			return 0, fmt.Errorf("invalid kind of frames %q; use all, %s, or no- before one", word, strings.Join(KindNames(), ", "))
		case remove:
			without |= x
		default:
			k, named = k|x, true
			if x&(1<<stack.KindNative|Runtime) != 0 {
				k |= 1<<stack.KindNative | Runtime
			}
		}
	}
	if !named {
		k = AllKinds
	}
	return k &^ without, nil
}

// Without returns k without one kind.
func (k Kinds) Without(x stack.Kind) Kinds { return k &^ (1 << (x & 7)) }

// Has reports whether frames of kind x are in the set.
func (k Kinds) Has(x stack.Kind) bool { return x == stack.KindError || k>>(x&7)&1 != 0 }

// HidesRuntime reports whether the code of the recording's runtimes is filtered out: see Runtime.
func (rec *Recording) HidesRuntime() bool {
	return rec.less&Runtime != 0 && slices.ContainsFunc(rec.Modules, func(m Module) bool { return stack.ManagedModule(m.Path) })
}

// runtimes returns the test for the native code of the recording's runtimes, if it is filtered out.
func (rec *Recording) runtimes() OfRuntime {
	if !rec.HidesRuntime() {
		return nil
	}
	n := NewNames(rec)
	known := map[*Loc]bool{}
	return func(w event.Word, at stack.Time) bool {
		l := n.Resolve(w, at)
		own, ok := known[l]
		if !ok {
			f := n.Func(&l.Frames[0])
			module := ""
			if l.Key.Module >= 0 {
				module = rec.Modules[l.Key.Module].Path
			}
			own = stack.Interpreter(module, f.Name, f.File)
			known[l] = own
		}
		return own
	}
}

// Only returns a view of the recording with frames of these kinds only. If a caller is
// filtered out, its callees appear on top of its own caller. The view shares everything
// with rec.
func (rec *Recording) Only(k Kinds) *Recording {
	out := *rec
	out.less |= AllKinds &^ k
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
	own    OfRuntime // nil: all of its native code is shown
	known  bool      // a Sync was seen
	frames []sifted  // of the stack, outermost first
	runs   int       // frames of functions that a runtime runs
	left   uint64    // remaining frames of a Sync
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

// OfRuntime reports whether native code at a time is that of an interpreter or virtual machine.
type OfRuntime func(w event.Word, at stack.Time) bool

// sift yields the events without frames of other kinds.
func sift(events iter.Seq[event.Event], kinds Kinds, own OfRuntime) iter.Seq[event.Event] {
	return func(yield func(event.Event) bool) {
		s := NewSieve(kinds, own)
		for e := range events {
			if !s.Apply(e, yield) {
				return
			}
		}
		s.flush(yield)
	}
}

// NewSieve returns a Sieve for a thread whose stack is unknown. own may be nil, and is not called if kinds
// has Runtime.
func NewSieve(kinds Kinds, own OfRuntime) *Sieve {
	if kinds&Runtime != 0 {
		own = nil
	}
	return &Sieve{kinds: kinds, own: own}
}

// Lose reports that events of the thread are missing before the next one.
func (s *Sieve) Lose() {
	s.left, s.sync = 0, s.sync[:0]
	s.begin(false)
}

// begin clears the stack.
func (s *Sieve) begin(known bool) { s.known, s.frames, s.runs = known, s.frames[:0], 0 }

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
		s.left = e.Payload()
		s.begin(true)
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
			s.begin(false)
		}
	}
	return yield(e)
}

// enter pushes a frame and passes it on, after the error frames below it that were held
// back.
func (s *Sieve) enter(e event.Event, yield func(event.Event) bool) bool {
	kind := event.Word(e.Payload()).Kind()
	f := sifted{word: e.Payload()}
	if kind.Managed() {
		s.runs++
	}
	switch {
	case !s.kinds.Has(kind):
	case s.own != nil && s.runs > 0 && kind == stack.KindNative && s.own(event.Word(f.word), e.Time):
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
	if event.Word(s.frames[n].word).Kind().Managed() {
		s.runs--
	}
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

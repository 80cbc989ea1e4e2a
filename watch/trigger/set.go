package trigger

import (
	"fmt"
	"path"
	"time"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace/event"
)

// Set holds the rules of one process and their state.
type Set struct {
	rules     []*state
	functions []function
	loops     []int // bits of functions that are named loops
	names     Namer
	polls     func(nr int32) bool
	masks     map[maskKey]uint64
}

type maskKey struct {
	w event.Word
	t stack.Time
}

// function is a name in rules; its index is its bit.
type function struct {
	rule *state
	want string
	loop bool
}

// state is a rule with its state.
type state struct {
	*Rule
	bit  int                  // of its function, or of its loop; -1: none
	held map[stack.TID]uint64 // what it currently holds for and has reported
	hits []stack.Time         // when it happened, within Within
	last stack.Time           // when it last fired; 0: never
	// State of checks.
	checked  stack.Time
	inRow    map[key]int
	previous map[key]float64    // share, or CPU time
	sampled  map[key]stack.Time // when CPU time was measured
	written  *Written
	kinds    map[string]int // of descriptors at the first check; nil: not yet

	falls int // checks that ended in a panic
}

// key identifies what a rule holds for: a thread, or the process.
type key struct {
	tid  stack.TID
	what uint64
}

// Fired is a rule whose condition held.
type Fired struct {
	Rule   *Rule
	Kind   Kind
	At     stack.Time // since when a reader of the recording sees it hold
	TID    stack.TID  // 0: the process
	Text   string
	Values []Value
}

// Value is one measurement.
type Value struct{ Name, Value string }

// Usage is the resource usage of the process. A limit of 0 means none. Used is negative
// if it could not be read.
type Usage struct {
	CPU                           int64 // ns so far; negative: unknown
	Memory, FDs, Threads          float64
	MemoryMax, FDsMax, ThreadsMax float64
	JavaHeap, JavaHeapMax         float64
	MemoryOf                      string // what the limit is: "control group", "RAM", "--mem-limit"
	ThreadsOf                     string // whose limit that is: "control group", "user", "machine"
	// Kinds counts the descriptors by kind: file, socket, pipe, eventpoll … It is called for the first check of
	// a rule and when one fires. It may be nil, and returns nil if they cannot be read.
	Kinds func() map[string]int
}

// Look is the input of one check.
type Look struct {
	Now     stack.Time
	Threads []*Track
	// Usage is called if a rule that needs it is due. It only has to return the values
	// for that kind of rule; ok is false if the process is gone.
	Usage func(k Kind) (u Usage, ok bool)
	// Files returns when a file was last written and its size; the zero value if it does
	// not exist.
	Files func(path string) Written
	// Tails returns samples of a thread that are not in its events yet.
	Tails func(*Track) (event.Event, bool)
	// Hits are counted calls. Counted reports whether calls of a rule's function in a
	// thread have been counted: from then on samples of such calls add nothing. Only
	// samples find a call that began before counting did. Counted may be nil.
	Hits    []Hit
	IO      []IOFinding // since the last Look
	Counted func(*Rule, stack.TID) bool
	// Slow are traced calls that ended since the last Look. Traced reports whether all calls of a
	// rule's function are traced: then samples of them only find those that do not end. It may be nil.
	Slow   []SlowCall
	Traced func(*Rule) bool
	// Name formats a frame for texts.
	Name func(w event.Word, t stack.Time) string
	// Contain runs the check of one rule and returns its panic, if any. That check is
	// lost and the rule's state is reset; after maxFalls panics the rule is disabled.
	// Broken is called for each. If Contain is nil, Check panics.
	Contain func(check func()) error
	Broken  func(r *Rule, err error, off bool)
}

// maxFalls is how many checks of a rule may end in a panic. After three the rule is
// assumed to be broken permanently, and would fill the log.
const maxFalls = 3

// NewSet returns a Set. polls reports whether a system call waits for events.
func NewSet(rules []*Rule, names Namer, polls func(nr int32) bool) (*Set, error) {
	if len(rules) > MaxRules {
		return nil, fmt.Errorf("%d triggers are too many; use up to %d", len(rules), MaxRules)
	}
	s := &Set{names: names, polls: polls, masks: map[maskKey]uint64{}}
	for _, r := range rules {
		x := newState(r)
		switch {
		case r.Function != "":
			x.bit = len(s.functions)
			s.functions = append(s.functions, function{x, r.Function, false})
		case r.Loop != "":
			x.bit = len(s.functions)
			s.functions = append(s.functions, function{x, r.Loop, true})
			s.loops = append(s.loops, x.bit)
		}
		s.rules = append(s.rules, x)
	}
	return s, nil
}

func newState(r *Rule) *state {
	return &state{Rule: r, bit: -1, held: map[stack.TID]uint64{}, inRow: map[key]int{}, previous: map[key]float64{}, sampled: map[key]stack.Time{}}
}

// maxMasks limits the cache of code locations.
const maxMasks = 1 << 16

// mask returns the functions that w is in, as bits, for thread t.
func (s *Set) mask(t *Track, w event.Word, at stack.Time) uint64 {
	if len(s.functions) == 0 || w.Kind() == stack.KindError {
		return 0
	}
	k := maskKey{w, 0}
	m, ok := s.masks[k]
	if !ok {
		for _, name := range s.names.Funcs(w, at) {
			for bit := range s.functions {
				if Names(s.functions[bit].want, name) {
					m |= 1 << bit
				}
			}
		}
		if len(s.masks) >= maxMasks {
			clear(s.masks)
		}
		s.masks[k] = m
	}
	if m == 0 {
		return 0
	}
	for bit := range s.functions {
		if m>>bit&1 != 0 && !s.functions[bit].rule.Picks(t) {
			m &^= 1 << bit
		}
	}
	return m
}

// Remapped reports that the code in memory changed, which invalidates cached addresses.
func (s *Set) Remapped() { clear(s.masks) }

// Picks reports whether the rule applies to t.
func (r *Rule) Picks(t *Track) bool {
	switch r.Threads {
	case "", "all":
		return true
	case "main":
		return t.Main
	}
	ok, _ := path.Match(r.Threads, t.Name)
	return ok
}

// Check evaluates all rules and returns those that fire.
func (s *Set) Check(l *Look) (out []Fired) {
	for _, r := range s.rules {
		if r.falls >= maxFalls {
			continue
		}
		for _, f := range s.contained(r, l) {
			if r.happened(l.Now) {
				f.Rule, f.Kind = r.Rule, r.Kind
				out = append(out, f)
				break // one dump shows the others of this moment
			}
		}
	}
	for _, t := range l.Threads {
		t.calls = t.calls[:0]
	}
	return out
}

// contained is check; with l.Contain, a panic does not affect other rules.
func (s *Set) contained(r *state, l *Look) (found []Fired) {
	if l.Contain == nil {
		return s.check(r, l)
	}
	if err := l.Contain(func() { found = s.check(r, l) }); err != nil {
		// Its state may be inconsistent. Keep only when it was checked and fired.
		fresh := newState(r.Rule)
		fresh.bit, fresh.checked, fresh.last, fresh.falls = r.bit, r.checked, r.last, r.falls+1
		*r = *fresh
		l.Broken(r.Rule, err, r.falls >= maxFalls)
		return nil
	}
	return found
}

// check evaluates one rule once.
func (s *Set) check(r *state, l *Look) []Fired {
	if check := r.Subject().check; check != nil {
		return check(s, r, l)
	}
	return nil
}

// happened counts an occurrence and reports whether the rule fires: often enough, and not
// too soon after the last time.
func (r *state) happened(now stack.Time) bool {
	if r.Times > 1 {
		r.hits = append(r.hits, now)
		for len(r.hits) > 0 && int64(now-r.hits[0]) > int64(r.Within) {
			r.hits = r.hits[1:]
		}
		if len(r.hits) < r.Times {
			return false
		}
	}
	if r.last != 0 && int64(now-r.last) < int64(r.CoolDown) {
		return false
	}
	r.last, r.hits = now, r.hits[:0]
	return true
}

// edge reports whether a condition that holds now did not hold at the last look, so that
// a lasting condition counts once.
func (r *state) edge(k key, holds bool) bool {
	if !holds {
		delete(r.held, k.tid)
		return false
	}
	if r.held[k.tid] == k.what+1 {
		return false
	}
	r.held[k.tid] = k.what + 1
	return true
}

// forget drops the state of threads that are gone.
func (r *state) forget(l *Look) {
	there := make(map[stack.TID]bool, len(l.Threads))
	for _, t := range l.Threads {
		there[t.TID] = true
	}
	for tid := range r.held {
		if tid != 0 && !there[tid] {
			delete(r.held, tid)
		}
	}
	for k := range r.previous {
		if k.tid != 0 && !there[k.tid] {
			delete(r.previous, k)
			delete(r.sampled, k)
			delete(r.inRow, k)
		}
	}
}

func (t *Track) label() string { return fmt.Sprintf("%d (%s)", t.TID, t.Name) }

func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < 10*time.Millisecond: // a traced call
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// due reports whether it is time for the next check.
func (r *state) due(now stack.Time) (since int64, ok bool) {
	since = int64(now - r.checked)
	if r.checked != 0 && since < int64(r.Every) {
		return 0, false
	}
	if r.checked == 0 {
		since = 0
	}
	r.checked = now
	return since, true
}

func (l *Look) usage(k Kind) (Usage, bool) {
	if l.Usage == nil {
		return Usage{}, false
	}
	return l.Usage(k)
}

package unwind

import (
	"debug/elf"
	"io"
	"slices"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/unwind/rule"
)

// A Language describes the runtime of one language. Its package declares one value, and NewSpace or
// Follow takes it. A Language is immutable.
type Language struct {
	Name       string
	Properties Properties
	// Find looks for the runtime in the files that s has mapped (Space.Code). It returns nil if the
	// process has none. An error says why the runtime cannot be read, now or ever. The runtime's
	// functions get their addresses from table; nil: see the language.
	Find func(s *Space, table *managed.Table) (Stepper, error)
	// Expect returns the list of the frames of the runtime's first thread as soon as the runtime is mapped, before Find
	// finds it; nil: the runtime has no such list.
	Expect func(s *Space) (stack.Links, bool)
	// Tables opens the rules that the language's own compiler puts into an ELF file; nil: the file has
	// none. It must be fast for other files. nil: the language has no such rules.
	Tables func(f *elf.File, file io.ReaderAt, arch rule.Arch) (Tables, error)
	// Adopt returns the Stepper of a process that has mapped a file with Tables. It is called when the
	// first such file is opened, so that Follow is not necessary.
	Adopt func(s *Space, t Tables, bias uint64) Stepper
}

// Tables are the rules in one file that a language's own compiler made.
type Tables interface {
	// Rule computes the rule for vaddr, rule.ErrNoRule if the tables do not cover it.
	Rule(vaddr uint64, out *rule.Rule) error
}

// Properties are facts about a runtime that walks of its process depend on: a set of bits.
type Properties uint8

const (
	// Beside: frames need memory beside the thread's stack, as of the same moment.
	Beside Properties = 1 << iota
	// Guesses: a stop without More may lack something, which then requires another stop.
	Guesses
	// TLS: walks need the TLS register, which only a stop shows.
	TLS
	// Tasks: each thread runs tasks on stacks of their own, adjacent in the runtime's mappings.
	Tasks
	// Generates: code in anonymous memory that is not always executable, walked by frame pointers.
	Generates
	// CoversCode: the Stepper covers code. Rules cached before the runtime was found are dropped.
	CoversCode
	// Remaps: Stepper.Maps changes mappings. After Follow, the caller reads them again.
	Remaps
)

// Has reports whether p has one of the properties q.
func (p Properties) Has(q Properties) bool { return p&q != 0 }

// A Stepper is one runtime's part in the walks of one process. Machine code is walked by rules from
// any kind of table. Each Stepper adds its runtime's data to the copy of a thread's stack, steps over
// frames that no rule describes, and puts the runtime's functions between those of machine code. If a
// process has several runtimes, all of them take part, in the order of NewSpace's languages.
//
// The calls for one copy of a thread's memory are, in order:
//
//	Peek, Plan, Asks     before the stop
//	More                 during the stop
//	Begin                the walk begins
//	Covers, Step, Cross  at frames
//	Resume, Holds        at the walk's end; if a Stepper returns Again, the walk is repeated
//	Settle, Merge, Report
//
// A walk without a stop may lack the first two groups. Calls for different threads may be made by
// different goroutines at once, each with a Walker of its own. State that a runtime keeps between walks
// of a thread is in a Slot of the Thread, and that of a Walker in a Slot of the Walker. A type
// embeds NoPart for the calls that it does not implement.
type Stepper interface {
	// Peek may read th's data while it runs, for the Plan that follows. It makes at most two reads of
	// the target's memory, and only if that saves a read during the stop.
	Peek(th *Thread)
	// Plan appends the blocks to copy of th in addition to its stack, predicted from the reads of
	// its last walk.
	Plan(th *Thread, out []rule.Span) []rule.Span
	// Asks reports whether More must be called during the stop, because Plan could not predict the
	// blocks.
	Asks(th *Thread) bool
	// Aside returns the memory that Plan and More would ask for, if its places are known by now. Then copies are
	// made at moments that are not planned (Copy.Past).
	Aside(th *Thread) (x Aside, ok bool)
	// Links returns the list of th's frames, if the runtime has one and its place is known by now.
	Links(th *Thread) (l stack.Links, ok bool)
	// More runs during the stop. It appends further blocks to copy, or reads the target's memory
	// itself and returns the number of reads.
	More(w *Walker, th *Thread, regs *stack.Regs, mem *Copy, out []rule.Span) (spans []rule.Span, reads int)
	// Begin is called at the start of each walk.
	Begin(w *Walker, th *Thread, regs *stack.Regs)
	// Covers reports whether Step, and not rules, handles frames of the code at pc.
	Covers(pc uint64) bool
	// Step appends the frames of the code at pc (Walker.SetFrames) and leaves their caller's registers
	// in w. exact: pc is the next instruction, not a return address.
	Step(w *Walker, pc uint64, exact bool) Step
	// Cross continues a walk at f, whose rule r is special: the stack continues elsewhere. It leaves the
	// registers there in w. apply: the registers are ready for the rule itself, and the Step is unused.
	// ok is false if the rule is not of this runtime.
	Cross(w *Walker, th *Thread, f *stack.Frame, r *rule.Rule) (s Step, apply, ok bool)
	// Resume may continue a walk that ended early, for the reason why, at a frame further out that
	// the runtime knows (Walker.Continue).
	Resume(w *Walker, th *Thread, why stack.Reason) stack.Reason
	// Holds reports whether the runtime data that the walk read is still valid. try counts the walks
	// of this copy from 1.
	Holds(w *Walker, try int) Verdict
	// Settle runs at the walk's end. It moves the found frames to their final places and records
	// what the thread ran (Thread.SetTask).
	Settle(w *Walker, th *Thread)
	// Merge returns a whole stack with the runtime's frames. It does not change frames.
	Merge(w *Walker, th *Thread, frames []stack.Frame) []stack.Frame
	// Report says what the last walk of th lacks.
	Report(th *Thread) Report
	// Maps returns maps with memory of the runtime presented as mappings of a file. It does not modify
	// maps. It has no part in walks; calls do not overlap.
	Maps(maps []stack.Mapping) []stack.Mapping
}

// A Report says what a runtime's part in a walk of a thread lacks.
type Report struct {
	Gap    bool        // frames are missing; a KindError frame is in their place
	Lacks  bool        // the next copy includes the missing memory: another copy at once is worthwhile
	Torn   bool        // the thread was switching between two frames: it has to run before another copy helps, a planned one or not
	Locked bool        // the thread held the runtime's global lock
	Code   []rule.Span // memory of code that was missing; it does not move while a thread runs it
}

// add adds what another runtime reports.
func (r *Report) add(s Report) {
	r.Gap, r.Lacks, r.Torn, r.Locked = r.Gap || s.Gap, r.Lacks || s.Lacks, r.Torn || s.Torn, r.Locked || s.Locked
	if len(r.Code) == 0 {
		r.Code = s.Code
	}
}

// A Verdict decides what happens to a walk.
type Verdict uint8

// Verdicts, each stronger than the one before it.
const (
	Valid Verdict = iota
	Again         // walk the copy once more
	Void          // drop the frames: they may be wrong
)

// MaxAgain bounds the walks of one copy.
const MaxAgain = 4

// NoPart is a Stepper without effect.
type NoPart struct{}

// The methods of Stepper.
func (NoPart) Peek(*Thread)                                {}
func (NoPart) Plan(_ *Thread, out []rule.Span) []rule.Span { return out }
func (NoPart) Asks(*Thread) bool                           { return false }
func (NoPart) Aside(*Thread) (Aside, bool)                 { return Aside{}, false }
func (NoPart) Links(*Thread) (stack.Links, bool)           { return stack.Links{}, false }
func (NoPart) Begin(*Walker, *Thread, *stack.Regs)         {}
func (NoPart) Covers(uint64) bool                          { return false }
func (NoPart) Step(*Walker, uint64, bool) Step             { return Stop(stack.ReasonNoRule) }
func (NoPart) Holds(*Walker, int) Verdict                  { return Valid }
func (NoPart) Settle(*Walker, *Thread)                     {}
func (NoPart) Report(*Thread) Report                       { return Report{} }
func (NoPart) Resume(_ *Walker, _ *Thread, why stack.Reason) stack.Reason {
	return why
}
func (NoPart) Merge(_ *Walker, _ *Thread, frames []stack.Frame) []stack.Frame {
	return frames
}
func (NoPart) More(_ *Walker, _ *Thread, _ *stack.Regs, _ *Copy, out []rule.Span) ([]rule.Span, int) {
	return out, 0
}
func (NoPart) Maps(maps []stack.Mapping) []stack.Mapping { return maps }
func (NoPart) Cross(*Walker, *Thread, *stack.Frame, *rule.Rule) (s Step, apply, ok bool) {
	return s, false, false
}

// runtimes holds the runtimes found in a process so far. It is immutable.
type runtimes struct {
	all      Properties // of all of them together
	found    []found    // by language
	steppers []Stepper  // in the order in which they take part
}

// found is one runtime of a process.
type found struct {
	l *Language
	s Stepper
}

// of returns the runtime of a language, nil if there is none.
func (r *runtimes) of(l *Language) Stepper {
	for i := range r.found {
		if r.found[i].l == l {
			return r.found[i].s
		}
	}
	return nil
}

// setRuntime makes the walks of the process use s for l; nil: none. If only is true, it changes nothing
// if l has a runtime.
func (s *Space) setRuntime(l *Language, st Stepper, only bool) {
	s.found.Lock()
	defer s.found.Unlock()
	old := s.runtimes.Load()
	if only && old.of(l) != nil {
		return
	}
	if !slices.Contains(s.languages, l) {
		s.languages = append(s.languages, l)
	}
	next := &runtimes{}
	for _, k := range s.languages {
		now := old.of(k)
		if k == l {
			now = st
		}
		if now != nil {
			next.found = append(next.found, found{k, now})
			next.steppers = append(next.steppers, now)
			next.all |= k.Properties
		}
	}
	s.runtimes.Store(next)
}

// Follow makes walks show the frames of l if the process has its runtime. It returns the Stepper,
// nil if there is none; the error is that of Language.Find. Following again replaces the Stepper.
// A language that NewSpace was not called with takes part after the others.
func (s *Space) Follow(l *Language, table *managed.Table) (Stepper, error) {
	if s.mem == nil {
		return nil, nil
	}
	st, err := l.Find(s, table)
	if st == nil || err != nil {
		return nil, err
	}
	s.setRuntime(l, st, false)
	if l.Properties.Has(Generates) {
		s.mark()
	}
	if l.Properties.Has(CoversCode) {
		s.renew()
	}
	s.shown.Add(1)
	return st, nil
}

// adopt makes the runtime of m's language the process's if it has none yet. If there are several (a
// program and a plugin built as C library), the first one is followed. Stacks of the others end where
// they cross into another runtime's code.
func (s *Space) adopt(m *module, bias uint64) {
	if m.own == nil || s.runtimes.Load().of(m.by) != nil {
		return
	}
	s.setRuntime(m.by, m.by.Adopt(s, m.own, bias), true)
}

// Followed returns the Stepper of l's runtime, nil if none was found.
func (s *Space) Followed(l *Language) Stepper { return s.runtimes.Load().of(l) }

// Forget undoes Follow for the given languages, or for all if none is given: the process has become
// another program.
func (s *Space) Forget(languages ...*Language) {
	if len(languages) == 0 {
		s.found.Lock()
		defer s.found.Unlock()
		s.runtimes.Store(&runtimes{})
		return
	}
	for _, l := range languages {
		s.setRuntime(l, nil, false)
	}
}

// Presented returns maps as the runtimes present them: see Stepper.Maps. Calls must not overlap.
func (s *Space) Presented(maps []stack.Mapping) []stack.Mapping {
	for _, x := range s.runtimes.Load().steppers {
		maps = x.Maps(maps)
	}
	return maps
}

// Properties returns those of all runtimes found so far.
func (s *Space) Properties() Properties { return s.runtimes.Load().all }

// walkAll walks a copy until all runtimes accept the result.
func (w *Walker) walkAll(th *Thread, regs *stack.Regs, exact bool) (reason stack.Reason) {
	for try := 1; ; try++ {
		reason = w.walk(regs.PC, exact)
		for _, s := range w.with.steppers {
			reason = s.Resume(w, th, reason)
		}
		found := Valid
		for _, s := range w.with.steppers {
			found = max(found, s.Holds(w, try))
		}
		switch {
		case found == Void:
			w.frames = w.frames[:0]
			return stack.ReasonMemory
		case found == Valid || try == MaxAgain:
			return reason
		}
		w.begin(regs)
	}
}

// stepRuntime walks over a frame of a runtime's code.
func (w *Walker) stepRuntime(key, pc uint64, exact bool) Step {
	for _, s := range w.with.steppers {
		if s.Covers(key) {
			return s.Step(w, pc, exact)
		}
	}
	return Stop(stack.ReasonNoRule) // it belonged to another program
}

// cross continues the walk where a runtime's data says. If apply is true, w's registers are ready
// for the rule itself.
func (w *Walker) cross(f *stack.Frame, r *rule.Rule) (s Step, apply bool) {
	w.wanted, w.crossed = 0, true
	for _, x := range w.with.steppers {
		if s, apply, ok := x.Cross(w, w.th, f, r); ok {
			return s, apply
		}
	}
	return Stop(stack.ReasonNoRule), false
}

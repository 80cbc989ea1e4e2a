package trigger

// Kind is what a Rule is about.
type Kind string

// A Subject describes the rules of one kind. It has a file of its own, and its row in subjects is the only
// other place that knows of it.
type Subject struct {
	Kind Kind
	Flag string // of the command line
	Help string // of that flag
	Word string // for the flag's value in the help; "": RULE
	Heap bool   // the dump has the Java heap beside it

	// value parses the rule's value and sets the kind's defaults.
	value func(r *Rule, v string) error
	// options are the names of the kind's own options, in the order of the documentation.
	options []string
	// times: 3x is another way to write checks=3.
	times bool
	// whole checks the rule once its options are known; nil: any combination is possible.
	whole func(r *Rule) error
	// check evaluates a rule once; nil: it fires by Set.Crashed.
	check func(s *Set, r *state, l *Look) []Fired
}

// subjects are all kinds, in the order of the documentation.
var subjects []*Subject

func init() { // not a value: Subjects refer to functions that use the list
	subjects = []*Subject{&stall, &slow, &blocked, &deadlock, &cpu, &memory, &fds, &threads, &call, &file, &io, &crash, &javaHeap, &javaGrowth}
}

// Subjects returns all kinds of rules, in the order of the documentation.
func Subjects() []*Subject { return subjects }

// Kinds returns the names of all kinds.
func Kinds() (all []Kind) {
	for _, s := range subjects {
		all = append(all, s.Kind)
	}
	return all
}

// Subject returns the description of the rule's kind.
func (r *Rule) Subject() *Subject { return subjectOf(r.Kind) }

func subjectOf(k Kind) *Subject {
	for _, s := range subjects {
		if s.Kind == k {
			return s
		}
	}
	return nil
}

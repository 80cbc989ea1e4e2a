package stack

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// traits are the properties of one kind. Other packages ask for a property and do not name the kinds, so
// that a new language is a row here and a folder in lang.
type traits struct {
	// name is the kind's name in queries, in JSON and for --kinds. It never changes.
	name string
	// title is the name in text for readers: "JavaScript".
	title string
	// color is the colour of its category, of the palette of the Firefox profiler: "yellow".
	color string

	// managed: see Managed.
	managed bool
	// offStack: see OffStack.
	offStack bool
	// unordered: see Ordered. Implied by offStack.
	unordered bool
	// tagged: see Tag.
	tagged bool

	// start and end are the range of addresses that the functions get which have none in the target; 0: their
	// addresses are real.
	start, end uint64

	// files matches the base names of the files with the runtime's own code, nil: there are none.
	files *regexp.Regexp
	// parts are parts of paths of the files that belong to the runtime too: its native modules.
	parts []string
	// functions and sources match names of the runtime's functions and paths of its source files. They
	// recognize a runtime that is linked into another program's file. Both may be nil.
	functions, sources *regexp.Regexp
	// libraries: see Library.
	libraries Library
	// launched: see Launched.
	launched bool
	// locking is the base name of the source file whose functions lock for their callers; "": unknown.
	locking string
	// forwards are the functions without a source file that only lock or wait for their callers; nil: none.
	forwards []string
	// tracing begins the names of the functions that record a traced call at its begin and end; "": there are none.
	tracing string
}

// Library says how the functions of a managed kind are recognized that came with its runtime or were installed:
// by patterns of their names and of the paths of their source files, in the syntax that Go and JavaScript have in
// common; "": no function matches. Functions without a source file are among them if Unfiled is set.
type Library struct {
	Names, Files string
	Unfiled      bool
}

// table lists the properties by kind. From KindRuby on the kinds are managed: see Code.
var table = []traits{
	KindNative: {name: "native", title: "Native", color: "yellow"},
	KindGo:     {name: "go", title: "Go", color: "blue", unordered: true}, // goroutines have stacks of their own
	KindKernel: {name: "kernel", title: "Kernel", color: "orange", start: 0x8400_0000_0000, end: 0x8500_0000_0000},
	KindJava: {name: "java", title: "Java", color: "green", managed: true, tagged: true,
		start: 0x8100_0000_0000, end: 0x8200_0000_0000,
		files:     regexp.MustCompile(`^(libjvm\.so|libjli\.so|java)$`),
		libraries: Library{Names: `^(java|javax|jdk|sun|com\.sun)\.`},
		tracing:   "jdk.jfr.",
		launched:  true},
	KindPython: {name: "python", title: "Python", color: "lightblue", managed: true, tagged: true, offStack: true,
		start: 0x8000_0000_0000, end: 0x8100_0000_0000,
		files:     regexp.MustCompile(`^(libpython\d.*|python[\d.]*t?d?|pypy.*|libpypy.*)$`),
		parts:     []string{"/lib-dynload/"},
		functions: regexp.MustCompile(`^(_?Py[A-Z_]|pymain_|pyrun_|cfunction_|slot_tp_|builtin_)`),
		sources:   regexp.MustCompile(`(^|/)(Python|Objects|Modules|Include(/internal|/cpython)?)/(clinic/|_\w+/)?[\w.]+\.[ch]$`),
		libraries: Library{Files: `/lib/python\d|^<frozen `, Unfiled: true},
		locking:   "threading.py"}, // Condition.wait, Event.wait, Thread.join
	KindJS: {name: "js", title: "JavaScript", color: "brown", managed: true,
		start: 0x8200_0000_0000, end: 0x8300_0000_0000,
		files:     regexp.MustCompile(`^(node|nodejs|libnode\.so.*)$`),
		functions: regexp.MustCompile(`^(v8::|node::|Builtins_)`),
		libraries: Library{Files: `^node:|/node_modules/`, Unfiled: true}},
	KindError: {name: "error", title: "Missing", color: "darkgrey"},
	KindRuby: {name: "ruby", title: "Ruby", color: "magenta", managed: true, tagged: true, offStack: true,
		start: 0x8300_0000_0000, end: 0x8400_0000_0000,
		files:     regexp.MustCompile(`^(libruby[-.\d]*\.so.*|ruby[-.\d]*)$`),
		parts:     []string{"/ruby/"},
		libraries: Library{Files: `^<internal:|/lib/(x86_64-linux-gnu/|aarch64-linux-gnu/)?ruby/|/gems/|/rubygems`, Unfiled: true},
		locking:   "monitor.rb",
		// Up to Ruby 3.3; later ones have their class.
		forwards: []string{"lock", "synchronize", "enter", "wait", "wait_for_cond", "join", "value", "sleep"}},
}

// of returns the properties of k. Values that no kind has are native code, as in an event word.
func (k Kind) of() *traits {
	if int(k) < len(table) {
		return &table[k]
	}
	return &table[KindNative]
}

// Kinds returns the kinds of code, in the order of their values: all kinds except KindError.
func Kinds() []Kind {
	all := make([]Kind, 0, len(table))
	for i := range table {
		if Kind(i) != KindError {
			all = append(all, Kind(i))
		}
	}
	return all
}

// coded is the last value of a kind in an event word, which has three bits for it.
const coded = 7

// Code returns the value of the kind in an event word. From KindRuby on the kinds share one value, and their
// ranges of addresses distinguish them.
func (k Kind) Code() uint64 { return uint64(min(k, coded)) }

// KindOf returns the kind with the value code in an event word of the address addr.
func KindOf(code, addr uint64) Kind {
	if code == coded {
		for i := coded + 1; i < len(table); i++ {
			if t := &table[i]; addr >= t.start && addr < t.end {
				return Kind(i)
			}
		}
	}
	return Kind(code & coded)
}

func (k Kind) String() string {
	if int(k) < len(table) {
		return table[k].name
	}
	return name(int(k), "kind")
}

// Title returns the kind's name for readers: "JavaScript".
func (k Kind) Title() string { return k.of().title }

// Color returns the colour of the kind's category, a word of the Firefox profiler's palette.
func (k Kind) Color() string { return k.of().color }

// Tag returns what a printed stack adds to functions of the kind: "Python". It is "" for kinds that the
// frame's file or module shows.
func (k Kind) Tag() string {
	if t := k.of(); t.tagged {
		return t.title
	}
	return ""
}

// Managed reports whether frames of the kind are activations of a runtime's own functions, whose
// PC is not an address of machine code.
func (k Kind) Managed() bool { return k.of().managed }

// Library says how the functions of the kind's libraries are recognized.
func (k Kind) Library() Library { return k.of().libraries }

// Launched reports whether the first thread of a program only starts another one that runs its main function.
func (k Kind) Launched() bool { return k.of().launched }

// Machine reports whether the PC of the kind's frames is an address of machine code in the target.
func (k Kind) Machine() bool { return k != KindError && k != KindKernel && !k.Managed() }

// OffStack reports whether the runtime keeps the frames outside of the thread's stack, linked to each
// other: their CFA is an address in the runtime's memory.
func (k Kind) OffStack() bool { return k.of().offStack }

// Ordered reports whether a frame's CFA is higher than those of its callees, whatever their kinds.
func (k Kind) Ordered() bool { t := k.of(); return !t.unordered && !t.offStack }

// Unverified reports whether the frames are on the thread's stack, and the place of their return address is
// unknown: reading the stack cannot show that such a call has returned.
func (k Kind) Unverified() bool { t := k.of(); return t.managed && !t.offStack }

// Range returns the range of addresses that functions of the kind get in a recording; ok is false if their
// addresses are those of the target.
func (k Kind) Range() (start, end uint64, ok bool) { t := k.of(); return t.start, t.end, t.end != 0 }

// RuntimeFile reports whether a file, by its path, contains code of the kind's runtime: the interpreter or
// virtual machine, or one of its native modules.
func (k Kind) RuntimeFile(file string) bool {
	t := k.of()
	if t.files == nil {
		return false
	}
	for _, part := range t.parts {
		if strings.Contains(file, part) {
			return true
		}
	}
	return t.files.MatchString(path.Base(file))
}

// Locks reports whether a function, by its name and the path of its source file, only locks or waits for its
// callers. The path is empty for functions that have no source file.
func (k Kind) Locks(function, source string) bool {
	t := k.of()
	if source == "" {
		return slices.Contains(t.forwards, function)
	}
	return t.locking != "" && path.Base(source) == t.locking
}

// Tracing reports whether a function records traced calls of its callers: of a frame below it, the call has not begun
// or is over.
func (k Kind) Tracing(function string) bool {
	t := k.of()
	return t.tracing != "" && strings.HasPrefix(function, t.tracing)
}

// Module is the name of the module that functions of the kind have if they have no file with machine code.
func (k Kind) Module() string { return "[" + k.String() + "]" }

// ManagedModule reports whether a module is that of functions that a runtime runs.
func ManagedModule(module string) bool { return managedModules[module] }

var managedModules = func() map[string]bool {
	all := map[string]bool{}
	for i := range table {
		if table[i].managed {
			all[Kind(i).Module()] = true
		}
	}
	return all
}()

// Interpreter reports whether a native function is part of a runtime: the interpreter's frames between those
// of the functions that it runs. module and source are paths, function is a name; each may be "". Native
// modules of the runtime are not part of the interpreter.
func Interpreter(module, function, source string) bool {
	base := path.Base(module)
	for i := range table {
		t := &table[i]
		if t.files != nil && t.files.MatchString(base) ||
			t.functions != nil && t.functions.MatchString(function) ||
			t.sources != nil && t.sources.MatchString(source) {
			return true
		}
	}
	return false
}

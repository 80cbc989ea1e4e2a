package live

import (
	"slices"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/lang/golang"
	"github.com/sliverprof/sliver/lang/jvm"
	"github.com/sliverprof/sliver/lang/python"
	"github.com/sliverprof/sliver/lang/ruby"
	"github.com/sliverprof/sliver/lang/v8"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
	"github.com/sliverprof/sliver/wait"
	"github.com/sliverprof/sliver/wait/lock"
)

// languages has a row for each language. The order is that of their runtimes in walks
// (unwind.NewSpace): machine code first, then code that Steppers walk, then those that replace or insert
// frames. Runtimes are looked for in the same order. The first one that knows a lock or a thread's name
// is taken; of the tasks, those of the last one, since its walk has the last word (unwind.Thread.SetTask).
var languages = []*lang.Language{golang.Language, jvm.Language, v8.Language, python.Language, ruby.Language}

// stacks returns the languages for unwind.NewSpace.
func stacks() (all []*unwind.Language) {
	for _, l := range languages {
		all = append(all, l.Stacks)
	}
	return all
}

// Languages returns the languages whose runtimes are followed, in the order in which to look for them.
func Languages() []*lang.Language {
	return slices.DeleteFunc(slices.Clone(languages), func(l *lang.Language) bool { return l.Range == managed.Range{} })
}

// opened is the Runtime of a Stepper.
type opened struct {
	st unwind.Stepper
	rt lang.Runtime
}

// Runtime returns the runtime of a language in the process, nil if walks have found none.
func (t *Target) Runtime(l *lang.Language) lang.Runtime {
	st := t.space.Followed(l.Stacks)
	if st == nil {
		return nil
	}
	t.openMu.Lock()
	defer t.openMu.Unlock()
	x := t.opened[l]
	if x.st != st {
		if t.opened == nil {
			t.opened = map[*lang.Language]opened{}
		}
		x = opened{st, l.Open(t.space, st)}
		t.opened[l] = x
	}
	return x.rt
}

// runtimes calls each for the runtimes of the process, in the order of languages, until it returns true.
func (t *Target) runtimes(each func(lang.Runtime) (done bool)) {
	for _, l := range languages {
		if rt := t.Runtime(l); rt != nil && each(rt) {
			return
		}
	}
}

// hasRuntime reports whether the process has any runtime that was followed.
func (t *Target) hasRuntime() bool {
	return slices.ContainsFunc(languages, func(l *lang.Language) bool {
		return l.Range != managed.Range{} && t.space.Followed(l.Stacks) != nil
	})
}

// Follow looks for a language's runtime. If it finds one, walks show the language's functions by their
// addresses in table from then on. It returns nil if the process has none; the error is that of
// unwind.Language.Find.
func (t *Target) Follow(l *lang.Language, table *managed.Table) (lang.Runtime, error) {
	st, err := t.space.Follow(l.Stacks, table)
	if st == nil {
		return nil, err
	}
	if l.Stacks.Properties.Has(unwind.Remaps) {
		_, _ = t.remap(false, 0) // without it the runtime's own functions have no names
	}
	return t.Runtime(l), nil
}

// ThreadNames returns the names that a runtime gives to the threads of the process, by the TIDs that the
// process itself sees; nil: none does.
func (t *Target) ThreadNames() (names map[int32]string) {
	t.runtimes(func(rt lang.Runtime) bool {
		names = rt.ThreadNames()
		return names != nil
	})
	return names
}

// Carries names the task that a thread, numbered as the process itself sees it, runs now; "": none.
func (t *Target) Carries(thread stack.TID) (name string) {
	t.runtimes(func(rt lang.Runtime) bool {
		name = rt.Carries(thread)
		return name != ""
	})
	return name
}

// Locks sets what runtimes know of locks in a wait.Config.
func (t *Target) Locks(c *wait.Config) {
	c.GIL, c.Monitor, c.MonitorOwner, c.LockName = t.GIL, t.Monitor, t.MonitorOwner, t.LockName
}

// GIL implements wait.Config.GIL.
func (t *Target) GIL(thread int32, word uint64) (g wait.GIL, ok bool) {
	t.runtimes(func(rt lang.Runtime) bool {
		g, ok = rt.GlobalLock(thread, word)
		return ok
	})
	return g, ok
}

// Monitor implements wait.Config.Monitor.
func (t *Target) Monitor(thread int32) (m wait.Monitor, ok bool) {
	t.runtimes(func(rt lang.Runtime) bool {
		m, ok = rt.Monitor(thread)
		return ok
	})
	return m, ok
}

// MonitorOwner implements wait.Config.MonitorOwner.
func (t *Target) MonitorOwner(addr uint64) (locked bool, holder int32) {
	t.runtimes(func(rt lang.Runtime) bool {
		locked, holder = rt.MonitorOwner(addr)
		return locked
	})
	return locked, holder
}

// LockName implements wait.Config.LockName.
func (t *Target) LockName(l *lock.Lock) (name string) {
	t.runtimes(func(rt lang.Runtime) bool {
		name = rt.LockName(l)
		return name != ""
	})
	return name
}

package live

import (
	"errors"
	"testing"
	"time"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
)

// TestLateRuntime: functions without names because their runtime was found late must be
// reported; those of a runtime that was found in time must not.
func TestLateRuntime(t *testing.T) {
	found, problem := false, error(nil)
	begin := func(slow bool) (*Runtimes, *followed) {
		found, problem = false, nil
		f := &followed{seeker: seeker{
			&lang.Language{Name: "JavaScript", Stacks: &unwind.Language{Name: "V8"}, Range: managed.Of(stack.KindJS), Slow: slow},
			func(*managed.Table) (bool, bool, error) { return found, false, problem },
		}}
		return &Runtimes{t: &Target{}, stop: make(chan struct{}), of: []*followed{f}}, f
	}
	told := func(r *Runtimes, want string) {
		t.Helper()
		if p := r.Problems(); len(p) != min(len(want), 1) || len(p) == 1 && p[0] != want {
			t.Errorf("%q, want %q", p, want)
		}
	}

	r, f := begin(true)
	r.look(true)
	told(r, "")
	found = true
	r.look(true)
	told(r, "")
	f.took = 1234 * time.Millisecond
	const first = "JavaScript functions have no names in the first 1.2 s, until V8 was found"
	told(r, first)
	close(r.stop)
	r.look(true) // already found
	told(r, first)
	problem = errors.New("no version that is known")
	r.look(true)
	told(r, "no version that is known")

	r, _ = begin(true)
	found = true
	close(r.stop)
	r.look(true)
	told(r, "JavaScript functions have no names: the recording ended before V8 was found")

	r, _ = begin(false)
	found = true
	close(r.stop)
	r.look(false)
	told(r, "")
}

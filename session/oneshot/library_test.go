package oneshot

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/wait/kind"
)

// A lock in a library must have its name or, if the file has none, its location in the
// library, which is the same in each run.
func TestLockOfLibrary(t *testing.T) {
	for _, c := range []struct {
		variant, which string
		want           string // regular expression
	}{
		{"O2", "0", `^guard$`},
		{"O2", "1", `^hidden$`},
		{"stripped", "0", `^guard$`},
		{"stripped", "1", `^guardlib\.so\+0x[0-9a-f]+$`},
	} {
		t.Run(c.variant+"/"+c.which, func(t *testing.T) {
			lib := testprog.Build(t, "locks/guardlib", c.variant)
			p, said := start(t, "locks/guarded", "O2", lib, c.which)
			s := until(t, Options{}, "a thread that waits for the lock", func(s []*stacks.Snapshot) bool {
				th := s[0].Thread(said.Waiters[0])
				return th != nil && th.State == stack.StateBlocked && th.Wait != nil && th.Wait.Lock != nil
			}, open1(t, p.PID))[0]
			l := s.Thread(said.Waiters[0]).Wait.Lock
			if !regexp.MustCompile(c.want).MatchString(l.Symbol) || filepath.Base(l.Module) != "guardlib.so" || l.Kind != kind.LockMutex ||
				hexa(l.Addr) != said.Lock || l.Holder.TID != said.Holder {
				t.Errorf("%s of %s: %+v, want %s, %+v", l.Symbol, l.Module, l, c.want, said)
			}
		})
	}
}

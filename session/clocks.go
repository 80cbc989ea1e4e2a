package session

import (
	"errors"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/target"
)

// TryClocks returns why clocks of the kernel cannot sample running threads here; nil: they can. bpf also tries the
// program that copies memory beside stacks. No target is touched: the clock is one of this program's own thread.
func TryClocks(bpf bool) error {
	if !bpf {
		return target.ExplainClock(target.TryClock(0, target.NoProgram))
	}
	a, err := kernel.OpenAsides(false) // its error names all missing capabilities
	if err != nil {
		return err
	}
	return errors.Join(target.ExplainClock(target.TryClock(0, a.Program())), a.Close())
}

// usePrograms lets programs of the kernel help with samples, or not, as the options say.
func (s *Session) usePrograms() {
	s.live.UseKernel(s.o.Clock)
	if s.o.NoBPF {
		s.live.WithoutPrograms()
	}
}

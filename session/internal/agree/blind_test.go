package agree

import (
	"testing"

	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind"
)

// For a blocked thread that must not be stopped, only PC and SP are known. blind counts
// how far walks get with these, over the same copies as the walks that have all
// registers: how many reach the end, how many of their frames are right, and how many are
// wrong.
var blind struct{ stacks, whole, right, wrong int }

// lookBlind walks again without the other registers. whole is the walk with them, which
// reached the end.
func lookBlind(tg *live.Target, known *unwind.Thread, v *sampler.View, whole []stack.Frame) {
	arch := tg.Space().Arch()
	regs := stack.Regs{PC: v.Regs.PC}
	regs.Set(arch.SP(), v.Regs.R[arch.SP()])
	th := *known
	// A separate walker: it must not use what the other one has cached.
	frames, why := unwind.NewWalker(tg.Space()).Walk(&th, &regs, &v.Mem)
	if why != stack.ReasonNone {
		frames = frames[:len(frames)-1]
	}
	n := 0
	for n < len(frames) && n < len(whole) && frames[n].PC == whole[n].PC {
		n++
	}
	blind.stacks++
	blind.right += n
	blind.wrong += len(frames) - n
	if why == stack.ReasonNone && n == len(whole) {
		blind.whole++
	}
}

// checkBlind checks the counts.
func checkBlind(t *testing.T) {
	t.Helper()
	t.Logf("from PC and SP alone: %d of %d stacks whole, %d frames right, %d made up", blind.whole, blind.stacks, blind.right, blind.wrong)
	if blind.stacks == 0 || blind.wrong*500 > blind.right {
		t.Errorf("from PC and SP alone: %d frames made up, %d right, of %d stacks", blind.wrong, blind.right, blind.stacks)
	}
}

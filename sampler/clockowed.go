package sampler

import (
	"math"

	"github.com/sliverprof/sliver/stack"
)

// unmet estimates the CPU time up to s, in ns, that the ticks of a clock of all CPUs cannot have met, from met, what they
// met, and from measurements of switches. Of n ticks that hit one of the thread's bursts by chance, the variance is n
// times the share of time that it does not run, so C - met alone is off by √n ticks. The estimate is the mean of the normal
// distribution that follows from both, less a part of its standard deviation: samples that were made up are
// not taken back, and the largest estimate so far exceeds the last one. A tick takes effect some time after it is due: one
// that is due in the last moment of a burst of work meets nothing, too, and that moment is not the call's.
func (k *clock) unmet(s *stack.Sample, met int64) int64 {
	switches, ran, tick := float64(s.Switches-k.cpus.turns), float64(s.CPU-k.from), float64(k.cpus.tick)
	idle := 1 - min(ran/max(float64(s.Time-k.since), 1), 1)
	chance := (float64(met)/tick + 1) * idle * tick * tick
	spread := offSpread * switches * offSpread * switches
	trust := spread / (spread + chance + 1)
	unmet := trust*(ran-float64(met)) + (1-trust)*offMean*switches - leftOpen*math.Sqrt(trust*chance) - float64(k.cpus.delay)*switches
	return int64(min(max(unmet, 0), offMost*switches, ran))
}

// owedCalls records samples of the call in which the thread is blocked, as the sample at hand shows,
// for CPU time that its clock cannot have met: a clock of all CPUs is an interrupt, and the kernel holds
// those back while it switches from a thread and to it (kernel/sched/core.c, __schedule, up to
// finish_task_switch). This time belongs to calls that block (see unmet). A clock of the thread keeps its remainder and
// expires after the next switch.
func (g *group) owedCalls(th *thread) {
	k, s := &th.clock, &g.sample
	switch {
	case !k.on || s.Reason != stack.ReasonNone || len(s.Stack) == 0:
	case k.calls.on:
		g.owedWaiting(th)
	case k.cpus.crowd.ownCode:
		g.owedInPool(th)
	case k.machine():
		n := max(min((k.unmet(s, th.file.MetByClock())-k.cpus.owed)/k.every, mostOwed), 0)
		k.cpus.owed += n * k.every
		g.makeUp(th, n)
	}
}

package sampler

import "github.com/sliverprof/sliver/stack"

// When a thread other than the first one execs, the kernel ends all other threads and gives it the number of the first
// one (de_thread of fs/exec.c). It keeps its own counters, whose CPU time is in the account of the thread that it was.
// So samples of the new first thread are recorded with other counters than the kernel's: lineage is the difference.

// tickLate is how much CPU time, in ns, the counters of a running thread may lack: the kernel adds it at its scheduler
// ticks, 1 to 10 ms apart.
const tickLate = 20_000_000

// lineage is by how much the counters of a process's first thread exceed those that are recorded.
type lineage struct {
	check      bool // an exec was reported since the last look
	cpu, delay int64
	switches   uint64
}

// inherit looks for counters of another thread in c, which were read of the first one at a time. If they are, the counts
// of the first one go on with what the new one has used since its last sample.
func (g *group) inherit(th *thread, c *Counters, at stack.Time) {
	u, l := &th.usage, &th.life.lineage
	exec := l.check
	l.check = false
	if !th.info.Main || u.at == 0 {
		return
	}
	most := int64(at-u.at) + tickLate
	ran, delayed := c.CPU-u.cpu, c.Delay-u.delay
	// The kernel adds the time of waiting for a CPU when that ends, so without an exec it may be any.
	if ran >= 0 && ran <= most && delayed >= 0 && (delayed <= most || !exec) {
		return // its own
	}
	was, ok := g.s.counted(th, c.CPU, at)
	switch {
	case ok:
	case ran < 0: // that thread was not sampled
		was = max(0, c.CPU-most)
	default:
		return
	}
	l.cpu += was - u.cpu
	l.delay += delayed
	l.switches += c.Switches - th.seen.counters.Switches
	th.info.CPU += was - u.cpu
	u.cpu, u.delay = was, c.Delay
	th.seen.counters, th.seen.blocked = *c, false
	g.unwind(th) // its clock was of the thread that has ended
}

// counted returns the CPU time at the last sample of the thread other than th that may have had the CPU time cpu at a
// time; of several, the greatest.
func (s *Sampler) counted(th *thread, cpu int64, at stack.Time) (was int64, ok bool) {
	s.roll.mu.Lock()
	defer s.roll.mu.Unlock()
	for _, x := range s.roll.all {
		if x == th || x.info.Main {
			continue
		}
		last := x.lastCPU()
		if ran := cpu - last; ran >= 0 && ran <= int64(at)-x.acc.to.Load()+tickLate && (!ok || last > was) {
			was, ok = last, true
		}
	}
	return was, ok
}

// rebase changes a sample's counters to those of the thread's account, or back.
func (l *lineage) rebase(s *stack.Sample, back bool) {
	if s.CPU < 0 {
		return
	}
	if back {
		s.CPU, s.Delay, s.Switches = s.CPU+l.cpu, s.Delay+l.delay, s.Switches+l.switches
	} else {
		s.CPU, s.Delay, s.Switches = s.CPU-l.cpu, s.Delay-l.delay, s.Switches-l.switches
	}
}

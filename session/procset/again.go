package procset

import (
	"cmp"
	"slices"

	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/trace"
)

// Again prepares the set for another recording, when Follow has returned and all processes are done: it returns those
// that were delivered and still run, oldest first, and forgets which were left out. first is not opened again; if it
// still runs, it is the first one. The command that was started for the recording is not compared with the samples.
func (s *Set) Again(first *target.Process) (out []Member) {
	s.mu.Lock()
	s.left, s.o.Used = trace.LeftOut{How: s.left.How}, nil
	s.mu.Unlock()
	type run struct {
		k     *kin
		start uint64
	}
	var runs []run
	for pid, k := range s.kin {
		if !k.taken || k.ended || k.stranger {
			continue
		}
		if first.PID() == pid && first.Alive() {
			s.enter()
			out = append(out, Member{Process: first, Parent: k.parent, Found: target.Now(), Born: k.born})
		} else if f, ok := target.FindOne(pid); ok {
			runs = append(runs, run{k, f.Start})
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.k.pid, b.k.pid)) })
	for _, r := range runs {
		p, err := target.Open(r.k.pid)
		if err != nil {
			continue // it has ended: the recording before has all of it
		}
		if !r.k.is(p, r.k.born) {
			p.Close()
			continue
		}
		s.enter()
		out = append(out, Member{Process: p, Parent: r.k.parent, Found: target.Now(), Born: r.k.born})
	}
	return out
}

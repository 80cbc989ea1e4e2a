package sampler

import "github.com/sliverprof/sliver/stack"

// A pool may rename its threads for each piece of work. The list of threads is read about once a
// second, and less often for very many threads. In between, two reads that are made for samples
// anyway carry the name: the state of a blocked thread, and the records of a thread's clock. So a
// new name has the time of the sample that saw it, or of the list.

// named is a thread's name.
type named struct {
	name string
	own  bool       // it comes from the thread's runtime: the kernel's name does not matter
	at   stack.Time // when it was seen
}

// renamed is a name that a sample saw and that Config.Renamed does not have yet. If maxRenamed wait, the list
// of threads finds the next ones.
type renamed struct {
	in stack.ThreadInfo
	at stack.Time
}

const maxRenamed = 4096

// listed takes the name of a thread from a list whose reading began at that time. th is nil for a
// thread that is not sampled yet.
func (s *Sampler) listed(th *thread, in *stack.ThreadInfo, began stack.Time) {
	s.roll.mu.Lock()
	was := s.roll.names[in.TID]
	if th != nil && was.at >= began && !was.own && in.Comm == "" { // a sample saw its name since then
		s.roll.mu.Unlock()
		return
	}
	s.roll.names[in.TID] = named{name: in.Name, own: in.Comm != "", at: began}
	s.roll.mu.Unlock()
	if th != nil && was.name != in.Name && s.cfg.Renamed != nil {
		s.cfg.Renamed(*in, began)
	}
}

// named takes the kernel's name of a thread as of its sample at that time.
func (s *Sampler) named(th *thread, name string, at stack.Time) {
	tid := th.info.TID
	s.roll.mu.Lock()
	was, ok := s.roll.names[tid]
	if !ok || was.own || s.roll.threads[tid] != th {
		s.roll.mu.Unlock()
		return
	}
	if was.name != name {
		if len(s.roll.renamed) >= maxRenamed {
			s.roll.mu.Unlock()
			return
		}
		in := th.info
		in.Name = name
		s.roll.renamed = append(s.roll.renamed, renamed{in, at})
	}
	s.roll.names[tid] = named{name: name, at: at}
	s.roll.mu.Unlock()
}

// tellNames calls Config.Renamed for the names that samples saw. It may wait for a disk, so groups do not
// call it.
func (s *Sampler) tellNames() {
	s.roll.mu.Lock()
	list := s.roll.renamed
	s.roll.renamed = nil
	s.roll.mu.Unlock()
	for i := range list {
		if s.cfg.Renamed != nil {
			s.cfg.Renamed(list[i].in, list[i].at)
		}
	}
}

package sampler

import (
	"errors"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// roster is a cache of the target's threads. Reading a thousand threads takes tens of ms. A
// thread that has been read a few times hardly changes its name any more, so it is read less
// often the longer a full reading takes.
type roster struct {
	known map[stack.TID]*known
	round uint64
	next  time.Time // when all are read again
	young time.Time // when new ones are read again
	all   []stack.ThreadInfo
	reads int              // by the last list
	took  time.Duration    // of all lists
	youth int              // number of threads that are read a few more times
	clock func() time.Time // nil: time.Now
	// refused is called with the error for each thread read for the first time; may be nil.
	refused func(stack.TID, error)
}

type known struct {
	info  stack.ThreadInfo
	reads int
	taken bool
	round uint64 // the last list that contained it
	read  uint64 // the last list that read it
}

const (
	// youth is how many times a new thread is read: it may get its name a little after its start.
	youth = 5
	// grown is the same for a thread that has lived for oldFor: it has its name. Once more, as that of a
	// runtime may not be readable yet.
	grown = 2
	// rosterShare bounds the time for reading all, as a divisor of the time.
	rosterShare = 200
	// youngShare is the same for new threads, if there are more than fewYoung.
	youngShare = 50
	fewYoung   = 256
)

// list returns the live threads of tids, which are all of the target's. due: changed names should be detected now. The
// list ends early once over returns true.
func (r *roster) list(t Target, tids []stack.TID, due bool, over func() bool) []stack.ThreadInfo {
	all := r.part(t, tids, due, over)
	if over() {
		return all // keep the known state of the others
	}
	for tid, k := range r.known {
		if k.round != r.round {
			delete(r.known, tid)
		}
	}
	return all
}

// part is list for some of the target's threads.
func (r *roster) part(t Target, tids []stack.TID, due bool, over func() bool) []stack.ThreadInfo {
	if r.known == nil {
		r.known = map[stack.TID]*known{}
	}
	r.round++
	begin := r.now()
	whole := due && begin.After(r.next)
	young := due && begin.After(r.young)
	r.reads, r.youth = 0, 0
	r.all = r.all[:0]
	for _, tid := range tids {
		if over() {
			return r.all
		}
		k := r.known[tid]
		if k == nil || whole || young && k.reads < youth {
			in, err := t.Info(tid)
			if k == nil && r.refused != nil {
				r.refused(tid, err)
			}
			switch {
			case err != nil && k != nil && !errors.Is(err, ErrGone):
				in = k.info // it lives: use the known state
			case err != nil || in.State == stack.StateDead:
				continue
			}
			if k == nil {
				k = &known{}
				r.known[tid] = k
			}
			k.info, k.read = in, r.round
			if k.reads++; k.reads == 1 && int64(t.Now()-in.Born) >= oldFor {
				k.reads = youth - grown + 1
			}
			r.reads++
		}
		if k.reads < youth {
			r.youth++
		}
		k.round = r.round
		r.all = append(r.all, k.info)
	}
	took := r.now().Sub(begin)
	r.took += took
	r.rests(took, whole, r.reads > fewYoung)
	return r.all
}

func (r *roster) now() time.Time {
	if r.clock != nil {
		return r.clock()
	}
	return time.Now()
}

// idle reports whether list, if called now for the same threads, would read none.
func (r *roster) idle(due bool) bool {
	now := r.now()
	return !due || !now.After(r.next) && (r.youth == 0 || !now.After(r.young))
}

// rests sets when threads are read again, all of them or new ones, after a reading of that duration.
func (r *roster) rests(took time.Duration, whole, young bool) {
	now := r.now()
	if whole {
		r.next = now.Add(rosterShare * took)
	}
	if young {
		r.young = now.Add(youngShare * took)
	}
}

// fresh reports whether the last list read the thread.
func (r *roster) fresh(tid stack.TID) bool {
	k := r.known[tid]
	return k != nil && k.read == r.round
}

// unread returns the number of threads that were never read.
func (r *roster) unread(tids []stack.TID) (n int) {
	for _, tid := range tids {
		if r.known[tid] == nil {
			n++
		}
	}
	return n
}

// taken marks a thread as taken up. If a thread of this number was taken up before, that one has
// ended and the known state may be its own, so the thread is read again. It returns false if no
// such thread lives.
func (r *roster) taken(t Target, in *stack.ThreadInfo) bool {
	k := r.known[in.TID]
	if k.taken {
		anew, err := t.Info(in.TID)
		if err != nil || anew.State == stack.StateDead {
			delete(r.known, in.TID)
			return false
		}
		*in, k.info, k.reads = anew, anew, 1
	}
	k.taken = true
	return true
}

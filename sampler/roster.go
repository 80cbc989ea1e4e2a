package sampler

import (
	"errors"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// roster is what is known of the target's threads. To read all of a thousand
// takes tens of ms, so one that has been read a few times, and will hardly
// change its name any more, is read more rarely the longer it takes.
type roster struct {
	known map[stack.TID]*known
	round uint64
	next  time.Time // when all are read again
	young time.Time // when new ones are
	all   []stack.ThreadInfo
	// refused is called for threads that are read for the first time, with the error; may be nil.
	refused func(stack.TID, error)
}

type known struct {
	info  stack.ThreadInfo
	reads int
	taken bool
	round uint64 // in whose list it was
}

const (
	// youth is how often a new thread is read at each occasion: it may be
	// given its name a little after it began.
	youth = 5
	// rosterShare bounds what reading all takes, as a divisor of the time.
	rosterShare = 200
	// youngShare is the same for new ones, where there are more than fewYoung.
	youngShare = 50
	fewYoung   = 256
)

// list returns the threads of tids that live. due: it is time to look for
// changed names. The list is cut short as soon as over says so.
func (r *roster) list(t Target, tids []stack.TID, due bool, over func() bool) []stack.ThreadInfo {
	if r.known == nil {
		r.known = map[stack.TID]*known{}
	}
	r.round++
	begin := time.Now()
	whole := due && begin.After(r.next)
	young := due && begin.After(r.young)
	reads := 0
	r.all = r.all[:0]
	for _, tid := range tids {
		if over() {
			return r.all // what is known of the others stays
		}
		k := r.known[tid]
		if k == nil || whole || young && k.reads < youth {
			in, err := t.Info(tid)
			if k == nil && r.refused != nil {
				r.refused(tid, err)
			}
			switch {
			case err != nil && k != nil && !errors.Is(err, ErrGone):
				in = k.info // it lives, as was known of it
			case err != nil || in.State == stack.StateDead:
				continue
			}
			if k == nil {
				k = &known{}
				r.known[tid] = k
			}
			k.info = in
			k.reads++
			reads++
		}
		k.round = r.round
		r.all = append(r.all, k.info)
	}
	for tid, k := range r.known {
		if k.round != r.round {
			delete(r.known, tid)
		}
	}
	if whole {
		r.next = time.Now().Add(rosterShare * time.Since(begin))
	}
	if reads > fewYoung {
		r.young = time.Now().Add(youngShare * time.Since(begin))
	}
	return r.all
}

// unread is how many threads nothing is known of.
func (r *roster) unread(tids []stack.TID) (n int) {
	for _, tid := range tids {
		if r.known[tid] == nil {
			n++
		}
	}
	return n
}

// taken notes that a thread is taken up. If one of its number was before, that
// one has ended, and what is known may be of it: then it is read anew. False:
// there is none that lives.
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

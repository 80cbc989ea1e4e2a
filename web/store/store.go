// Package store keeps the timeline of a recording, live or finished, in memory for fast
// views: for each thread and depth the calls in time order, with the summaries that
// readers need. One goroutine per thread feeds it; readers take snapshots and affect
// neither it nor each other. It holds a limited number of slices in memory. Given a
// folder (Overflow), it keeps the rest in a file; otherwise it drops the oldest.
//
// Callers supply events and names.
package store

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
)

// Info describes a thread.
type Info struct {
	Seq   int
	TID   stack.TID
	NSTID int
	Name  string
	Main  bool
	Born  stack.Time
	// Process is the number of the thread's process, in a recording of several.
	Process int
}

// Store is the timeline of all threads.
type Store struct {
	Names *Names

	limit int64  // slices in memory
	spill *spill // for the rest; nil: none
	held  atomic.Int64

	mu      sync.RWMutex
	infos   []Info // in the order in which threads were added
	threads map[int]*Thread
	changed uint64
	states  []State
	byState map[State]uint32
	sets    []Kinds // requested by Sift
	locks   []Lock
	byLock  map[Lock]uint32
	stacks  []stackNode
	byStack map[stackNode]uint32
	lost    atomic.Uint64
	ended   bool
	reason  string
}

// End records that no more slices will come, and why; names may still come.
func (s *Store) End(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.reason = true, reason
}

// Ended reports whether End was called, and the reason given.
func (s *Store) Ended() (ended bool, reason string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ended, s.reason
}

// DefaultLimit is how many slices are held: 16 million, about 550 MB.
const DefaultLimit = 16 << 20

// New returns a store for at most limit slices, 0 for DefaultLimit.
func New(limit int) *Store {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Store{Names: newNames(), limit: int64(limit), threads: map[int]*Thread{},
		byState: map[State]uint32{}, byLock: map[Lock]uint32{}, byStack: map[stackNode]uint32{}}
}

// Thread adds a thread, or updates the description of a known one (by Seq).
func (s *Store) Thread(in Info) *Thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed++
	if t := s.threads[in.Seq]; t != nil {
		for i := range s.infos {
			if s.infos[i].Seq == in.Seq {
				s.infos[i] = in
			}
		}
		return t
	}
	t := &Thread{store: s, seq: in.Seq, process: in.Process}
	s.threads[in.Seq] = t
	s.infos = append(s.infos, in)
	return t
}

// Remove forgets a thread that gets no more slices.
func (s *Store) Remove(seq int) {
	s.mu.Lock()
	t := s.threads[seq]
	delete(s.threads, seq)
	s.infos = slices.DeleteFunc(s.infos, func(in Info) bool { return in.Seq == seq })
	s.changed++
	s.mu.Unlock()
	if t == nil {
		return
	}
	t.mu.Lock()
	held := t.held
	inFile := 0
	count := func(rows []row) {
		for i := range rows {
			_, n := rows[i].drop(maxTime) // whole chunks: those in memory go with the thread
			inFile += n
		}
	}
	count(t.rows)
	count(t.lanes[:])
	for _, x := range t.sifted {
		count(x.rows)
	}
	t.mu.Unlock()
	s.held.Add(-int64(held))
	s.lost.Add(uint64(held))
	if inFile > 0 {
		s.spill.held.Add(-int64(inFile))
	}
}

// Lookup returns a thread by its Seq, nil if there is none.
func (s *Store) Lookup(seq int) *Thread {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.threads[seq]
}

// Infos returns all threads, main first, then by age.
func (s *Store) Infos() []Info {
	s.mu.RLock()
	out := append([]Info(nil), s.infos...)
	s.mu.RUnlock()
	sort.SliceStable(out, func(i, j int) bool {
		a, b := &out[i], &out[j]
		if a.Main != b.Main {
			return a.Main
		}
		if a.Born != b.Born {
			return a.Born < b.Born
		}
		return a.Seq < b.Seq
	})
	return out
}

// Changed counts changes of the list of threads.
func (s *Store) Changed() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Held returns the number of slices in the store.
func (s *Store) Held() int { return int(s.held.Load()) }

// Dropped returns the number of slices dropped because of the limit.
func (s *Store) Dropped() uint64 { return s.lost.Load() }

func (s *Store) stateID(x State) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return intern(x, &s.states, s.byState)
}

// stackNode is a stack: its innermost place on top of the stack of its callers.
type stackNode struct {
	callers uint32 // number of a stackNode and one; 0: there are none
	place   uint32
}

// stackID returns the number of a stack and one.
func (s *Store) stackID(open []openCall) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := uint32(0)
	for i := range open {
		n = intern(stackNode{n, open[i].place}, &s.stacks, s.byStack) + 1
	}
	return n
}

// StackPlaces calls yield for each place of a stack, innermost first, until it returns false.
func (s *Store) StackPlaces(id uint32, yield func(place uint32) bool) {
	s.mu.RLock()
	stacks := s.stacks
	s.mu.RUnlock()
	for id > 0 && int(id) <= len(stacks) {
		x := stacks[id-1]
		if !yield(x.place) || x.callers >= id { // the last entry is shared once the table is full
			return
		}
		id = x.callers
	}
}

func (s *Store) lockID(x Lock) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return intern(x, &s.locks, s.byLock)
}

// maxInterned limits the tables of states and locks; later ones share the last entry.
const maxInterned = 1 << 20

func intern[T comparable](x T, list *[]T, by map[T]uint32) uint32 {
	id, ok := by[x]
	if !ok {
		if len(*list) >= maxInterned {
			return maxInterned - 1
		}
		id = uint32(len(*list))
		*list = append(*list, x)
		by[x] = id
	}
	return id
}

// State returns entry i of the lane's table.
func (s *Store) State(i uint32) State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if int(i) >= len(s.states) {
		return State{Call: -1}
	}
	return s.states[i]
}

// Lock returns entry i of the lane's table.
func (s *Store) Lock(i uint32) Lock {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if int(i) >= len(s.locks) {
		return Lock{}
	}
	return s.locks[i]
}

// Trim drops the oldest slices if there are more than the limit. A feeder calls it
// regularly.
func (s *Store) Trim() {
	for range 20 {
		if s.over() <= 0 {
			return
		}
		first, last := s.Span()
		if last <= first {
			return
		}
		s.DropBefore(first + (last-first)/10 + 1)
	}
}

// DropBefore drops slices that ended before t, in whole chunks.
func (s *Store) DropBefore(t stack.Time) {
	for _, th := range s.all() {
		th.mu.Lock()
		n, inFile := 0, 0
		drop := func(rows []row) {
			for i := range rows {
				a, b := rows[i].drop(t)
				n, inFile = n+a, inFile+b
			}
		}
		drop(th.rows)
		drop(th.lanes[:])
		for _, x := range th.sifted {
			drop(x.rows)
		}
		if n > 0 {
			th.version++ // older snapshots must not be reused
		}
		th.held -= n
		th.dropped = max(th.dropped, t)
		th.first = max(th.first, min(t, th.last))
		th.mu.Unlock()
		s.held.Add(-int64(n))
		if inFile > 0 {
			s.spill.held.Add(-int64(inFile))
		}
		s.lost.Add(uint64(n))
	}
}

func (s *Store) all() []*Thread {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*Thread, 0, len(s.infos))
	for i := range s.infos {
		out = append(out, s.threads[s.infos[i].Seq])
	}
	return out
}

// Span returns the times of the first and the newest event of any thread.
func (s *Store) Span() (from, to stack.Time) {
	for _, t := range s.all() {
		t.mu.Lock()
		if t.first != 0 && (from == 0 || t.first < from) {
			from = t.first
		}
		to = max(to, t.last)
		t.mu.Unlock()
	}
	return from, to
}

// Locks returns the table of locks from entry i on.
func (s *Store) Locks(i int) []Lock {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.locks[min(i, len(s.locks)):len(s.locks):len(s.locks)]
}

// LockCount returns the number of locks.
func (s *Store) LockCount() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.locks)
}

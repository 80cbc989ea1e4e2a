package jvm

import (
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// Spans appends the memory that Still compares: for each blob that the walk used, the head of its
// block with the beginning of the blob, and the parts of its methods.
func (r *Runtime) Spans(s *State, out []stack.Span) []stack.Span {
	l := r.l
	for i := range s.used {
		u := &s.used[i]
		if u.b != nil {
			n := l.blobName + 8
			if u.b.nm != nil {
				n = l.nmCompileID + 4
			}
			out = append(out, stack.Span{Addr: u.b.addr - l.block, Len: int(l.block + n)})
			continue
		}
		out = u.m.parts(l, out)
	}
	return out
}

// Still reports whether everything that the walk relied on is unchanged. mem returns the memory of
// the i-th of the Spans, or nil if it could not be read. Changed entries are dropped, so that
// another walk reads them again.
func (r *Runtime) Still(s *State, mem func(i int) []byte) bool {
	all, i := true, 0
	for k := range s.used {
		u := &s.used[k]
		if u.b != nil {
			if head := mem(i); head == nil || !u.b.same(r.l, head) {
				all = false
				r.forgetBlob(u.b)
			}
			i++
			continue
		}
		at := i
		if !u.m.same(func(k int) []byte { return mem(at + k) }) {
			all = false
			r.forgetMethod(u.m.addr)
		}
		i += methodParts
	}
	if all {
		s.holds()
	}
	return all
}

// same reports whether memory still holds the blob b. head is the head of its block with the
// beginning of the blob.
func (b *blob) same(l *layout, head []byte) bool {
	if string(head[:len(b.head)]) != b.head {
		return false // freed, or part of another block
	}
	head = head[l.block:]
	if b.nm != nil {
		return u32(head, l.nmCompileID) == b.compileID
	}
	return u64(head, l.blobName) == b.namePtr
}

// stays reports whether a blob lives as long as the virtual machine.
func (b *blob) stays() bool {
	return b.kind == kindInterpreter || b.kind == kindStub || b.kind == kindVtable
}

// forgetBlob drops a blob and the places that walkers cache for it.
func (r *Runtime) forgetBlob(b *blob) {
	b.gone.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.blobs, b.addr)
}

// Forget drops all cached code and methods.
func (r *Runtime) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.blobs {
		b.gone.Store(true)
	}
	clear(r.blobs)
	clear(r.methods)
}

// forgetMethod drops the method at addr.
func (r *Runtime) forgetMethod(addr uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.methods, addr)
}

// fewUsed is the number of used entries up to which they are compared pairwise.
const fewUsed = 16

// Dedup removes duplicates from the blobs and methods that the walk used: a recursion uses the same
// ones again and again. It also removes those that were validated after another walk of the same
// batch (if batch is not 0).
func (s *State) Dedup(batch uint64) {
	if s.batch != batch {
		clear(s.held)
		s.batch = batch
	}
	if len(s.used) > fewUsed && s.seen == nil {
		s.seen = map[use]struct{}{}
	}
	out := s.used[:0]
	for _, u := range s.used {
		if len(s.used) <= fewUsed {
			if slices.Contains(out, u) {
				continue
			}
		} else {
			if _, ok := s.seen[u]; ok {
				continue
			}
			s.seen[u] = struct{}{}
		}
		if _, ok := s.held[u]; ok && (u.b == nil || !u.b.gone.Load()) {
			continue
		}
		out = append(out, u)
	}
	clear(s.seen)
	s.used = out
}

// Doubt drops the cached places in code after a walk whose meter refused reads. They may be wrong.
func (s *State) Doubt() { clear(s.places) }

// Held reports whether nothing is left to validate.
func (s *State) Held() bool { return len(s.used) == 0 }

// holds records that everything the walk used is valid.
func (s *State) holds() {
	if s.batch == 0 {
		return
	}
	if s.held == nil {
		s.held = map[use]struct{}{}
	}
	for _, u := range s.used {
		s.held[u] = struct{}{}
	}
}

package jvm

import (
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// Spans appends what Still wants to see of what the walk used. Of a method's blob and
// of another's it is the head of its block with the beginning of the blob.
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

// Still reports whether what the walk took for granted is there still, by the memory
// of the Spans; mem reads the i-th of them, nil if it could not be read. What is not is
// forgotten: another walk reads it anew.
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

// same reports whether the blob's memory is still that of b; head is that of its block,
// with the beginning of the blob.
func (b *blob) same(l *layout, head []byte) bool {
	if string(head[:len(b.head)]) != b.head {
		return false // it was given back, or is a part of what it was
	}
	head = head[l.block:]
	if b.nm != nil {
		return u32(head, l.nmCompileID) == b.compileID
	}
	return u64(head, l.blobName) == b.namePtr
}

// stays reports whether a blob is there as long as the virtual machine.
func (b *blob) stays() bool {
	return b.kind == kindInterpreter || b.kind == kindStub || b.kind == kindVtable
}

// forgetBlob drops a blob, and what walkers keep of its places.
func (r *Runtime) forgetBlob(b *blob) {
	b.gone.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.blobs, b.addr)
}

// Forget drops all that is kept of code and methods.
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

// fewUsed is how much of what a walk used is compared one by one.
const fewUsed = 16

// Dedup has each blob and method of the walk once among what it used: a recursion
// uses the same again and again. What was seen to hold after another walk of the same
// batch (not 0) is left out.
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

// Doubt drops what the walker keeps of places in code, after a walk whose memory refused
// reads for their cost: what was found of them then may not be so.
func (s *State) Doubt() { clear(s.places) }

// Held reports whether nothing is left to look at.
func (s *State) Held() bool { return len(s.used) == 0 }

// holds notes that what the walk used was seen to hold.
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

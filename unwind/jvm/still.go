package jvm

import (
	"slices"

	"github.com/sliverprof/sliver/stack"
)

// Spans appends what Still wants to see of what the walk used.
func (r *Runtime) Spans(s *State, out []stack.Span) []stack.Span {
	l := r.l
	for i := range s.used {
		switch u := &s.used[i]; {
		case u.b != nil && u.b.nm != nil:
			out = append(out, stack.Span{Addr: u.b.addr + l.nmCompileID, Len: 4})
		case u.b != nil:
			out = append(out, stack.Span{Addr: u.b.addr + l.blobName, Len: 8})
		default:
			out = append(out, stack.Span{Addr: u.m.addr + l.methodConst, Len: 8},
				stack.Span{Addr: u.m.constMethod, Len: int(l.constMethod)},
				stack.Span{Addr: u.m.key + l.symbolLength, Len: len(u.m.sym)})
		}
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
			if head := mem(i); head == nil || !u.b.same(head) {
				all = false
				r.forget(u.b.addr, 0)
			}
			i++
			continue
		}
		ref, head, sym := mem(i), mem(i+1), mem(i+2)
		if ref == nil || head == nil || sym == nil || !u.m.same(ref, head, sym) {
			all = false
			r.forget(0, u.m.addr)
		}
		i += 3
	}
	return all
}

// forget drops a blob or a method.
func (r *Runtime) forget(b, m uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.blobs, b)
	delete(r.methods, m)
}

// Dedup has each blob and method of the walk once among what it used: a recursion
// uses the same again and again.
func (s *State) Dedup() {
	out := s.used[:0]
	for _, u := range s.used {
		if !slices.Contains(out[max(0, len(out)-16):], u) {
			out = append(out, u)
		}
	}
	s.used = out
}

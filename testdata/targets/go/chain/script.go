package main

import (
	"encoding/binary"
	"hash/fnv"
)

// A node is one call of the script; its children follow it, each size nodes long. The
// trees equal those of include/script.h: change both together.
type node struct {
	gap       uint64 // ns of the caller's own work before this call
	pre, post uint64 // ns of own work before the first and after the last call
	size      int
	depth     int
	fn        int
	work      int
}

const (
	funcs    = 8
	rootFunc = 8
	maxDepth = 12
	apart    = 45000 // µs between two calls of one function by one activation
)

type script struct {
	nodes []node
	state uint64
	unit  uint64
}

func newScript(seconds, seed, unit, thread uint64) *script {
	s := &script{state: max((seed+1000*thread+1)*0x9E3779B97F4A7C15, 1), unit: unit}
	s.node(rootFunc, 0, seconds*1e6*6/unit)
	return s
}

func (s *script) random(n uint32) uint64 {
	s.state ^= s.state >> 12
	s.state ^= s.state << 25
	s.state ^= s.state >> 27
	return uint64(uint32(s.state*0x2545F4914F6CDD1D>>32) % n)
}

func (s *script) time() uint64 {
	if s.random(3) == 0 {
		return 30000 + s.random(90001)
	}
	return 2000 + s.random(6001)
}

func (s *script) scale(us uint64) uint64 { return us * s.unit * 1000 / 6 }

// node appends a call with all its callees and returns its length in unscaled µs. The
// root continues until it is budget long.
func (s *script) node(fn, depth int, budget uint64) uint64 {
	i := len(s.nodes)
	s.nodes = append(s.nodes, node{depth: depth, fn: fn, work: 1})
	var pre, post uint64
	if depth > 0 {
		s.nodes[i].work = int(s.random(3))
		if s.random(4) != 0 {
			pre = s.time()
		}
	}
	total := pre
	var last [funcs]uint64
	var called [funcs]bool
	for {
		if depth == 0 && total >= budget {
			break
		}
		if depth > 0 && (depth >= maxDepth || total+30000 >= budget || s.random(4) == 0) {
			break
		}
		var gap uint64
		if s.random(4) == 0 {
			gap = s.time()
		}
		c := int(s.random(funcs))
		if called[c] && total+gap < last[c]+apart {
			gap = last[c] + apart - total
		}
		total += gap
		var most uint64
		if depth == 0 {
			most = 30000 + s.random(600000)
		} else if total < budget {
			most = budget - total
		}
		child := len(s.nodes)
		total += s.node(c, depth+1, most)
		s.nodes[child].gap = s.scale(gap)
		last[c], called[c] = total, true
	}
	if depth > 0 {
		if s.random(2) != 0 {
			post = s.time()
		}
		if total+post == 0 {
			post = s.time()
		}
	}
	n := &s.nodes[i]
	n.pre, n.post, n.size = s.scale(pre), s.scale(post), len(s.nodes)-i
	return total + post
}

func (s *script) hash() uint64 {
	h := fnv.New64a()
	var b [8]byte
	for _, n := range s.nodes {
		for _, w := range []uint64{uint64(n.fn), uint64(n.work), uint64(n.depth), n.gap, n.pre, n.post} {
			binary.LittleEndian.PutUint64(b[:], w)
			h.Write(b[:])
		}
	}
	return h.Sum64()
}

package main

import (
	"fmt"
	"io"
	"syscall"
)

// A call's times in ns of CLOCK_MONOTONIC: the caller's clock before and after, and the
// function's clock at its start and end.
type call struct{ call, begin, end, ret uint64 }

// rec holds the times of one node: its inner frames ran the body; its outer ones, if they
// differ, called those and did work of their own.
type rec struct{ inner, outer call }

type run struct {
	script      *script
	recs        []rec
	name        string
	tid         int
	interrupted uint64
	table       [funcs]func(r *run, i int)
	hold        func(i int) // hides its callee from the compiler
}

func newRun(o options, thread uint64, name string) *run {
	s := newScript(o.seconds, o.seed, o.unit, thread)
	r := &run{script: s, recs: make([]rec, len(s.nodes)), name: name}
	for i := range r.recs {
		r.recs[i].inner.begin = 1 // touches the pages
	}
	r.table = [funcs]func(*run, int){alpha, beta, gamma, delta, epsilon, zeta, eta, theta}
	return r
}

func now() uint64 { return uint64(nanotime()) }

//go:noinline
func spin(deadline uint64) int {
	loops := 0
	for now() < deadline {
		for range 1000 {
			loops++
		}
	}
	return loops
}

// work spins, or blocks the thread in a system call.
func (r *run) work(kind int, ns uint64) {
	if ns == 0 {
		return
	}
	deadline := now() + ns
	if kind == 0 {
		spin(deadline)
		return
	}
	for t := now(); t < deadline; t = now() {
		left := int64(deadline - t)
		var err error
		if kind == 1 {
			ts := syscall.NsecToTimespec(left)
			err = syscall.Nanosleep(&ts, nil)
		} else {
			tv := syscall.NsecToTimeval(left + 999)
			_, err = syscall.Select(0, nil, nil, nil, &tv)
		}
		if err == syscall.EINTR {
			r.interrupted++
		}
	}
}

// body does the work of node i, whose first part is already shortened to pre.
//
//go:noinline
func (r *run) body(i int, pre uint64) {
	me := &r.recs[i].inner
	me.begin = now()
	n := &r.script.nodes[i]
	r.work(n.work, pre)
	for child := i + 1; child < i+n.size; child += r.script.nodes[child].size {
		r.work(n.work, r.script.nodes[child].gap)
		c := &r.recs[child]
		t := now()
		r.table[r.script.nodes[child].fn](r, child)
		back := now()
		if c.outer.begin == 0 { // the outer frames only called
			c.inner.call, c.inner.ret = t, back
		} else {
			c.outer.call, c.outer.ret = t, back
		}
	}
	r.work(n.work, n.post)
	me.end = now()
}

// grow makes the goroutine's stack large enough for the deepest script: copying it later
// would change the addresses of its frames.
//
//go:noinline
func grow(n int) byte {
	var room [4096]byte
	room[n] = byte(n)
	if n > 0 {
		return room[n] + grow(n-1)
	}
	return room[0]
}

// start runs the script on the calling goroutine.
func (r *run) start() {
	grow(64)
	c := &r.recs[0].inner
	c.call = now()
	root(r, 0)
	c.ret = now()
}

// write writes the report of the run and returns the number of lines.
func (r *run) write(w io.Writer) (lines uint64, err error) {
	var at [maxDepth + 1]int // depth of the innermost frame, by depth in the script
	for i, n := range r.script.nodes {
		depth := 0
		if n.depth > 0 {
			depth = at[n.depth-1] + 1
		}
		for _, f := range shapes[n.fn] {
			c := r.recs[i].inner
			if f.outer {
				c = r.recs[i].outer
			}
			_, err = fmt.Fprintf(w, `{"thread":%q,"tid":%d,"func":%q,"depth":%d,"call":%d,"begin":%d,"end":%d,"return":%d,"work":%q}`+"\n",
				r.name, r.tid, f.name, depth, c.call, c.begin, c.end, c.ret, []string{"spin", "sleep", "poll"}[n.work])
			if err != nil {
				return lines, err
			}
			depth++
			lines++
		}
		at[n.depth] = depth - 1
	}
	return lines, nil
}

//go:build !chaincgo

package main

var zetaShape = inner("main.zeta")

// zeta uses a large frame and a deferred call.
//
//go:noinline
func zeta(r *run, i int) {
	var room [2000]byte
	defer sink(&room)
	r.body(i, r.script.nodes[i].pre)
}

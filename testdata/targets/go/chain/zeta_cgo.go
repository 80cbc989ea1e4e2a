//go:build chaincgo

package main

// #include "zeta.h"
import "C"

import "runtime/cgo"

var zetaShape = append([]frame{{"main.zeta", true}, {"chain_zeta_c", true}}, inner("main.chainCallback")...)

// zeta does its first work in C, which then calls back for the rest.
//
//go:noinline
func zeta(r *run, i int) {
	h := cgo.NewHandle(r)
	n := r.script.nodes[i]
	t := C.chain_zeta_c(C.uintptr_t(h), C.int(i), C.int(n.work), C.uint64_t(n.pre))
	h.Delete()
	c := &r.recs[i]
	c.outer.begin, c.outer.end = uint64(t.begin), uint64(t.end)
	c.inner.call, c.inner.ret = uint64(t.call), uint64(t.ret)
}

//export chainCallback
//go:noinline
func chainCallback(h C.uintptr_t, i C.int) {
	cgo.Handle(h).Value().(*run).body(int(i), 0)
}

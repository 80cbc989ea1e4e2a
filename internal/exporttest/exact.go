package exporttest

import (
	exact "github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// Exact adds a traced call of a function by a thread, made by another function. from and to are in ns
// after Start. The call may be changed until the next one is added.
func (b *Builder) Exact(tid int, name, caller string, from, to int64, how exact.How) *exact.Call {
	if b.traced == nil {
		b.traced = &trace.Traced{At: Start, Began: Start, Engine: "cpu"}
	}
	f, fn := b.fn(name), -1
	for i := range b.traced.Functions {
		if b.traced.Functions[i].Name == name {
			fn = i
		}
	}
	kind := b.frame(name, 0, true).Kind
	if kind.Managed() {
		if fn < 0 {
			fn = len(b.traced.Functions)
			b.traced.Engine = "jfr"
			b.traced.Functions = append(b.traced.Functions, trace.TracedFunction{Name: name, Module: kind.Module(), Kind: kind})
		}
		b.traced.Functions[fn].Calls++
		b.exact = append(b.exact, exact.Call{Fn: fn, TID: stack.TID(tid), Enter: Start + stack.Time(from), Exit: Start + stack.Time(to), How: how})
		return &b.exact[len(b.exact)-1]
	}
	if fn < 0 {
		fn = len(b.traced.Functions)
		b.traced.Functions = append(b.traced.Functions, trace.TracedFunction{Name: name, Module: modules[f.module].mod.Path, File: fileOf(name), Line: 1,
			Addr: f.start, Ranges: [][2]uint64{{f.start, f.start + 0x1000}}})
	}
	b.traced.Functions[fn].Calls++
	b.exact = append(b.exact, exact.Call{Fn: fn, TID: stack.TID(tid), Enter: Start + stack.Time(from), Exit: Start + stack.Time(to),
		CFA: 0x7ffffff00000, Ret: b.frame(caller, 0, false).PC, How: how})
	return &b.exact[len(b.exact)-1]
}

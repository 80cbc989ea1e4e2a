package chrome

import (
	"fmt"

	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// exactArgs appends the arguments of a traced call.
func exactArgs(b []byte, x *trace.Exact) []byte {
	b = append(append(b, `"ended":`...), view.JSON(x.How.String(), 64)...)
	if x.Before {
		b = append(b, `,"began_before":true`...)
	}
	if x.Unsure {
		b = append(b, `,"hits_lost":true`...)
	}
	if x.Orphan {
		b = append(b, `,"caller_not_sampled":true`...)
	}
	return b
}

// traced writes the traced calls that are not calls of their threads as asynchronous events, whose IDs are lanes in which calls nest.
func (o *writer) traced() {
	if o.v.Rec.Traced == nil {
		return
	}
	caller := o.v.Callers()
	lanes := map[[2]int]*view.Lanes{} // by thread and, of threads that were not sampled, their number
	left := 0
	o.v.Apart(func(c *view.Call) bool {
		key := [2]int{c.Thread, 0}
		if c.Thread < 0 {
			key[1] = int(c.TID)
		}
		of := lanes[key]
		if of == nil {
			of = &view.Lanes{}
			lanes[key] = of
		}
		from := max(c.Enter, o.base) // what start makes of it
		lane := of.Place(from, max(c.Exit, from))
		if lane < 0 {
			left++
			return true
		}
		args := append([]byte(`{"ended":`), view.JSON(c.How.String(), 64)...)
		field := func(name, value string) {
			args = append(append(args, `,"`+name+`":`...), view.JSON(value, view.MaxName)...)
		}
		if s := caller(c); s != "" {
			field("caller", s)
		}
		f := &o.v.Rec.Traced.Functions[c.Fn]
		if f.Module != "" {
			field("module", f.Module)
		}
		if f.File != "" {
			field("file", f.File)
			args = fmt.Appendf(args, `,"line":%d`, f.Line)
		}
		if c.Task != 0 {
			field("task", fmt.Sprintf("%#x", c.Task))
		}
		if c.Before {
			args = append(args, `,"began_before":true`...)
		}
		if c.Unsure {
			args = append(args, `,"hits_lost":true`...)
		}
		name := o.v.TracedName(c.Fn)
		event := func(ph byte, t stack.Time, args []byte) {
			o.headOf("traced", ph, t, int(c.TID), name, args)
			fmt.Fprintf(o.w, `,"id":"%straced %d %d"}`, o.scope, c.TID, lane)
		}
		event('b', from, append(args, '}'))
		event('e', max(c.Exit, from), nil)
		return true
	})
	if left > 0 {
		o.head('i', o.base, o.v.PID(), fmt.Sprintf("%s left out: too many overlap", plural.Of(left, "traced call")), nil)
		o.print(`,"s":"p"}`)
	}
}

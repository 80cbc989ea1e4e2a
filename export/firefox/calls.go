package firefox

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/export/view"
)

// calls packs the traced calls of the process as markers of their threads. Those of threads that were
// not sampled go to the first thread, with the number of their own.
func (p *profile) calls() []markers {
	if p.v.Rec.Traced == nil || len(p.v.Threads) == 0 {
		return nil
	}
	out := make([]markers, len(p.v.Threads))
	caller := p.v.Callers()
	p.v.Calls(func(c *view.Call) bool {
		b := append([]byte(`"function":`), view.JSON(p.v.TracedName(c.Fn), view.MaxName)...)
		field := func(name, value string) {
			if value != "" {
				b = append(append(b, `,"`+name+`":`...), view.JSON(value, 512)...)
			}
		}
		field("ended", c.How.String())
		field("caller", caller(c))
		field("module", p.v.Rec.Traced.Functions[c.Fn].Module)
		if c.Task != 0 {
			field("task", fmt.Sprintf("%#x", c.Task))
		}
		switch {
		case c.Before:
			field("note", "began before tracing")
		case c.Unsure:
			field("note", "hits were lost")
		}
		if c.Thread < 0 {
			field("thread", p.v.ThreadName(c.TID))
		}
		begin := int64(max(c.Enter-p.base, 0))
		out[max(c.Thread, 0)].add(markCall, p.str(string(b)), begin, max(int64(c.Exit-p.base), begin))
		return true
	})
	return out
}

// sorted appends the markers to others, by their begin: the viewer puts those that overlap into rows in
// that order.
func (m *markers) sorted(to *markers) {
	type mark struct{ kind, text, begin, dur uint64 }
	all := make([]mark, 0, m.n)
	m.each(func(kind, text, begin, dur uint64) { all = append(all, mark{kind, text, begin, dur}) })
	slices.SortStableFunc(all, func(a, b mark) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.dur, a.dur)) })
	for _, x := range all {
		to.add(int(x.kind), int(x.text), int64(x.begin), int64(x.begin+x.dur-1))
	}
	*m = markers{}
}

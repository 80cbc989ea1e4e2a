package leak

import (
	"io"

	"github.com/google/pprof/profile"
)

// WriteProfile writes the tree as a profile for pprof and for what reads its format. A
// stack is a way of classes down the dominator tree, so that the width of a frame in a
// flame graph is what it keeps; values are objects and their own bytes. It is compressed by
// gzip, as pprof's files are, unless the writer does that.
func (n *Node) WriteProfile(w io.Writer, compressed bool) error {
	p := &profile.Profile{
		SampleType:        []*profile.ValueType{{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"}},
		DefaultSampleType: "inuse_space",
		PeriodType:        &profile.ValueType{Type: "space", Unit: "bytes"},
		Period:            1,
	}
	locations := map[string]*profile.Location{}
	location := func(name string) *profile.Location {
		if l := locations[name]; l != nil {
			return l
		}
		id := uint64(len(locations) + 1)
		f := &profile.Function{ID: id, Name: name, SystemName: name}
		l := &profile.Location{ID: id, Line: []profile.Line{{Function: f}}}
		p.Function = append(p.Function, f)
		p.Location = append(p.Location, l)
		locations[name] = l
		return l
	}
	var walk func(n *Node, stack []*profile.Location)
	walk = func(n *Node, stack []*profile.Location) {
		if n.Count > 0 && len(stack) > 0 {
			s := &profile.Sample{Value: []int64{n.Count, n.Self}}
			for i := len(stack) - 1; i >= 0; i-- {
				s.Location = append(s.Location, stack[i])
			}
			p.Sample = append(p.Sample, s)
		}
		for _, k := range n.Kids {
			walk(k, append(stack[:len(stack):len(stack)], location(k.Name)))
		}
	}
	walk(n, nil)
	if compressed {
		return p.WriteUncompressed(w)
	}
	return p.Write(w)
}

package trace

import (
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// sameKey identifies a function of the source code in a module.
type sameKey struct {
	name, linkage, file string
	line, module        int
}

// Same returns the function that represents function i. A compiler may make several functions of one in the source
// code: clones (f.constprop.0, f.part.0), and copies inlined into others. They call each other, so separate times of them do not
// add up. Functions of which no line is known represent themselves.
func (n *Names) Same(i int) int {
	if i < len(n.same) {
		return n.same[i]
	}
	return i
}

// findSame sets Names.same. Of several functions, the first one that has an address represents all.
func (n *Names) findSame() {
	first := map[sameKey]int{}
	for _, placed := range []bool{true, false} {
		for i := range n.Funcs {
			f := &n.Funcs[i]
			if f.File == "" || f.StartLine <= 0 || f.Start != 0 != placed {
				continue
			}
			k := f.same()
			j, ok := first[k]
			if !ok {
				first[k], j = i, i
			}
			if j == i {
				continue
			}
			if n.same == nil {
				n.same = make([]int, len(n.Funcs))
				for k := range n.same {
					n.same[k] = k
				}
			}
			n.same[i] = j
		}
	}
}

// same returns the function's key without what a compiler adds to names of clones: a dot and a word.
func (f *Func) same() sameKey {
	k := sameKey{f.Name, f.Linkage, f.File, f.StartLine, f.Module}
	if strings.HasPrefix(k.linkage, "_Z") {
		k.linkage, _, _ = strings.Cut(k.linkage, ".")
	}
	return k
}

// frames returns a location's frames with the functions that represent theirs. Functions of interpreters have one copy, and
// those of JavaScript may share a line and have no name.
func (n *Names) frames(in []LocFrame, k stack.Kind) []LocFrame {
	if k.Managed() {
		return in
	}
	for i := range in {
		if n.Same(in[i].Func) == in[i].Func {
			continue
		}
		out := slices.Clone(in)
		for j := range out {
			out[j].Func = n.Same(out[j].Func)
		}
		return out
	}
	return in
}

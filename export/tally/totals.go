package tally

// Totals sums values by function: self for stacks with the function on top, total for all stacks that contain
// it, where a recursive function counts once. own has the values of each node without its callees; Totals
// overwrites it. functions appends the functions of a label to dst, innermost first. The time is linear in
// the size of the tree, whatever its depth.
func Totals[V any](t *Tree, own []V, add func(to, from *V), functions func(label int32, dst []int) []int) (self, total map[int]*V) {
	self, total = map[int]*V{}, map[int]*V{}
	sum := func(m map[int]*V, fn int, v *V) {
		x := m[fn]
		if x == nil {
			x = new(V)
			m[fn] = x
		}
		add(x, v)
	}
	n := int32(len(own))
	first, next := make([]int32, n), make([]int32, n) // children of a node; 0: none
	var fns []int
	for i := int32(1); i < n; i++ {
		_, label := t.Node(i)
		if fns = functions(label, fns[:0]); len(fns) > 0 {
			sum(self, fns[0], &own[i])
		}
	}
	for i := n - 1; i > 0; i-- { // callers come before their callees
		parent, _ := t.Node(i)
		add(&own[parent], &own[i])
		next[i], first[parent] = first[parent], i
	}
	// Depth first, with the number of times that each function is on the current path.
	on := map[int]int{}
	for i := first0(first); i != 0; {
		_, label := t.Node(i)
		fns = functions(label, fns[:0])
		for k := len(fns) - 1; k >= 0; k-- { // outermost first
			if on[fns[k]]++; on[fns[k]] == 1 {
				sum(total, fns[k], &own[i])
			}
		}
		if first[i] != 0 {
			i = first[i]
			continue
		}
		for i != 0 {
			parent, label := t.Node(i)
			fns = functions(label, fns[:0])
			for _, fn := range fns {
				on[fn]--
			}
			if next[i] != 0 {
				i = next[i]
				break
			}
			i = parent
		}
	}
	return self, total
}

// first0 returns the first node below the empty stack.
func first0(first []int32) int32 {
	if len(first) == 0 {
		return 0
	}
	return first[0]
}

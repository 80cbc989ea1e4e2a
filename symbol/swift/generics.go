package swift

import "strconv"

// signature parses the number of generic parameters and pops their requirements: kids
// are a list for each depth, then requirements.
func (d *demangler) signature(counted bool) *node {
	sig := d.make(signature, "")
	var counts []int
	if counted {
		for !d.skip('l') {
			n := 0
			if !d.skip('z') {
				n = d.index() + 1
			}
			if counts = append(counts, n); d.err != nil || n > 512 || len(counts) > 64 {
				return d.fail(errNot)
			}
		}
	} else {
		counts = []int{1}
	}
	if d.err != nil {
		return nil
	}
	for depth, n := range counts {
		l := d.make(list, "")
		for i := range n {
			l.kids = append(l.kids, d.paramAt(depth, i))
		}
		sig.kids = append(sig.kids, l)
	}
	from := len(sig.kids)
	for r := d.popIf(requirement); r != nil; r = d.popIf(requirement) {
		sig.kids = append(sig.kids, r)
	}
	reverse(sig.kids[from:])
	return sig
}

// requirement parses a requirement of a generic parameter or of its associated type.
func (d *demangler) requirement() *node {
	c := d.next()
	if c == 'v' {
		return d.make(requirement, "each", d.generic())
	}
	if c == 'V' {
		t := d.mustType()
		return d.make(requirement, "let", d.generic(), t)
	}
	inverse := 0
	if c == 'i' || c == 'I' || c == 'j' || c == 'J' {
		inverse = d.index()
	}
	var of *node
	switch c {
	case 'c', 't', 'm', 'p', 'j':
		of = d.remember(d.assoc(d.generic()))
	case 'C', 'T', 'M', 'P', 'J':
		of = d.remember(d.assocs(d.generic()))
	case 'B', 'S', 'L', 'Q', 'I':
		of = d.mustType()
	case 'b', 's', 'l', 'h', 'i':
		of = d.generic()
	default:
		d.pos--
		of = d.generic()
		return d.make(requirement, ": ", of, d.popProtocol())
	}
	switch c {
	case 'p', 'P', 'Q':
		return d.make(requirement, ": ", of, d.popProtocol())
	case 'c', 'C', 'b', 'B':
		return d.make(requirement, ": ", of, d.mustType())
	case 't', 'T', 's', 'S':
		return d.make(requirement, " == ", of, d.mustType())
	case 'h':
		return d.make(requirement, ".shape == ", of, d.mustType())
	case 'i', 'I', 'j', 'J':
		name := map[int]string{0: "Copyable", 1: "Escapable"}[inverse]
		if name == "" {
			return d.fail(errNot)
		}
		return d.make(requirement, ": ~", of, d.make(protocol, "", d.make(module, "Swift"), d.make(identifier, name)))
	}
	return d.layout(of)
}

var layouts = map[byte]string{'U': "_UnknownLayout", 'R': "_RefCountedObject", 'N': "_NativeRefCountedObject", 'C': "AnyObject",
	'D': "_NativeClass", 'T': "_Trivial", 'B': "_BridgeObject", 'S': "_TrivialStride", 'E': "_Trivial", 'e': "_Trivial",
	'M': "_TrivialAtMost", 'm': "_TrivialAtMost"}

func (d *demangler) layout(of *node) *node {
	c := d.next()
	name := layouts[c]
	if name == "" {
		return d.fail(errNot)
	}
	switch c {
	case 'E', 'M':
		name += "(" + strconv.Itoa(d.index()) + ", "
		name += strconv.Itoa(d.index()) + ")"
	case 'e', 'm', 'S':
		name += "(" + strconv.Itoa(d.index()) + ")"
	}
	return d.make(requirement, ": ", of, d.make(builtin, name))
}

// assocName pops the name of an associated type, and its protocol if present.
func (d *demangler) assocName() (name, of *node) {
	if t := d.popType(); t != nil {
		if of = t; t.kind != protocol {
			d.fail(errNot)
		}
	}
	if name = d.popIf(identifier); name == nil {
		d.fail(errNot)
	}
	return name, of
}

// assoc returns a type associated with base; nil: with the type on the stack.
func (d *demangler) assoc(base *node) *node {
	name, of := d.assocName()
	if base == nil {
		base = d.mustType()
	}
	if d.err != nil {
		return nil
	}
	return d.some(member, "", base, name, of)
}

func (d *demangler) assocs(base *node) *node {
	var names [][2]*node
	for isFirst := false; !isFirst && d.err == nil; {
		isFirst = d.popIf(first) != nil
		name, of := d.assocName()
		names = append(names, [2]*node{name, of})
	}
	if base == nil {
		base = d.mustType()
	}
	if d.err != nil {
		return nil
	}
	for i := len(names) - 1; i >= 0; i-- {
		base = d.some(member, "", base, names[i][0], names[i][1])
	}
	return base
}

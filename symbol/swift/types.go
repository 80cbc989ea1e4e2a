package swift

import "strconv"

// operator parses one operator and makes a node of its operands.
func (d *demangler) operator() *node {
	if isDigit(d.peek()) {
		return d.identifier()
	}
	switch c := d.next(); c {
	case 'A':
		return d.substitutions()
	case 'B':
		return d.builtin()
	case 'C', 'V', 'O', 'P', 'a':
		name := d.popDeclName()
		return d.remember(d.make(nominals[c], "", d.popContext(), name))
	case 'D': // a type for debuggers
		return d.make(ofType, "", d.mustType())
	case 'E':
		return d.extension()
	case 'F':
		return d.function()
	case 'G':
		return d.boundGeneric()
	case 'H':
		return d.conformanceOp()
	case 'I':
		return d.implType()
	case 'K':
		return d.make(effect, "throws")
	case 'L':
		return d.local()
	case 'M':
		return d.metadata()
	case 'N':
		return d.make(ofType, "type metadata for ", d.mustType())
	case 'Q':
		return d.archetype()
	case 'R':
		return d.requirement()
	case 'S':
		return d.standard()
	case 'T':
		return d.thunk()
	case 'W':
		return d.witness()
	case 'X':
		return d.specialType()
	case 'Y':
		return d.annotation()
	case 'Z':
		n := d.pop()
		if n == nil || !n.kind.isContext() && n.kind != accessor {
			return d.fail(errNot)
		}
		return d.make(static, "", n)
	case 'c':
		return d.functionType("")
	case 'd':
		return d.make(variadic, "")
	case 'f':
		return d.functionEntity()
	case 'g':
		d.index()
		return d.make(retroactive, "", d.popIf(conformance, accessPath))
	case 'h':
		return d.make(wrapped, "__shared ", d.mustType())
	case 'i':
		return d.subscript()
	case 'l':
		return d.signature(false)
	case 'm':
		return d.make(metatype, "", d.mustType())
	case 'n':
		return d.make(wrapped, "__owned ", d.mustType())
	case 'o':
		return d.operatorName()
	case 'p':
		return d.make(existential, "", d.protocols()...)
	case 'q':
		return d.generic()
	case 'r':
		return d.signature(true)
	case 's':
		return d.make(module, "Swift")
	case 't':
		return d.tuple()
	case 'u':
		sig, t := d.popIf(signature), (*node)(nil)
		if t = d.popType(); sig == nil || t == nil {
			return d.fail(errNot)
		}
		return d.make(dependent, "", sig, t)
	case 'v':
		t := d.mustType()
		l := d.labels(t)
		name := d.popDeclName()
		ctx := d.popContext()
		if name == nil {
			return d.fail(errNot)
		}
		return d.accessor(d.some(variable, "", ctx, name, l, t))
	case 'w':
		return d.valueWitness()
	case 'x':
		return d.paramAt(0, 0)
	case 'y':
		return d.make(emptyList, "")
	case 'z':
		return d.make(wrapped, "inout ", d.mustType())
	case '_':
		return d.make(first, "")
	case '$':
		minus := ""
		if d.skip('n') {
			minus = "-"
		}
		return d.make(integer, minus+strconv.Itoa(d.index()))
	case '.': // suffixes of linkers and LLVM
		s := d.s[d.pos-1:]
		d.pos = len(d.s)
		return d.make(attribute, s)
	}
	return d.fail(errNot)
}

var builtins = map[byte]string{'A': "ImplicitActor", 'b': "BridgeObject", 'B': "UnsafeValueBuffer", 'c': "RawUnsafeContinuation", 'D': "DefaultActorStorage",
	'd': "NonDefaultDistributedActorStorage", 'e': "Executor", 'I': "IntLiteral", 'j': "Job", 'P': "PackIndex", 'O': "UnknownObject",
	'o': "NativeObject", 'p': "RawPointer", 't': "SILToken", 'w': "Word"}

func (d *demangler) builtin() *node {
	switch c := d.next(); c {
	case 'f', 'i':
		n := d.index() - 1
		if n <= 0 || n > 4096 {
			return d.fail(errNot)
		}
		return d.make(builtin, map[byte]string{'f': "FPIEEE", 'i': "Int"}[c]+strconv.Itoa(n))
	case 'v':
		n := d.index() - 1
		t := d.mustType()
		if n <= 0 || n > 4096 || t == nil || t.kind != builtin {
			return d.fail(errNot)
		}
		return d.make(builtin, "Vec"+strconv.Itoa(n)+"x"+t.text)
	default:
		if s := builtins[c]; s != "" {
			return d.make(builtin, s)
		}
	}
	return d.fail(errNot)
}

// paramAt returns a generic parameter: n is its index, and text its name.
func (d *demangler) paramAt(depth, index int) *node {
	name := ""
	for i := index; ; i = i/26 - 1 {
		name += string(rune('A' + i%26))
		if i < 26 {
			break
		}
	}
	if depth > 0 {
		name += strconv.Itoa(depth)
	}
	return d.make(param, name)
}

func (d *demangler) generic() *node {
	switch {
	case d.skip('d'):
		depth := d.index() + 1
		return d.paramAt(depth, d.index())
	case d.skip('z'):
		return d.paramAt(0, 0)
	case d.skip('s'):
		return d.make(param, "Self")
	}
	return d.paramAt(0, d.index()+1)
}

// typeList pops types up to the marker of the first; an empty list has its own marker.
func (d *demangler) typeList() []*node {
	if d.popIf(emptyList) != nil {
		return nil
	}
	var out []*node
	for isFirst := false; !isFirst && d.err == nil; {
		isFirst = d.popIf(first) != nil
		out = append(out, d.mustType())
	}
	reverse(out)
	return out
}

func (d *demangler) protocols() []*node {
	if d.popIf(emptyList) != nil {
		return nil
	}
	var out []*node
	for isFirst := false; !isFirst && d.err == nil; {
		isFirst = d.popIf(first) != nil
		out = append(out, d.popProtocol())
	}
	reverse(out)
	return out
}

func (d *demangler) tuple() *node {
	t := d.make(tuple, "")
	if d.popIf(emptyList) != nil {
		return t
	}
	for isFirst := false; !isFirst && d.err == nil; {
		isFirst = d.popIf(first) != nil
		e := d.make(element, "")
		if e == nil {
			return nil
		}
		if d.popIf(variadic) != nil {
			e.n = 1
		}
		name := d.popIf(identifier)
		if e.kids = []*node{d.mustType()}; name != nil {
			e.text = name.text
		}
		t.kids = append(t.kids, e)
	}
	reverse(t.kids)
	return t
}

// functionType pops effects, parameters and the result.
func (d *demangler) functionType(attributes string) *node {
	effects := d.make(list, "")
	for n := d.popIf(effect); n != nil && len(effects.kids) < 16; n = d.popIf(effect) {
		effects.kids = append(effects.kids, n)
	}
	params := d.functionPart()
	result := d.functionPart()
	if d.err != nil {
		return nil
	}
	return d.make(functionType, attributes, params, result, effects)
}

func (d *demangler) functionPart() *node {
	if d.popIf(emptyList) != nil {
		return d.make(tuple, "")
	}
	return d.mustType()
}

// labels pops the labels of a function's parameters; nil if it has none.
func (d *demangler) labels(t *node) *node {
	if d.popIf(emptyList) != nil {
		return d.make(labels, "")
	}
	for t != nil && t.kind == dependent {
		t = t.kid(1)
	}
	if t == nil || t.kind != functionType {
		return nil
	}
	n := 1
	if p := t.kid(0); p.kind == tuple {
		n = len(p.kids)
	}
	if n == 0 {
		return nil
	}
	out, some := d.make(labels, ""), false
	for range n {
		l := d.popIf(identifier, first)
		if l == nil || out == nil {
			return d.fail(errNot)
		}
		some = some || l.kind == identifier
		out.kids = append(out.kids, l)
	}
	if !some {
		out.kids = nil
	}
	reverse(out.kids)
	return out
}

// boundGeneric pops the arguments of a type and of its enclosing types.
func (d *demangler) boundGeneric() *node {
	lists := d.genericArgs()
	n := d.bind(d.popNominal(), lists)
	return d.remember(n)
}

// genericArgs pops lists of arguments, innermost first.
func (d *demangler) genericArgs() [][]*node {
	for d.popIf(retroactive) != nil {
	}
	var lists [][]*node
	for d.err == nil {
		var ts []*node
		for t := d.popType(); t != nil; t = d.popType() {
			ts = append(ts, t)
		}
		reverse(ts)
		lists = append(lists, ts)
		if d.popIf(emptyList) != nil {
			return lists
		}
		if d.popIf(first) == nil {
			d.fail(errNot)
		}
	}
	return nil
}

func (d *demangler) bind(n *node, lists [][]*node) *node {
	if n == nil || len(lists) == 0 || d.err != nil {
		return n
	}
	args, lists := lists[0], lists[1:]
	if len(lists) > 0 {
		switch c := n.kid(0); {
		case c != nil && c.kind == extension:
			n = d.make(n.kind, n.text, d.some(extension, "", c.kid(0), d.bind(c.kid(1), lists), c.kid(2)), n.kid(1))
		case c != nil && (c.kind.isNominal() || c.kind == function):
			n = d.make(n.kind, n.text, d.bind(c, lists), n.kid(1))
		}
	}
	if n == nil || len(args) == 0 {
		return n
	}
	return d.make(bound, "", n, d.make(list, "", args...))
}

// archetype reads Q…: associated types, opaque types, packs.
func (d *demangler) archetype() *node {
	switch d.next() {
	case 'a':
		name := d.popIf(identifier)
		return d.remember(d.make(member, "", d.mustType(), name))
	case 'x':
		return d.remember(d.assoc(nil))
	case 'X':
		return d.remember(d.assocs(nil))
	case 'y':
		return d.remember(d.assoc(d.generic()))
	case 'Y':
		return d.remember(d.assocs(d.generic()))
	case 'z':
		return d.remember(d.assoc(d.paramAt(0, 0)))
	case 'Z':
		return d.remember(d.assocs(d.paramAt(0, 0)))
	case 'O':
		return d.make(opaqueOf, "", d.popContext())
	case 'o':
		i := d.index()
		lists := d.genericArgs()
		of := d.pop()
		n := d.make(opaque, "", of)
		if n == nil {
			return nil
		}
		n.n = i
		for _, l := range lists {
			n.kids = append(n.kids, d.make(list, "", l...))
		}
		return d.remember(n)
	case 'r', 'u':
		return d.make(opaqueHere, "")
	case 'R', 'U':
		n := d.make(opaqueHere, "")
		if i := d.index(); n != nil {
			n.n = i + 1
		}
		return n
	case 'p':
		count := d.mustType()
		return d.make(expansion, "", d.mustType(), count)
	case 'e':
		i := d.index()
		n := d.make(packElement, "", d.mustType())
		if n != nil {
			n.n = i
		}
		return n
	case 'P':
		return d.make(pack, "Pack", d.typeList()...)
	case 'S':
		switch d.next() {
		case 'd':
			return d.make(pack, "@direct Pack", d.typeList()...)
		case 'i':
			return d.make(pack, "@indirect Pack", d.typeList()...)
		}
	}
	return d.fail(errNot)
}

// specialType reads X….
func (d *demangler) specialType() *node {
	switch c := d.next(); c {
	case 'E':
		return d.functionType("")
	case 'A':
		return d.functionType("@escaping @autoclosure ")
	case 'f':
		return d.functionType("@convention(thin) ")
	case 'K':
		return d.functionType("@autoclosure ")
	case 'U':
		return d.functionType("")
	case 'O':
		return d.functionType("@called(atMostOnce) ")
	case 'B':
		return d.functionType("@convention(block) ")
	case 'L':
		return d.functionType("@escaping @convention(block) ")
	case 'C':
		return d.functionType("@convention(c) ")
	case 'o':
		return d.make(wrapped, "unowned ", d.mustType())
	case 'u':
		return d.make(wrapped, "unowned(unsafe) ", d.mustType())
	case 'w':
		return d.make(wrapped, "weak ", d.mustType())
	case 'b':
		return d.make(wrapped, "@box ", d.mustType())
	case 'D':
		return d.make(dynamicSelf, "", d.mustType())
	case 'M', 'm':
		t := d.mustType()
		repr := map[byte]string{'t': "@thin ", 'T': "@thick ", 'o': "@objc_metatype "}[d.next()]
		if repr == "" {
			return d.fail(errNot)
		}
		if c == 'm' {
			return d.make(existMetatype, repr, t)
		}
		return d.make(metatype, repr, t)
	case 'p':
		return d.make(existMetatype, "", d.mustType())
	case 'c':
		of := d.mustType()
		return d.make(superclassed, "", append([]*node{of}, d.protocols()...)...)
	case 'l':
		return d.make(existential, "AnyObject", d.protocols()...)
	case 'P':
		var rs []*node
		for isFirst := false; !isFirst && d.err == nil; {
			isFirst = d.popIf(first) != nil
			r := d.popIf(requirement)
			if r == nil {
				return d.fail(errNot)
			}
			rs = append(rs, r)
		}
		reverse(rs)
		return d.make(constrained, "", append([]*node{d.mustType()}, rs...)...)
	case 'x':
		return d.make(boxType, "", d.typeList()...)
	case 'X':
		sig := d.popIf(signature)
		args := d.typeList()
		fields := d.typeList()
		return d.make(boxType, "", append(fields, d.make(list, "", args...), sig)...)
	case 'e':
		return d.make(builtin, "<ERROR TYPE>")
	case 'Y':
		name := d.popDeclName()
		return d.remember(d.make(alias, "", d.popContext(), name))
	case 'S':
		switch d.next() {
		case 'q':
			return d.make(bound, "", d.known("OOptional"), d.make(list, "", d.mustType()))
		case 'a':
			return d.make(bound, "", d.known("VArray"), d.make(list, "", d.mustType()))
		case 'D':
			v := d.mustType()
			return d.make(bound, "", d.known("VDictionary"), d.make(list, "", d.mustType(), v))
		}
	}
	return d.fail(errNot)
}

// annotation parses Y…: annotations of a function's type.
func (d *demangler) annotation() *node {
	switch d.next() {
	case 'a':
		return d.make(effect, "async")
	case 'b':
		return d.make(effect, "@Sendable")
	case 'c':
		return d.make(effect, "actor", d.mustType())
	case 'A':
		return d.make(effect, "@isolated(any)")
	case 'C':
		return d.make(effect, "nonisolated(nonsending)")
	case 'K':
		return d.make(effect, "throws", d.mustType())
	case 'T':
		return d.make(effect, "sending")
	case 'i':
		return d.make(wrapped, "isolated ", d.mustType())
	case 'u':
		return d.make(wrapped, "sending ", d.mustType())
	case 'k':
		return d.make(wrapped, "@noDerivative ", d.mustType())
	case 't':
		return d.make(wrapped, "_const ", d.mustType())
	}
	return d.fail(errNot)
}

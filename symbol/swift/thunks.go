package swift

import "strconv"

// attributes describe, for one letter after T, the function before it: in full, and in
// short.
var attributes = map[byte][2]string{
	'A': {"partial apply forwarder for ", "partial apply for "}, 'a': {"partial apply ObjC forwarder for ", "partial apply for "},
	'm': {"merged ", ""}, 'o': {"@objc ", "@objc "}, 'O': {"@nonobjc ", "@nonobjc "}, 'D': {"dynamic ", "dynamic "}, 'd': {"super ", "super "},
	'E': {"distributed thunk ", ""}, 'F': {"distributed accessor for ", ""}, 'I': {"dynamically replaceable thunk for ", ""},
	'X': {"dynamically replaceable variable for ", ""}, 'x': {"dynamically replaceable key for ", ""},
	'u': {"async function pointer to ", "async function pointer to "}, 'V': {"override ", "override "},
}

// thunk parses T…: thunks, and specialised functions.
func (d *demangler) thunk() *node {
	c := d.next()
	if c == 'V' && len(d.stack) > 1 {
		base := d.pop()
		return d.make(thunkOf, "vtable thunk for ", base, d.pop())
	}
	if a, ok := attributes[c]; ok && c != 'V' {
		n := d.make(attribute, a[0])
		if n != nil && a[0] != a[1] {
			n.kids = []*node{d.make(identifier, a[1])}
		}
		return n
	}
	switch c {
	case 'c':
		return d.make(thunkOf, "curry thunk of ", d.entity())
	case 'j':
		return d.make(thunkOf, "dispatch thunk of ", d.entity())
	case 'q':
		return d.make(thunkOf, "method descriptor for ", d.entity())
	case 'Q', 'Y':
		text := map[byte]string{'Q': ") await resume partial function for ", 'Y': ") suspend resume partial function for "}[c]
		return d.make(attribute, "("+strconv.Itoa(d.index())+text, d.make(identifier, ""))
	case 'R', 'r':
		sig := d.popIf(signature)
		from := d.mustType()
		return d.some(thunkOf, map[byte]string{'R': "reabstraction thunk helper ", 'r': "reabstraction thunk "}[c], sig, d.mustType(), from)
	case 'y':
		sig := d.popIf(signature)
		self := d.mustType()
		from := d.mustType()
		return d.some(thunkOf, "reabstraction thunk ", sig, d.mustType(), from, self)
	case 'U':
		actor := d.mustType()
		return d.make(thunkOf, "with global actor constraint ", d.entity(), actor)
	case 'W':
		e := d.entity()
		return d.make(witness, "protocol witness for ", d.popConformance(), e)
	case 'S':
		return d.make(thunkOf, "protocol self-conformance witness for ", d.entity())
	case 'z', 'Z':
		if isDigit(d.peek()) || d.peek() == '_' {
			d.index()
		}
		sig := d.popIf(signature)
		of := d.mustType()
		block := d.mustType()
		return d.some(thunkOf, map[byte]string{'z': "@objc completion handler block implementation for ",
			'Z': "predefined @objc completion handler block implementation for "}[c], sig, block, of)
	case 'K', 'k':
		text := map[byte]string{'K': "key path getter for ", 'k': "key path setter for "}[c]
		if d.s[d.pos:] != "" && c == 'k' && d.peek() == 'm' {
			d.pos++
			switch {
			case d.skip('u'):
				text = "key path unapplied method "
			case d.skip('a'):
				text = "key path applied method "
			default:
				return d.fail(errNot)
			}
		}
		var ts []*node
		for t := d.popType(); t != nil; t = d.popType() {
			ts = append(ts, t)
		}
		reverse(ts)
		sig := d.popIf(signature)
		e := d.pop()
		if e == nil {
			return d.fail(errNot)
		}
		out := d.some(keyPath, text, e, sig)
		if out != nil {
			out.kids = append(out.kids, ts...)
		}
		return out
	case 'H', 'h':
		sig := d.popIf(signature)
		var ts []*node
		for t := d.popType(); t != nil; t = d.popType() {
			ts = append(ts, t)
		}
		reverse(ts)
		return d.some(ofTypes, map[byte]string{'H': "key path index equality operator for ", 'h': "key path index hash operator for "}[c],
			append(ts, sig)...)
	case 'L':
		return d.make(ofType, "protocol requirements base descriptor for ", d.popProtocol())
	case 'l', 'M':
		name, of := d.assocName()
		return d.some(ofTypes, map[byte]string{'l': "associated type descriptor for ", 'M': "default associated type metadata accessor for "}[c], of, name)
	case 'n', 'N':
		p := d.popProtocol()
		var of *node
		if t := d.top(); t != nil && t.kind.isType() {
			of = d.pop()
		} else {
			of = d.assocs(d.make(param, ""))
		}
		text := "associated conformance descriptor for "
		if c == 'N' {
			text = "default associated conformance accessor for "
		}
		return d.make(thunkOf, text, d.mustType(), of, p)
	case 'b':
		p := d.popProtocol()
		return d.make(thunkOf, "base conformance descriptor for ", d.mustType(), p)
	case 'w':
		switch d.next() {
		case 'b':
			return d.make(attribute, "back deployment thunk for ", d.make(identifier, ""))
		case 'B':
			return d.make(attribute, "back deployment fallback for ")
		case 'c':
			return d.make(attribute, "coro function pointer to ")
		case 'd':
			return d.make(attribute, "default override of ")
		case 'S':
			return d.make(attribute, "#_hasSymbol query for ")
		}
	case 'v':
		n := d.index()
		if d.skip('r') {
			return d.make(attribute, "outlined read-only object #"+strconv.Itoa(n)+" of ")
		}
		return d.make(attribute, "outlined variable #"+strconv.Itoa(n)+" of ")
	case 'e':
		from := d.pos
		for d.peek() != '_' {
			if c := d.next(); c < 'a' || c > 'z' {
				return d.fail(errNot)
			}
		}
		d.pos++
		return d.make(attribute, "outlined bridged method ("+d.s[from:d.pos-1]+") of ")
	case 'g', 'B', 'G', 's', 'i', 'p', 'P', 't', 'f':
		return d.specialisation(c)
	}
	return d.fail(errNot)
}

// entity pops the target of a thunk.
func (d *demangler) entity() *node {
	n := d.pop()
	if n == nil || n.kind.isPart() || n.kind.isAttribute() {
		return d.fail(errNot)
	}
	return n
}

// specialisation parses how a function was specialised for certain types or arguments.
func (d *demangler) specialisation(c byte) *node {
	for c == 't' { // a dropped argument
		d.natural()
		c = d.next()
	}
	text := map[byte]string{'g': "generic specialization", 'B': "generic specialization", 'G': "generic not re-abstracted specialization",
		's': "generic pre-specialization", 'i': "inlined generic function", 'p': "generic partial specialization",
		'P': "generic not-reabstracted partial specialization", 'f': "function signature specialization"}[c]
	if text == "" {
		return d.fail(errNot)
	}
	n := d.make(specialised, text)
	d.skip('m')
	if d.skip('q') && n != nil {
		n.n = 1
	}
	if !d.skip('a') { // no longer async
		d.skip('r')
	}
	if pass := d.next(); !isDigit(pass) || n == nil {
		return d.fail(errNot)
	}
	switch c {
	case 'f':
		return d.arguments(n)
	case 'p', 'P':
		n.kids = append(n.kids, d.mustType())
	default:
		n.kids = append(n.kids, d.typeList()...)
	}
	return n
}

// arguments parses how each argument is specialised, up to that of the result.
func (d *demangler) arguments(n *node) *node {
	n.kind = respecified
	var wants []string // kinds to pop for each parameter
	for last := false; !last; {
		last = d.skip('_')
		if last && d.skip('n') {
			break
		}
		p, want := d.make(impl, ""), ""
		if p == nil || len(n.kids) > 1024 {
			return d.fail(errNot)
		}
		add := func(s string) {
			if p.text != "" && s != "" {
				p.text += " and "
			}
			p.text += s
		}
		switch c := d.next(); c {
		case 'n':
		case 'c', 'E':
			add("[Closure Propagated : ")
			want = "c"
		case 'C':
			i, ok := d.natural()
			if !ok {
				return d.fail(errNot)
			}
			add("[Same As Argument " + strconv.Itoa(i) + "]")
		case 'p':
			for more := true; more; {
				switch d.peek() {
				case 'f':
					add("[Constant Propagated Function : ")
					want += "f"
				case 'g':
					add("[Constant Propagated Global : ")
					want += "f"
				case 'S':
					add("[Constant Propagated Struct : ")
					want += "S"
				case 'k':
					add("[Constant Propagated KeyPath : ")
					want += "k"
				case 's':
					d.pos++
					if e := d.peek(); e != 'b' && e != 'w' && e != 'c' {
						return d.fail(errNot)
					}
					add("[Constant Propagated String : ")
					want += "s"
				case 'i', 'd':
					from := d.pos + 1
					for d.pos++; isDigit(d.peek()); d.pos++ {
					}
					what := map[byte]string{'i': "Integer", 'd': "Float"}[d.s[from-1]]
					add("[Constant Propagated " + what + " : " + d.s[from:d.pos] + "]")
					continue
				default:
					more = false
					continue
				}
				d.pos++
			}
		case 'e', 'd', 'g', 'x':
			add(map[byte]string{'e': "Existential To Protocol Constrained Generic", 'd': "Dead", 'g': "Owned To Guaranteed", 'x': "Exploded"}[c])
			if c == 'e' && d.skip('D') {
				add("Dead")
			}
			if c != 'g' && c != 'x' && d.skip('G') {
				add("Owned To Guaranteed")
			}
			if c == 'g' || c == 'e' || c == 'd' {
				if d.skip('O') {
					add("Guaranteed To Owned")
				}
				if d.skip('X') {
					add("Exploded")
				}
			}
		case 'i':
			add("Value Promoted from Box")
		case 's':
			add("Stack Promoted from Box")
		case 'r':
			add("InOut Converted to Out")
		default:
			return d.fail(errNot)
		}
		if last {
			p.n = 1
		}
		n.kids = append(n.kids, p)
		wants = append(wants, want)
	}
	for i := len(n.kids) - 1; i >= 0; i-- {
		for j := len(wants[i]) - 1; j >= 0; j-- {
			var kids []*node
			switch wants[i][j] {
			case 'c':
				for t := d.popType(); t != nil; t = d.popType() {
					kids = append(kids, t)
				}
				kids = append(kids, d.popIf(identifier))
			case 'k':
				a := d.mustType()
				kids = []*node{a, d.mustType(), d.popIf(identifier)}
			case 'S':
				kids = []*node{d.mustType()}
			default:
				kids = []*node{d.popIf(identifier)}
			}
			reverse(kids)
			for _, k := range kids {
				if k == nil {
					return d.fail(errNot)
				}
			}
			n.kids[i].kids = append(kids, n.kids[i].kids...)
		}
	}
	return n
}

// Kinds of impl nodes, the parts of a function's calling convention.
const (
	implAttribute = iota
	implParam
	implResult
	implError
	implYield
)

var (
	implParams = map[byte]string{'i': "@in", 'c': "@in_constant", 'l': "@inout", 'b': "@inout_aliasable", 'n': "@in_guaranteed", 'X': "@in_cxx",
		'x': "@owned", 'g': "@guaranteed", 'e': "@deallocating", 'y': "@unowned", 'v': "@pack_owned", 'p': "@pack_guaranteed", 'm': "@pack_inout"}
	implResults = map[byte]string{'r': "@out", 'o': "@owned", 'd': "@unowned", 'u': "@unowned_inner_pointer", 'a': "@autoreleased",
		'k': "@pack_out", 'l': "@guaranteed_address", 'g': "@guaranteed", 'm': "@inout"}
	implCalls = map[byte]string{'y': "@callee_unowned", 'g': "@callee_guaranteed", 'x': "@callee_owned", 't': "@convention(thin)"}
	implConvs = map[byte]string{'B': "@convention(block)", 'C': "@convention(c)", 'M': "@convention(method)", 'J': "@convention(objc_method)",
		'K': "@convention(closure)", 'W': "@convention(witness_method)"}
)

// implType parses I…: a function type with its calling convention.
func (d *demangler) implType() *node {
	out := d.make(implType, "")
	if out == nil {
		return nil
	}
	add := func(kind int, text string) *node {
		n := d.make(impl, text)
		if n != nil {
			n.n = kind
			out.kids = append(out.kids, n)
		}
		return n
	}
	var replaced []*node // signature?, then lists of types
	if d.skip('s') {
		lists := d.genericArgs()
		sig := d.popIf(signature)
		if sig == nil {
			return d.fail(errNot)
		}
		replaced = []*node{sig}
		for i := len(lists) - 1; i >= 0; i-- {
			replaced = append(replaced, lists[i]...)
		}
		out.kids = append(out.kids, d.make(list, "", replaced...))
	}
	if d.skip('I') {
		var ts []*node
		for _, l := range d.genericArgs() {
			ts = append(l, ts...)
		}
		out.kids = append(out.kids, d.make(list, "", append([]*node{d.make(emptyList, "")}, ts...)...))
	}
	if sig := d.popIf(signature); sig != nil {
		d.skip('P')
		out.kids = append(out.kids, sig)
	}
	if d.skip('e') {
		add(implAttribute, "@escaping")
	}
	if d.skip('A') {
		add(implAttribute, "@isolated(any)")
	}
	for c, s := range map[byte]string{'d': "@differentiable", 'l': "@differentiable(_linear)", 'f': "@differentiable(_forward)", 'r': "@differentiable(reverse)"} {
		if d.skip(c) {
			add(implAttribute, s)
			break
		}
	}
	call := implCalls[d.next()]
	if call == "" {
		return d.fail(errNot)
	}
	add(implAttribute, call)
	if c := d.peek(); implConvs[c] != "" {
		d.pos++
		add(implAttribute, implConvs[c])
	}
	switch {
	case d.skip('A'):
		add(implAttribute, "@yield_once")
	case d.skip('I'):
		add(implAttribute, "@yield_once_2")
	case d.skip('G'):
		add(implAttribute, "@yield_many")
	}
	if d.skip('h') {
		add(implAttribute, "@Sendable")
	}
	if d.skip('H') {
		add(implAttribute, "@async")
	}
	if d.skip('T') {
		out.n = 1
	}
	var typed []*node
	for s := implParams[d.peek()]; s != ""; s = implParams[d.peek()] {
		d.pos++
		if d.skip('w') {
			s += " @noDerivative"
		}
		if d.skip('T') {
			s = "sending " + s
		}
		if d.skip('I') {
			s = "isolated " + s
		}
		if d.skip('L') {
			s = "sil_implicit_leading_param " + s
		}
		typed = append(typed, add(implParam, s))
	}
	for s := implResults[d.peek()]; s != ""; s = implResults[d.peek()] {
		d.pos++
		if d.skip('w') {
			s += " @noDerivative"
		}
		typed = append(typed, add(implResult, s))
	}
	for d.skip('Y') {
		s := implParams[d.next()]
		if s == "" {
			return d.fail(errNot)
		}
		typed = append(typed, add(implYield, "@yields "+s))
	}
	if d.skip('z') {
		s := implResults[d.next()]
		if s == "" {
			return d.fail(errNot)
		}
		typed = append(typed, add(implError, "@error "+s))
	}
	if !d.skip('_') {
		return d.fail(errNot)
	}
	for i := len(typed) - 1; i >= 0 && d.err == nil; i-- {
		typed[i].kids = []*node{d.mustType()}
	}
	return out
}

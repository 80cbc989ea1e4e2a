package swift

import (
	"slices"
	"strconv"
)

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
		return d.keyPathThunk(c)
	case 'H', 'h':
		sig := d.popIf(signature)
		ts := d.popTypes()
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
		return d.wideThunk()
	case 'v':
		n := d.index()
		if d.skip('r') {
			return d.make(attribute, "outlined read-only object #"+strconv.Itoa(n)+" of ")
		}
		return d.make(attribute, "outlined variable #"+strconv.Itoa(n)+" of ")
	case 'e':
		return d.bridgedMethod()
	case 'g', 'B', 'G', 's', 'i', 'p', 'P', 't', 'f':
		return d.specialisation(c)
	}
	return d.fail(errNot)
}

// popTypes pops all types on top of the stack, and returns them in their order.
func (d *demangler) popTypes() (ts []*node) {
	for t := d.popType(); t != nil; t = d.popType() {
		ts = append(ts, t)
	}
	reverse(ts)
	return ts
}

// keyPathThunk parses TK and Tk: what reads and writes through a key path.
func (d *demangler) keyPathThunk(c byte) *node {
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
	ts := d.popTypes()
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
}

// wideThunk parses Tw and the letter that follows.
func (d *demangler) wideThunk() *node {
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
	return d.fail(errNot)
}

// bridgedMethod parses Te: an outlined call of a bridged method, up to '_'.
func (d *demangler) bridgedMethod() *node {
	from := d.pos
	for d.peek() != '_' {
		if c := d.next(); c < 'a' || c > 'z' {
			return d.fail(errNot)
		}
	}
	d.pos++
	return d.make(attribute, "outlined bridged method ("+d.s[from:d.pos-1]+") of ")
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
		p := d.make(impl, "")
		if p == nil || len(n.kids) > 1024 {
			return d.fail(errNot)
		}
		want, ok := d.argument(p)
		if !ok {
			return d.fail(errNot)
		}
		if last {
			p.n = 1
		}
		n.kids = append(n.kids, p)
		wants = append(wants, want)
	}
	for i := len(n.kids) - 1; i >= 0; i-- {
		if !d.popConstants(n.kids[i], wants[i]) {
			return d.fail(errNot)
		}
	}
	return n
}

// also appends one more way in which an argument is specialised.
func (n *node) also(s string) {
	if n.text != "" {
		n.text += " and "
	}
	n.text += s
}

var (
	// argumentKinds are letters that may be followed by those of argumentMore, in this order.
	argumentKinds = map[byte]struct{ text, more string }{
		'e': {"Existential To Protocol Constrained Generic", "DGOX"}, 'd': {"Dead", "GOX"}, 'g': {"Owned To Guaranteed", "OX"}, 'x': {"Exploded", ""},
		'i': {"Value Promoted from Box", ""}, 's': {"Stack Promoted from Box", ""}, 'r': {"InOut Converted to Out", ""},
	}
	argumentMore = map[byte]string{'D': "Dead", 'G': "Owned To Guaranteed", 'O': "Guaranteed To Owned", 'X': "Exploded"}
	// constantKinds are values that come from the stack: how popConstants pops them.
	constantKinds = map[byte]struct{ text, pop string }{
		'f': {"Function", "f"}, 'g': {"Global", "f"}, 'S': {"Struct", "S"}, 'k': {"KeyPath", "k"}, 's': {"String", "s"},
	}
	literalKinds = map[byte]string{'i': "Integer", 'd': "Float"}
)

// argument parses how one argument is specialised into p. want has the kinds of values that
// popConstants pops for it.
func (d *demangler) argument(p *node) (want string, ok bool) {
	switch c := d.next(); c {
	case 'n':
	case 'c', 'E':
		p.also("[Closure Propagated : ")
		return "c", true
	case 'C':
		i, ok := d.natural()
		if !ok {
			return "", false
		}
		p.also("[Same As Argument " + strconv.Itoa(i) + "]")
	case 'p':
		return d.constants(p)
	default:
		k, ok := argumentKinds[c]
		if !ok {
			return "", false
		}
		p.also(k.text)
		for i := range len(k.more) {
			if d.skip(k.more[i]) {
				p.also(argumentMore[k.more[i]])
			}
		}
	}
	return "", true
}

// constants parses the constants that an argument always has.
func (d *demangler) constants(p *node) (want string, ok bool) {
	for {
		c := d.peek()
		if what := literalKinds[c]; what != "" {
			from := d.pos + 1
			for d.pos++; isDigit(d.peek()); d.pos++ {
			}
			p.also("[Constant Propagated " + what + " : " + d.s[from:d.pos] + "]")
			continue
		}
		k, ok := constantKinds[c]
		if !ok {
			return want, true
		}
		d.pos++
		if c == 's' { // its encoding
			if e := d.next(); e != 'b' && e != 'w' && e != 'c' {
				return "", false
			}
		}
		p.also("[Constant Propagated " + k.text + " : ")
		want += k.pop
	}
}

// popConstants pops the values of a parameter, the last one first.
func (d *demangler) popConstants(p *node, want string) (ok bool) {
	for i := len(want) - 1; i >= 0; i-- {
		var kids []*node
		switch want[i] {
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
		if slices.Contains(kids, nil) {
			return false
		}
		p.kids = append(kids, p.kids...)
	}
	return true
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
	if !d.implGenerics(out) || !d.implAttributes(out) {
		return d.fail(errNot)
	}
	if d.skip('T') {
		out.n = 1
	}
	typed, ok := d.implTypes(out)
	if !ok || !d.skip('_') {
		return d.fail(errNot)
	}
	for i := len(typed) - 1; i >= 0 && d.err == nil; i-- {
		typed[i].kids = []*node{d.mustType()}
	}
	return out
}

// implPart adds a part of a function type.
func (d *demangler) implPart(out *node, kind int, text string) *node {
	n := d.make(impl, text)
	if n != nil {
		n.n = kind
		out.kids = append(out.kids, n)
	}
	return n
}

// implGenerics parses the substitutions and the signature of a generic function type.
func (d *demangler) implGenerics(out *node) (ok bool) {
	if d.skip('s') {
		lists := d.genericArgs()
		sig := d.popIf(signature)
		if sig == nil {
			return false
		}
		replaced := []*node{sig}
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
	return true
}

// implChoices are attributes that may be there, in their order: one of each choice.
var implChoices = struct{ before, after []map[byte]string }{
	before: []map[byte]string{
		{'e': "@escaping"},
		{'A': "@isolated(any)"},
		{'d': "@differentiable", 'l': "@differentiable(_linear)", 'f': "@differentiable(_forward)", 'r': "@differentiable(reverse)"},
	},
	after: []map[byte]string{
		implConvs,
		{'A': "@yield_once", 'I': "@yield_once_2", 'G': "@yield_many"},
		{'h': "@Sendable"},
		{'H': "@async"},
	},
}

// implAttributes parses the attributes: those before the convention of the callee, and those
// after it.
func (d *demangler) implAttributes(out *node) (ok bool) {
	d.implOptional(out, implChoices.before)
	call := implCalls[d.next()]
	if call == "" {
		return false
	}
	d.implPart(out, implAttribute, call)
	d.implOptional(out, implChoices.after)
	return true
}

func (d *demangler) implOptional(out *node, choices []map[byte]string) {
	for _, choice := range choices {
		if s := choice[d.peek()]; s != "" {
			d.pos++
			d.implPart(out, implAttribute, s)
		}
	}
}

// implTypes parses the parameters, results, yields and the error. It returns their nodes, whose
// types are on the stack.
func (d *demangler) implTypes(out *node) (typed []*node, ok bool) {
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
		typed = append(typed, d.implPart(out, implParam, s))
	}
	for s := implResults[d.peek()]; s != ""; s = implResults[d.peek()] {
		d.pos++
		if d.skip('w') {
			s += " @noDerivative"
		}
		typed = append(typed, d.implPart(out, implResult, s))
	}
	for d.skip('Y') {
		s := implParams[d.next()]
		if s == "" {
			return nil, false
		}
		typed = append(typed, d.implPart(out, implYield, "@yields "+s))
	}
	if d.skip('z') {
		s := implResults[d.next()]
		if s == "" {
			return nil, false
		}
		typed = append(typed, d.implPart(out, implError, "@error "+s))
	}
	return typed, true
}

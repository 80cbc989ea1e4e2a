package swift

import "strings"

func (d *demangler) extension() *node {
	sig := d.popIf(signature)
	m := d.popModule()
	t := d.popNominal()
	if m == nil {
		return d.fail(errNot)
	}
	return d.some(extension, "", m, t, sig)
}

func (d *demangler) function() *node {
	sig := d.popIf(signature)
	t := d.functionType("")
	l := d.labels(t)
	if sig != nil && t != nil {
		t = d.make(dependent, "", sig, t)
	}
	name := d.popDeclName()
	ctx := d.popContext()
	if name == nil || t == nil {
		return d.fail(errNot)
	}
	return d.some(function, "", ctx, name, l, t)
}

func (d *demangler) subscript() *node {
	private := d.popIf(privateName)
	t := d.mustType()
	l := d.labels(t)
	ctx := d.popContext()
	return d.accessor(d.some(subscript, "subscript", ctx, l, t, private))
}

var accessors = map[byte]string{'m': "materializeForSet", 's': "setter", 'g': "getter", 'G': "getter", 'w': "willset", 'W': "didset",
	'r': "read", 'M': "modify", 'y': "yielding_borrow", 'x': "yielding_mutate", 'b': "borrow", 'z': "mutate", 'i': "init"}

func (d *demangler) accessor(of *node) *node {
	c := d.next()
	switch c {
	case 'p':
		return of
	case 'a', 'l':
		if k := map[string]string{"au": "unsafeMutableAddressor", "lu": "unsafeAddressor", "aO": "owningMutableAddressor",
			"lO": "owningAddressor", "ao": "nativeOwningMutableAddressor", "lo": "nativeOwningAddressor",
			"ap": "nativePinningMutableAddressor", "lp": "nativePinningAddressor"}[string([]byte{c, d.next()})]; k != "" {
			return d.make(accessor, k, of)
		}
		return d.fail(errNot)
	case 'G':
		if of != nil { // the global's own accessor
			return d.make(accessor, "getter", of)
		}
	}
	if accessors[c] == "" {
		return d.fail(errNot)
	}
	return d.make(accessor, accessors[c], of)
}

// local parses L…: local names, made distinct from equal ones.
func (d *demangler) local() *node {
	switch c := d.peek(); {
	case c == 'L':
		d.pos++
		file := d.popIf(identifier)
		return d.make(privateName, "", file, d.popDeclName())
	case c == 'l':
		d.pos++
		return d.make(privateName, "", d.popIf(identifier))
	case 'a' <= c && c <= 'j' || 'A' <= c && c <= 'J':
		d.pos++
		return d.make(relatedName, string(rune(c)), d.pop())
	}
	n := d.make(localName, "")
	i := d.index()
	name := d.popDeclName()
	if name == nil || n == nil {
		return d.fail(errNot)
	}
	n.n, n.kids = i, []*node{name}
	return n
}

func (d *demangler) operatorName() *node {
	name := d.popIf(identifier)
	if name == nil {
		return d.fail(errNot)
	}
	fixity := map[byte]string{'i': " infix", 'p': " prefix", 'P': " postfix"}[d.next()]
	if fixity == "" {
		return d.fail(errNot)
	}
	var b strings.Builder
	for _, c := range name.text {
		switch {
		case c >= 0x80:
			b.WriteRune(c)
		case c < 'a' || c > 'z' || letters[c-'a'] == ' ':
			return d.fail(errNot)
		default:
			b.WriteByte(letters[c-'a'])
		}
	}
	return d.make(operator, b.String()+fixity)
}

// functionEntity parses f…: functions without a name of their own.
func (d *demangler) functionEntity() *node {
	switch c := d.next(); c {
	case 'D':
		return d.make(special, "__deallocating_deinit", d.popContext())
	case 'd':
		return d.make(special, "deinit", d.popContext())
	case 'Z':
		return d.make(special, "__isolated_deallocating_deinit", d.popContext())
	case 'E':
		return d.make(special, "__ivar_destroyer", d.popContext())
	case 'e':
		return d.make(special, "__ivar_initializer", d.popContext())
	case 'C', 'c':
		private := d.popIf(privateName)
		t := d.mustType()
		l := d.labels(t)
		return d.some(initialiser, map[byte]string{'C': "__allocating_init", 'c': "init"}[c], d.popContext(), l, t, private)
	case 'U', 'u':
		i := d.index()
		t := d.mustType()
		n := d.make(closure, map[byte]string{'U': "closure #", 'u': "implicit closure #"}[c], d.popContext(), t)
		if n != nil {
			n.n = i + 1
		}
		return n
	case 'A':
		i := d.index()
		n := d.make(defaultArg, "default argument ", d.popContext())
		if n != nil {
			n.n = i
		}
		return n
	case 'i':
		return d.make(initialValue, "variable initialization expression", d.popContext())
	case 'P':
		return d.make(initialValue, "property wrapper backing initializer", d.popContext())
	case 'W':
		return d.make(initialValue, "property wrapper init from projected value", d.popContext())
	case 'F':
		return d.make(initialValue, "property wrapped field init accessor", d.popContext())
	case 'a':
		return d.make(initialValue, "runtime attribute generator", d.popContext())
	}
	return d.fail(errNot)
}

// conformanceOp parses H…: the conformance of a type to a protocol.
func (d *demangler) conformanceOp() *node {
	switch c := d.next(); c {
	case 'P', 'p':
		return d.make(ofType, "ref", d.popProtocol())
	case 'C':
		for isFirst := false; !isFirst && d.err == nil && d.popIf(emptyList) == nil; {
			isFirst = d.popIf(first) != nil
			if d.popIf(conformance, accessPath) == nil {
				return d.fail(errNot)
			}
		}
		ref := d.popIf(ofType)
		if ref == nil {
			d.popModule()
			ref = d.popProtocol()
		}
		return d.make(conformance, "", d.mustType(), ref)
	case 'D':
		d.index()
		p := d.popProtocol()
		return d.make(accessPath, "", d.mustType(), p)
	case 'I':
		d.index()
		p := d.popProtocol()
		return d.make(accessPath, "", d.popIf(accessPath), p)
	case 'A':
		d.index()
		p := d.popProtocol()
		t := d.mustType()
		return d.make(accessPath, "", d.popIf(accessPath), t, p)
	case 'O':
		t := d.mustType()
		return d.make(accessPath, "", d.popIf(accessPath), t)
	case 'X':
		for isFirst := false; !isFirst && d.err == nil && d.popIf(emptyList) == nil; {
			isFirst = d.popIf(first) != nil
			if d.popIf(conformance, accessPath) == nil {
				return d.fail(errNot)
			}
		}
		return d.make(accessPath, "")
	case 'r', 'n', 'o', 'c', 'F':
		return d.fail(errNot) // records of the runtime, not code
	}
	return d.fail(errNot)
}

// popConformance pops a type and its protocol, with the module that declares the
// conformance. n is 1 for a conformance that depends on a protocol's own type.
func (d *demangler) popConformance() *node {
	if c := d.popIf(conformance); c != nil {
		return c
	}
	sig := d.popIf(signature)
	m := d.popModule()
	p := d.popProtocol()
	t := d.popType()
	if t == nil {
		// A behaviour of a property: obsolete.
		return d.fail(errNot)
	}
	if sig != nil {
		t = d.make(dependent, "", sig, t)
	}
	return d.some(conformance, "", t, p, m)
}

var typeMetadata = map[byte]string{
	'a': "type metadata accessor for ", 'b': "canonical specialized generic type metadata accessor for ", 'B': "reflection metadata builtin descriptor ",
	'C': "reflection metadata superclass descriptor ", 'D': "type metadata demangling cache variable for ", 'f': "full type metadata for ",
	'F': "reflection metadata field descriptor ", 'i': "type metadata instantiation function for ", 'I': "type metadata instantiation cache for ",
	'l': "type metadata singleton initialization cache for ", 'L': "lazy cache variable for type metadata for ", 'm': "metaclass for ",
	'M': "canonical specialized generic metaclass for ", 'n': "nominal type descriptor for ", 'o': "class metadata base offset for ",
	'P': "generic type metadata pattern for ", 'r': "type metadata completion function for ", 's': "ObjC resilient class stub for ",
	't': "full ObjC resilient class stub for ", 'u': "method lookup function for ", 'U': "ObjC metadata update function for ",
	'N': "noncanonical specialized generic type metadata for ", 'p': "protocol descriptor for ", 'S': "protocol self-conformance descriptor for ",
}

func (d *demangler) metadata() *node {
	switch c := d.next(); c {
	case 'c':
		return d.make(ofTypes, "protocol conformance descriptor for ", d.popConformance())
	case 'A':
		return d.make(ofTypes, "reflection metadata associated type descriptor ", d.popConformance())
	case 'p', 'S':
		return d.make(ofType, typeMetadata[c], d.popProtocol())
	case 'Q':
		return d.make(ofType, "opaque type descriptor for ", d.pop())
	case 'J', 'N', 'K', 'z', 'q':
		return d.fail(errNot) // of globals: data
	default:
		if s := typeMetadata[c]; s != "" {
			return d.make(ofType, s, d.mustType())
		}
	}
	return d.fail(errNot)
}

var witnesses = map[string]string{
	"al": "allocateBuffer", "ca": "assignWithCopy", "ta": "assignWithTake", "de": "deallocateBuffer", "xx": "destroy", "XX": "destroyBuffer",
	"Xx": "destroyArray", "CP": "initializeBufferWithCopyOfBuffer", "Cp": "initializeBufferWithCopy", "cp": "initializeWithCopy",
	"TK": "initializeBufferWithTakeOfBuffer", "Tk": "initializeBufferWithTake", "tk": "initializeWithTake", "pr": "projectBuffer",
	"xs": "storeExtraInhabitant", "xg": "getExtraInhabitantIndex", "Cc": "initializeArrayWithCopy", "Tt": "initializeArrayWithTakeFrontToBack",
	"tT": "initializeArrayWithTakeBackToFront", "ug": "getEnumTag", "up": "destructiveProjectEnumData", "ui": "destructiveInjectEnumTag",
	"et": "getEnumTagSinglePayload", "st": "storeEnumTagSinglePayload",
}

func (d *demangler) valueWitness() *node {
	w := witnesses[string([]byte{d.next(), d.next()})]
	if w == "" {
		return d.fail(errNot)
	}
	return d.make(ofType, w+" value witness for ", d.mustType())
}

var outlined = map[byte]string{
	'y': "outlined copy of ", 'e': "outlined consume of ", 'r': "outlined retain of ", 's': "outlined release of ",
	'b': "outlined init with take of ", 'B': "outlined init with take of ", 'c': "outlined init with copy of ", 'C': "outlined init with copy of ",
	'd': "outlined assign with take of ", 'D': "outlined assign with take of ", 'f': "outlined assign with copy of ",
	'F': "outlined assign with copy of ", 'h': "outlined destroy of ", 'H': "outlined destroy of ", 'i': "outlined enum tag store of ",
	'j': "outlined enum project data for load of ", 'g': "outlined enum get tag of ",
}

// witness parses W…: parts of witness tables, and copies of values.
func (d *demangler) witness() *node {
	switch c := d.next(); c {
	case 'V':
		return d.make(ofType, "value witness table for ", d.mustType())
	case 'v':
		k := map[byte]string{'d': "direct field offset for ", 'i': "indirect field offset for "}[d.next()]
		if k == "" {
			return d.fail(errNot)
		}
		return d.make(ofType, k, d.pop())
	case 'C':
		return d.make(ofType, "enum case for ", d.pop())
	case 'P', 'a', 'p', 'r', 'G', 'I':
		return d.make(ofTypes, map[byte]string{'P': "protocol witness table for ", 'a': "protocol witness table accessor for ",
			'p': "protocol witness table pattern for ", 'r': "resilient protocol witness table for ", 'G': "generic protocol witness table for ",
			'I': "instantiation function for generic protocol witness table for "}[c], d.popConformance())
	case 'S':
		return d.make(ofType, "protocol self-conformance witness table for ", d.popProtocol())
	case 'l', 'L':
		con := d.popConformance()
		text := "lazy protocol witness table accessor for type "
		if c == 'L' {
			text = "lazy protocol witness table cache variable for type "
		}
		return d.make(witness, text, con, d.mustType())
	case 't':
		name := d.popIf(identifier)
		return d.make(witness, "associated type metadata accessor for ", d.popConformance(), name)
	case 'T':
		p := d.popType()
		a := d.assocs(d.make(param, ""))
		return d.some(witness, "associated type witness table accessor for ", d.popConformance(), a, p)
	case 'b':
		p := d.popProtocol()
		return d.make(witness, "base witness table accessor for ", d.popConformance(), p)
	case 'Z', 'z':
		var names []*node
		for isFirst := true; isFirst && d.err == nil; {
			if isFirst = d.popIf(first) != nil; isFirst {
				names = append(names, d.popDeclName())
			}
		}
		reverse(names)
		text := "one-time initialization function for "
		if c == 'z' {
			text = "one-time initialization token for "
		}
		return d.make(anonymous, text, append([]*node{d.popContext()}, names...)...)
	case 'O':
		k := d.next()
		text := outlined[k]
		if text == "" {
			return d.fail(errNot)
		}
		if (k == 'i' || k == 'j') && (isDigit(d.peek()) || d.peek() == '_') {
			d.index()
		}
		if t := d.popType(); t != nil {
			return d.make(ofType, text, t)
		}
		sig := d.popIf(signature)
		return d.make(ofType, text, d.make(dependent, "", sig, d.mustType()))
	}
	return d.fail(errNot)
}

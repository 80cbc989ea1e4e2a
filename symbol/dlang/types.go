package dlang

import "strings"

// basic are the types of one letter.
var basic = [256]string{
	'v': "void", 'g': "byte", 'h': "ubyte", 's': "short", 't': "ushort", 'i': "int", 'k': "uint", 'l': "long", 'm': "ulong",
	'f': "float", 'd': "double", 'e': "real", 'o': "ifloat", 'p': "idouble", 'j': "ireal", 'q': "cfloat", 'r': "cdouble",
	'c': "creal", 'b': "bool", 'a': "char", 'u': "wchar", 'w': "dchar", 'n': "typeof(null)",
}

// conventions are the calling conventions, with their D syntax.
var conventions = [256]string{'F': "", 'U': "extern(C) ", 'W': "extern(Windows) ", 'V': "extern(Pascal) ", 'R': "extern(C++) ",
	'Y': "extern(Objective-C) "}

func convention(c byte) bool { return c == 'F' || conventions[c] != "" }

// typ reads a type.
func (p *parser) typ() string {
	if !p.enter() {
		return ""
	}
	defer func() { p.depth-- }()
	c := p.peek(0)
	switch c {
	case 0:
		return p.fail(errNot)
	case 'Q':
		return p.back(p.typ)
	case 'O':
		return p.wrapped("shared(")
	case 'x':
		return p.wrapped("const(")
	case 'y':
		return p.wrapped("immutable(")
	case 'N':
		p.pos++
		switch p.peek(0) {
		case 'g':
			return p.wrapped("inout(")
		case 'h':
			return p.wrapped("__vector(")
		case 'n':
			p.pos++
			return "typeof(*null)"
		}
		return p.fail(errNot)
	case 'A':
		p.pos++
		return p.bounded(p.typ() + "[]")
	case 'G':
		p.pos++
		from := p.pos
		p.number()
		n := p.s[from:p.pos]
		return p.bounded(p.typ() + "[" + n + "]")
	case 'H':
		p.pos++
		key := p.typ()
		return p.bounded(p.typ() + "[" + key + "]")
	case 'P':
		p.pos++
		if convention(p.peek(0)) {
			return p.function() + "function"
		}
		return p.bounded(p.typ() + "*")
	case 'F', 'U', 'W', 'V', 'R', 'Y':
		return p.function() + "function"
	case 'C', 'S', 'E', 'T':
		p.pos++
		return p.qualified(false)
	case 'I': // an identifier
		p.pos++
		return p.qualified(false)
	case 'D':
		p.pos++
		mods := p.modifiers()
		if p.peek(0) == 'Q' {
			return p.bounded(p.back(p.function) + "delegate" + mods)
		}
		return p.bounded(p.function() + "delegate" + mods)
	case 'B':
		p.pos++
		return p.tuple()
	case 'z':
		switch p.peek(1) {
		case 'i':
			p.pos += 2
			return "cent"
		case 'k':
			p.pos += 2
			return "ucent"
		}
		return p.fail(errNot)
	}
	if s := basic[c]; s != "" {
		p.pos++
		return s
	}
	return p.fail(errNot)
}

func (p *parser) wrapped(with string) string {
	p.pos++
	return p.bounded(with + p.typ() + ")")
}

// tuple parses the number of types, and the types.
func (p *parser) tuple() string {
	n := p.number()
	var ts []string
	for size := 0; n > 0 && p.err == nil; n-- {
		t := p.typ()
		ts = append(ts, t)
		if size += len(t) + 2; size > maxOut {
			return p.fail(errLong)
		}
	}
	return p.bounded("Tuple!(" + strings.Join(ts, ", ") + ")")
}

// modifiers parses the qualifiers of a member function, each with a space before it.
func (p *parser) modifiers() string {
	out := ""
	for range 4 { // each at most once
		switch {
		case p.skip("x"):
			return out + " const"
		case p.skip("y"):
			return out + " immutable"
		case p.skip("O"):
			out += " shared"
		case p.skip("Ng"):
			out += " inout"
		default:
			return out
		}
	}
	return out
}

// attributes parses a function's attributes, each with a space after it.
func (p *parser) attributes() string {
	out := ""
	for n := 0; p.peek(0) == 'N' && n < 32; n++ {
		a, ok := attributes[p.peek(1)]
		if !ok {
			break // inout, a vector, return: the first parameter
		}
		p.pos += 2
		out += a
	}
	return out
}

var attributes = map[byte]string{'a': "pure ", 'b': "nothrow ", 'c': "ref ", 'd': "@property ", 'e': "@trusted ", 'f': "@safe ",
	'i': "@nogc ", 'j': "return ", 'l': "scope ", 'm': "@live "}

// function parses a function's type: calling convention, return type, parameters and
// attributes, with a space at the end.
func (p *parser) function() string {
	c := p.peek(0)
	if !convention(c) {
		return p.fail(errNot)
	}
	if !p.enter() {
		return ""
	}
	defer func() { p.depth-- }()
	p.pos++
	attrs := p.attributes()
	args := p.args()
	return p.bounded(conventions[c] + p.typ() + "(" + args + ") " + attrs)
}

// args reads parameters up to their end.
func (p *parser) args() string {
	var b strings.Builder
	for n := 0; p.err == nil; n++ {
		switch {
		case p.skip("X"): // int[] a...
			b.WriteString("...")
			return b.String()
		case p.skip("Y"): // int a, ...
			if n > 0 {
				b.WriteString(", ")
			}
			b.WriteString("...")
			return b.String()
		case p.skip("Z"):
			return b.String()
		}
		if n > 0 {
			b.WriteString(", ")
		}
		if p.skip("M") {
			b.WriteString("scope ")
		}
		if p.skip("Nk") {
			b.WriteString("return ")
		}
		switch {
		case p.skip("I"):
			b.WriteString("in ")
			if p.skip("K") {
				b.WriteString("ref ")
			}
		case p.skip("J"):
			b.WriteString("out ")
		case p.skip("K"):
			b.WriteString("ref ")
		case p.skip("L"):
			b.WriteString("lazy ")
		}
		b.WriteString(p.typ())
		if b.Len() > maxOut {
			return p.fail(errLong)
		}
	}
	return ""
}

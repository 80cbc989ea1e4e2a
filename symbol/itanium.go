package symbol

import (
	"bytes"
	"strconv"
)

// itanium writes the short form of the most common C++ names (Itanium C++ ABI, section
// 5.1, "External Names (a.k.a. Mangling)"), in one pass and without a tree. It takes a
// twentieth of the time of demangle, which handles all others. Its output is identical
// to that of demangle with NoParams, NoEnclosingParams and NoClones; at the first
// unsupported construct it gives up. Unsupported are template parameters that refer to
// others, expressions, conversion operators, arrays, pointers to members, modules and
// vendors' types.
type itanium struct {
	in   string // after _Z
	pos  int
	out  []byte
	args bool // write template arguments

	// Targets of substitutions: copies of written text.
	arena []byte
	subs  []text
	last  text // the last component of the name, in arena; the name of constructors

	lambda  int  // depth in signatures of lambdas
	generic bool // a lambda has a parameter of any type
	bad     bool // unsupported
	depth   int
}

// text is a part of itanium.arena.
type text struct {
	lo, hi int32
	hole   int32 // function types: where a * is inserted, counted from lo; -1: nowhere
	kind   textKind
}

type textKind uint8

const (
	isFunc  textKind = 1 << iota // a function type, without a pointer to it
	isQual                       // ends with const, volatile or restrict
	hasAuto                      // names a parameter of a generic lambda
)

// Bounds, for names made to be long.
const (
	maxShortDepth = 64
	maxShortBytes = 1 << longLog
)

// typ is the text written last, from offset from of out on.
type typ struct {
	from, hole int // hole is an offset in out, -1: none
	kind       textKind
}

// short returns the readable form of a name that starts with _Z, with or without
// template arguments; ok is false if demangle must read it.
func (s *itanium) short(mangled string, args bool) (name string, ok bool) {
	*s = itanium{in: mangled[2:], args: args, out: s.out[:0], arena: s.arena[:0], subs: s.subs[:0]}
	s.encodingName()
	if s.bad || len(s.out) == 0 || len(s.out) > maxShortBytes {
		return "", false
	}
	return string(s.out), true
}

func (s *itanium) fail() { s.bad = true }

func (s *itanium) peek() byte {
	if s.bad || s.pos >= len(s.in) {
		return 0
	}
	return s.in[s.pos]
}

func (s *itanium) peek2() byte {
	if s.bad || s.pos+1 >= len(s.in) {
		return 0
	}
	return s.in[s.pos+1]
}

func (s *itanium) skip(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *itanium) want(c byte) {
	if !s.skip(c) {
		s.fail()
	}
}

func (s *itanium) write(t string) { s.out = append(s.out, t...) }

// keep copies the text from t.from on into the arena.
func (s *itanium) keep(t typ) text {
	p := text{lo: int32(len(s.arena)), hole: -1, kind: t.kind}
	s.arena = append(s.arena, s.out[t.from:]...)
	p.hi = int32(len(s.arena))
	if t.hole >= 0 {
		p.hole = int32(t.hole - t.from)
	}
	if len(s.arena) > maxShortBytes {
		s.fail()
	}
	return p
}

// add makes the text from t.from on a substitution candidate.
func (s *itanium) add(t typ) {
	if s.generic && bytes.Contains(s.out[t.from:], []byte("auto:")) {
		t.kind |= hasAuto
	}
	s.subs = append(s.subs, s.keep(t))
}

// put writes a text.
func (s *itanium) put(p text) typ {
	t := typ{from: len(s.out), hole: -1, kind: p.kind}
	if p.hole >= 0 {
		t.hole = t.from + int(p.hole)
	}
	s.out = append(s.out, s.arena[p.lo:p.hi]...)
	if len(s.out) > maxShortBytes {
		s.fail()
	}
	return t
}

// insert writes more at offset at of out.
func (s *itanium) insert(at int, more string) {
	n := len(s.out)
	s.out = append(s.out, more...)
	copy(s.out[at+len(more):], s.out[at:n])
	copy(s.out[at:], more)
}

func digit(c byte) bool { return '0' <= c && c <= '9' }
func lower(c byte) bool { return 'a' <= c && c <= 'z' }

// number reads digits.
func (s *itanium) number() int {
	if !digit(s.peek()) {
		s.fail()
		return 0
	}
	n := 0
	for digit(s.peek()) {
		if n = n*10 + int(s.in[s.pos]-'0'); n > 1<<20 {
			s.fail()
			return 0
		}
		s.pos++
	}
	return n
}

// compact reads the number of an unnamed entity: _ is the first one, 0_ the second.
func (s *itanium) compact() int {
	if s.skip('_') {
		return 1
	}
	n := s.number() + 2
	s.want('_')
	return n
}

// deeper bounds recursion; call its result at the end.
func (s *itanium) deeper() func() {
	if s.depth++; s.depth > maxShortDepth {
		s.fail()
	}
	return s.shallower
}

func (s *itanium) shallower() { s.depth-- }

// encodingName parses the name of an encoding. It returns its qualifiers in the form
// written after parameters.
func (s *itanium) encodingName() (quals string) {
	defer s.deeper()()
	switch c := s.peek(); {
	case c == 'N':
		_, quals = s.nested()
	case c == 'Z':
		_, quals = s.local()
	case c == 'S' && s.peek2() == 't', digit(c), c == 'L', c == 'U', lower(c):
		s.unscoped()
	default: // includes virtual tables
		s.fail()
	}
	return quals
}

// unscoped parses a name in no scope, or in std.
func (s *itanium) unscoped() typ {
	t := typ{from: len(s.out), hole: -1}
	if s.peek() == 'S' {
		s.pos += 2
		s.write("std::")
	}
	unnamed := s.peek() == 'U'
	s.unqualified()
	if s.peek() == 'I' && !unnamed {
		s.add(t)
		s.templateArgs()
	}
	return t
}

// local parses an entity declared in a function: Z, the function, E, its name.
func (s *itanium) local() (t typ, quals string) {
	defer s.deeper()()
	t = typ{from: len(s.out), hole: -1}
	s.want('Z')
	lambda := s.lambda
	s.lambda = 0
	quals = s.encodingName()
	if s.peek() != 'E' {
		n := len(s.out)
		for s.peek() != 'E' && !s.bad { // return type and parameters
			s.typ()
			s.out = s.out[:n]
		}
		s.write("()")
		s.write(quals)
	} else if quals != "" {
		s.fail()
	}
	s.want('E')
	if c := s.peek(); c == 's' || c == 'd' {
		s.fail()
	}
	s.lambda = lambda
	s.write("::")
	quals = s.encodingName()
	s.discriminator()
	return t, quals
}

// discriminator parses the number of one of several equal names in a function; it is not shown.
func (s *itanium) discriminator() {
	if s.skip('_') {
		if s.skip('_') {
			if s.number() >= 10 {
				s.want('_')
			}
			return
		}
		s.number()
		return
	}
	if digit(s.peek()) { // of clang's, or not
		s.fail()
	}
}

// nested parses a name with its scopes: N, qualifiers of a method, components, E.
func (s *itanium) nested() (t typ, quals string) {
	defer s.deeper()()
	t = typ{from: len(s.out), hole: -1}
	s.want('N')
	quals = s.qualifiers()
	switch {
	case s.skip('R'):
		quals += " &"
	case s.skip('O'):
		quals += " &&"
	}
	for n := 0; !s.bad; n++ {
		c := s.peek()
		if c == 'E' {
			s.pos++
			if n == 0 {
				s.fail()
			}
			return t, quals
		}
		if c == 'M' && n > 0 { // the entity that a lambda initializes
			s.pos++
			n--
			continue
		}
		if n > 0 && c != 'I' {
			s.write("::")
		}
		switch {
		case c == 'I':
			if n == 0 {
				s.fail()
				return t, quals
			}
			s.templateArgs()
		case c == 'C' && n > 0, c == 'D' && n > 0:
			s.structor(c)
		case c == 'S':
			if n > 0 {
				s.fail()
			}
			s.substitution()
			if d := s.peek(); d == 'C' || d == 'D' { // with the long names of std's classes
				s.fail()
			}
		case digit(c), lower(c), c == 'L', c == 'U':
			s.unqualified()
		default:
			s.fail()
		}
		if c != 'S' && s.peek() != 'E' {
			s.add(t)
		}
	}
	return t, quals
}

// structor parses a constructor or destructor.
func (s *itanium) structor(c byte) {
	switch kind := s.peek2(); {
	case s.last.lo < 0, kind < '0', kind > '5', c == 'C' && kind == '0', c == 'D' && kind == '3':
		s.fail()
		return
	}
	s.pos += 2
	if c == 'D' {
		s.write("~")
	}
	s.put(s.last)
	s.tags()
}

// unqualified parses a component of a name.
func (s *itanium) unqualified() {
	t := typ{from: len(s.out), hole: -1}
	c := s.peek()
	switch {
	case digit(c):
		s.write(s.source())
	case c == 'L':
		s.pos++
		s.write(s.source())
		if s.peek() == '_' || digit(s.peek()) {
			s.fail()
		}
	case c == 'U' && s.peek2() == 'l':
		s.closure()
	case c == 'U' && s.peek2() == 't':
		s.pos += 2
		s.write("{unnamed type#" + strconv.Itoa(s.compact()) + "}")
		s.add(t)
	case lower(c):
		op := ""
		if s.pos+2 <= len(s.in) {
			op = operators[s.in[s.pos:s.pos+2]]
		}
		if op == "" {
			s.fail()
			return
		}
		s.pos += 2
		s.write("operator" + op)
	default:
		s.fail()
	}
	s.last = s.keep(t)
	s.tags()
}

// tags parses ABI tags after a component.
func (s *itanium) tags() {
	for s.skip('B') {
		s.write("[abi:" + s.source() + "]")
	}
}

// source parses an identifier.
func (s *itanium) source() string {
	n := s.number()
	if s.bad || n == 0 || n > len(s.in)-s.pos {
		s.fail()
		return ""
	}
	id := s.in[s.pos : s.pos+n]
	s.pos += n
	if global := "_GLOBAL_"; len(id) > len(global)+2 && id[:len(global)] == global && id[len(global)+1] == 'N' {
		switch id[len(global)] {
		case '.', '_', '$':
			return "(anonymous namespace)"
		}
	}
	return id
}

// substitution parses a reference to an earlier component, or an abbreviation of std's.
func (s *itanium) substitution() typ {
	t := typ{from: len(s.out), hole: -1}
	s.want('S')
	c := s.peek()
	if name := std(c); name != "" {
		s.pos++
		s.write(name)
		if len(name) > len("std::") {
			s.last = s.keep(typ{from: t.from + len("std::"), hole: -1})
		} else { // std itself, which has no constructors
			s.last = text{lo: -1}
		}
		if s.peek() == 'B' {
			s.fail()
		}
		return t
	}
	s.last = text{lo: -1}
	id := 0
	for ; !s.skip('_'); c = s.peek() {
		switch {
		case digit(c):
			id = id*36 + int(c-'0')
		case 'A' <= c && c <= 'Z':
			id = id*36 + int(c-'A') + 10
		default:
			s.fail()
			return t
		}
		if s.pos++; s.peek() == '_' {
			id++
		}
		if id >= len(s.subs) {
			s.fail()
			return t
		}
	}
	if id >= len(s.subs) {
		s.fail()
		return t
	}
	p := s.subs[id]
	if p.kind&hasAuto != 0 && s.lambda == 0 {
		s.fail()
		return t
	}
	return s.put(p)
}

// std expands the ABI's abbreviations (section 5.1.8).
func std(c byte) string {
	switch c {
	case 't':
		return "std"
	case 'a':
		return "std::allocator"
	case 'b':
		return "std::basic_string"
	case 's':
		return "std::string"
	case 'i':
		return "std::istream"
	case 'o':
		return "std::ostream"
	case 'd':
		return "std::iostream"
	}
	return ""
}

func builtin(c byte) string {
	if !lower(c) {
		return ""
	}
	return builtins[c-'a']
}

// builtins are the ABI's builtin types (section 5.1.5.2) of one letter; r is a
// qualifier, and p, q, k and u are not types.
var builtins = [26]string{"signed char", "bool", "char", "double", "long double", "float", "__float128", "unsigned char", "int",
	"unsigned int", "", "long", "unsigned long", "__int128", "unsigned __int128", "", "", "", "short", "unsigned short", "",
	"void", "wchar_t", "long long", "unsigned long long", "..."}

// operators are the ABI's operator names (section 5.1.3) of functions.
var operators = map[string]string{
	"nw": " new", "na": " new[]", "dl": " delete", "da": " delete[]", "aw": " co_await",
	"ps": "+", "ng": "-", "ad": "&", "de": "*", "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|",
	"eo": "^", "aS": "=", "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=",
	"ls": "<<", "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "ss": "<=>",
	"nt": "!", "aa": "&&", "oo": "||", "pp": "++", "mm": "--", "cm": ",", "pm": "->*", "pt": "->", "cl": "()", "ix": "[]",
}

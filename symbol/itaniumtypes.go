package symbol

import "strconv"

// closure parses a lambda: Ul, the types of its parameters, E, its number.
func (s *itanium) closure() {
	defer s.deeper()()
	s.pos += 2
	s.write("{lambda(")
	s.lambda++
	if s.peek() == 'T' && s.peek2() != '_' && !digit(s.peek2()) { // named template parameters
		s.fail()
	}
	s.list('E')
	s.lambda--
	s.want('E')
	s.write(")#" + strconv.Itoa(s.compact()) + "}")
}

// list parses one or more types up to end; void alone is an empty list.
func (s *itanium) list(end byte) {
	if s.peek() == 'v' && s.peek2() == end {
		s.pos++
		return
	}
	for n := 0; !s.bad; n++ {
		if s.peek() == end && n > 0 {
			return
		}
		if n > 0 {
			s.write(", ")
		}
		s.typ()
	}
}

// templateArgs parses the arguments after a name: I, arguments, E.
func (s *itanium) templateArgs() {
	defer s.deeper()()
	last := s.last
	from := len(s.out)
	if from > 0 && s.out[from-1] == '<' { // operator<
		s.write(" ")
	}
	s.want('I')
	s.write("<")
	s.argList(true)
	if s.out[len(s.out)-1] == '>' {
		s.write(" ")
	}
	s.write(">")
	if !s.args {
		s.out = s.out[:from]
	}
	s.last = last
}

// argList parses template arguments up to and including E. The elements of packs are
// listed like other arguments; empty packs are omitted.
func (s *itanium) argList(packs bool) {
	first := true
	for !s.bad && !s.skip('E') {
		if c := s.peek(); c == 'J' || c == 'I' {
			s.pos++
			if s.skip('E') {
				if !packs {
					s.fail()
				}
				continue
			}
			if !packs {
				s.fail()
			}
			if !first {
				s.write(", ")
			}
			first = false
			s.argList(false)
			continue
		}
		if !first {
			s.write(", ")
		}
		first = false
		switch s.peek() {
		case 'L':
			s.literal()
		default:
			s.typ()
		}
	}
}

// literal parses a number as a template argument: L, its type, its digits, E.
func (s *itanium) literal() {
	s.pos++
	from := len(s.out)
	var suffix string
	simple := true
	c := s.peek()
	switch c {
	case 'i':
	case 'j':
		suffix = "u"
	case 'l':
		suffix = "l"
	case 'm':
		suffix = "ul"
	case 'x':
		suffix = "ll"
	case 'y':
		suffix = "ull"
	case 'b':
		simple = false
	case 'd', 'e', 'f', 'g', 'D', '_', 'Z', 'A', 'U':
		s.fail()
	default:
		simple = false
	}
	if simple {
		s.pos++
	} else {
		s.write("(")
		s.typ()
		s.write(")")
	}
	neg := s.skip('n')
	at := s.pos
	for s.peek() != 'E' && s.peek() != 0 {
		s.pos++
	}
	value := s.in[min(at, s.pos):s.pos]
	if value == "" {
		s.fail()
	}
	s.want('E')
	if s.bad {
		return
	}
	if c == 'b' && !neg && (value == "0" || value == "1") {
		s.out = s.out[:from]
		s.write(strconv.FormatBool(value == "1"))
		return
	}
	if neg {
		s.write("-")
	}
	s.write(value)
	s.write(suffix)
}

// qualifiers parses those of a type or method, in the form written after it.
func (s *itanium) qualifiers() string {
	q := ""
	for {
		switch s.peek() {
		case 'r':
			q = " restrict" + q
		case 'V':
			q = " volatile" + q
		case 'K':
			q = " const" + q
		default:
			return q
		}
		s.pos++
	}
}

// typ parses a type.
func (s *itanium) typ() typ {
	defer s.deeper()()
	if len(s.out) > maxShortBytes {
		s.fail()
	}
	q := s.qualifiers()
	t := typ{from: len(s.out), hole: -1}
	c := s.peek()
	if b := builtin(c); b != "" {
		s.pos++
		s.write(b)
		if q != "" {
			s.write(q)
			t.kind |= isQual
			s.add(t)
		}
		return t
	}
	isNew := true
	switch {
	case c == 'N', c == 'Z':
		named := s.nested
		if c == 'Z' {
			named = s.local
		}
		var quals string
		if t, quals = named(); quals != "" {
			s.fail()
		}
	case digit(c):
		t = s.unscoped()
	case c == 'S' && s.peek2() == 't':
		t = s.unscoped()
	case c == 'S':
		t = s.substitution()
		if isNew = s.peek() == 'I'; isNew {
			if t.hole >= 0 || t.kind != 0 {
				s.fail()
			}
			s.templateArgs()
		}
	case c == 'P' || c == 'R' || c == 'O':
		s.pos++
		t = s.typ()
		s.pointer(&t, c)
	case c == 'F':
		if q != "" {
			s.fail()
		}
		t = s.function()
	case c == 'D' && s.peek2() == 'n':
		s.pos += 2
		s.write("decltype(nullptr)")
		isNew = false
	case c == 'T' && s.lambda > 0:
		t = s.auto()
	default:
		s.fail()
	}
	if s.bad {
		return t
	}
	if isNew {
		s.add(t)
	}
	if q != "" {
		if t.kind&(isQual|isFunc) != 0 {
			s.fail()
			return t
		}
		if t.hole >= 0 {
			s.insert(t.hole, q)
			t.hole += len(q)
		} else {
			s.write(q)
		}
		t.kind |= isQual
		s.add(t)
	}
	return t
}

// pointer appends *, & or && to t, the text written last.
func (s *itanium) pointer(t *typ, c byte) {
	if s.bad {
		return
	}
	mark := map[byte]string{'P': "*", 'R': "&", 'O': "&&"}[c]
	switch {
	case t.kind&isFunc != 0:
		s.insert(t.hole, "("+mark+")")
		t.hole += 1 + len(mark)
	case t.hole >= 0:
		if s.out[t.hole-1] == '&' { // references to references collapse
			s.fail()
			return
		}
		s.insert(t.hole, mark)
		t.hole += len(mark)
	case s.out[len(s.out)-1] == '&':
		s.fail()
		return
	default:
		s.write(mark)
	}
	t.kind &^= isFunc | isQual
}

// function parses a function type: F, its return type, its parameters, E.
func (s *itanium) function() typ {
	t := typ{from: len(s.out), kind: isFunc}
	s.want('F')
	if s.peek() == 'Y' {
		s.fail()
	}
	r := s.typ()
	if r.hole >= 0 {
		s.fail()
	}
	s.write(" ")
	t.hole = len(s.out)
	s.write("(")
	if s.peek() == 'E' {
		s.fail()
	}
	s.list('E')
	s.want('E')
	s.write(")")
	return t
}

// auto parses the type of a parameter of a generic lambda: T_, T0_, and so on.
func (s *itanium) auto() typ {
	t := typ{from: len(s.out), hole: -1}
	s.pos++
	s.generic = true
	s.write("auto:" + strconv.Itoa(s.compact()))
	if s.peek() == 'I' {
		s.fail()
	}
	return t
}

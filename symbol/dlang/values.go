package dlang

import (
	"fmt"
	"strconv"
	"strings"
)

// valueArg reads a type and a value of it.
func (p *parser) valueArg() string {
	kind := p.peek(0)
	if kind == 'Q' {
		at := p.pos
		if to := p.target(); p.err == nil {
			kind = p.s[to]
		}
		p.pos = at
	}
	name := p.typ()
	return p.value(name, kind)
}

// value parses a value of a type that starts with kind; name is that of a struct.
func (p *parser) value(name string, kind byte) string {
	if !p.enter() {
		return ""
	}
	defer func() { p.depth-- }()
	switch c := p.peek(0); {
	case c == 'n':
		p.pos++
		return "null"
	case c == 'N':
		p.pos++
		return "-" + p.integer(kind)
	case c == 'i':
		p.pos++
		return p.integer(kind)
	case digit(c):
		return p.integer(kind)
	case c == 'e':
		p.pos++
		return p.float()
	case c == 'c':
		p.pos++
		re := p.float()
		if !p.skip("c") {
			return p.fail(errNot)
		}
		return re + "+" + p.float() + "i"
	case c == 'a' || c == 'w' || c == 'd':
		return p.text()
	case c == 'A':
		p.pos++
		return p.list("[", "]", kind == 'H')
	case c == 'S':
		p.pos++
		return p.list(name+"(", ")", false)
	case c == 'f':
		p.pos++
		return p.mangled()
	}
	return p.fail(errNot)
}

// list reads a number of values, or of pairs.
func (p *parser) list(open, end string, pairs bool) string {
	n := p.number()
	var b strings.Builder
	b.WriteString(open)
	for i := 0; i < n && p.err == nil; i++ {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.value("", 0))
		if pairs {
			b.WriteString(":" + p.value("", 0))
		}
		if b.Len() > maxOut {
			return p.fail(errLong)
		}
	}
	return p.bounded(b.String() + end)
}

func (p *parser) integer(kind byte) string {
	from := p.pos
	for digit(p.peek(0)) {
		p.pos++
	}
	digits := p.s[from:p.pos]
	if digits == "" {
		return p.fail(errNot)
	}
	switch kind {
	case 'a', 'u', 'w':
		n, err := strconv.ParseUint(digits, 10, 32)
		switch {
		case err != nil:
			return p.fail(errNot)
		case n >= 0x20 && n < 0x7f:
			return "'" + string(rune(n)) + "'"
		}
		form := map[byte]string{'a': `'\x%02x'`, 'u': `'\u%04x'`, 'w': `'\U%08x'`}[kind]
		return fmt.Sprintf(form, n)
	case 'b':
		if strings.Trim(digits, "0") == "" {
			return "false"
		}
		return "true"
	case 'h', 't', 'k':
		return digits + "u"
	case 'l':
		return digits + "L"
	case 'm':
		return digits + "uL"
	}
	return digits
}

func hex(c byte) bool { return digit(c) || 'A' <= c && c <= 'F' || 'a' <= c && c <= 'f' }

// float reads a hexadecimal number, such as 18P1 for 0x1.8p1.
func (p *parser) float() string {
	for _, w := range [][2]string{{"NAN", "NaN"}, {"NINF", "-Inf"}, {"INF", "Inf"}} {
		if p.skip(w[0]) {
			return w[1]
		}
	}
	var b strings.Builder
	if p.skip("N") {
		b.WriteByte('-')
	}
	if !hex(p.peek(0)) {
		return p.fail(errNot)
	}
	b.WriteString("0x")
	b.WriteByte(p.peek(0))
	p.pos++
	b.WriteByte('.')
	for hex(p.peek(0)) {
		b.WriteByte(p.peek(0))
		p.pos++
	}
	if !p.skip("P") {
		return p.fail(errNot)
	}
	b.WriteByte('p')
	if p.skip("N") {
		b.WriteByte('-')
	}
	for digit(p.peek(0)) {
		b.WriteByte(p.peek(0))
		p.pos++
	}
	return p.bounded(b.String())
}

// text reads a string: the size of its characters, their number, bytes in hex.
func (p *parser) text() string {
	size := p.peek(0)
	p.pos++
	n := p.number()
	if !p.skip("_") || n > (len(p.s)-p.pos)/2 {
		return p.fail(errNot)
	}
	var b strings.Builder
	b.WriteByte('"')
	for range n {
		v, err := strconv.ParseUint(p.s[p.pos:p.pos+2], 16, 8)
		if err != nil {
			return p.fail(errNot)
		}
		switch c := byte(v); {
		case c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			b.WriteByte('\\')
			b.WriteByte("tnvfr"[c-'\t'])
		case c >= 0x20 && c < 0x7f:
			b.WriteByte(c)
		default:
			b.WriteString(`\x` + p.s[p.pos:p.pos+2])
		}
		p.pos += 2
	}
	b.WriteByte('"')
	if size != 'a' {
		b.WriteByte(size)
	}
	return p.bounded(b.String())
}

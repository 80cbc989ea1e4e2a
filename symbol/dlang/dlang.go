// Package dlang demangles the linker symbols of D: _D3std… becomes std…. It follows the
// published grammar (dlang.org/spec/abi.html, "Name Mangling", with the back references
// of 2018 and the older forms that contain the length of a template instance), and
// writes types as the GNU tools do.
//
// It works on a string alone and may be called from several goroutines.
package dlang

import (
	"errors"
	"strings"
)

// Options select the parts of a name to show.
type Options struct {
	Params bool // parameters of functions, and their method qualifiers (const, shared)
	NoArgs bool // of template instances only the name, with !(...)
}

// Bounds: a name can refer back to parts of itself, and so expand to much more than its
// length.
const (
	maxOut   = 1 << 16 // bytes of the result
	maxDepth = 256     // of types in types
	maxWork  = 1 << 14 // parse steps; a part that is referred to counts each time
)

var (
	errNot  = errors.New("dlang: not a mangled name")
	errLong = errors.New("dlang: too long or too deep")
)

// Is reports whether a name may be a D symbol.
func Is(name string) bool {
	return name == "_Dmain" || len(name) > 3 && strings.HasPrefix(name, "_D") && (digit(name[2]) || name[2] == 'Q' || name[2] == '_')
}

// Demangle returns the readable form of a name. Without o.Params it omits the suffixes
// that compilers add to parts and variants of a function (.part.0).
func Demangle(name string, o Options) (string, error) {
	if name == "_Dmain" {
		return "D main", nil
	}
	if !Is(name) {
		return "", errNot
	}
	suffix := ""
	if i := strings.IndexByte(name, '.'); i > 0 {
		name, suffix = name[:i], name[i:]
	}
	p := &parser{s: name, o: o, last: len(name)}
	out := p.mangled()
	switch {
	case p.err != nil:
		return "", p.err
	case p.pos != len(p.s) || out == "":
		return "", errNot
	case suffix != "" && o.Params:
		out += " (" + suffix + ")"
	}
	return out, nil
}

type parser struct {
	s     string
	pos   int
	o     Options
	depth int
	work  int
	last  int  // position of the reference that is being followed
	whole bool // the last name's type was read including its return type
	err   error
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func (p *parser) fail(err error) string {
	if p.err == nil {
		p.err = err
	}
	return ""
}

// peek returns the byte at offset i from here, 0 beyond the end.
func (p *parser) peek(i int) byte {
	if p.err != nil || p.pos+i >= len(p.s) {
		return 0
	}
	return p.s[p.pos+i]
}

func (p *parser) skip(prefix string) bool {
	if p.err == nil && strings.HasPrefix(p.s[p.pos:], prefix) {
		p.pos += len(prefix)
		return true
	}
	return false
}

// enter counts a step into a nested construct; leave with p.depth--.
func (p *parser) enter() bool {
	p.depth++
	p.work++
	if p.depth > maxDepth || p.work > maxWork {
		p.fail(errLong)
	}
	return p.err == nil
}

// bounded returns s, or fails if it is too long.
func (p *parser) bounded(s string) string {
	if len(s) > maxOut {
		return p.fail(errLong)
	}
	if p.work += len(s) / 256; p.work > maxWork {
		return p.fail(errLong)
	}
	return s
}

// number reads a decimal number.
func (p *parser) number() int {
	if !digit(p.peek(0)) {
		p.fail(errNot)
		return 0
	}
	n := 0
	for digit(p.peek(0)) {
		if n = n*10 + int(p.peek(0)-'0'); n > 1<<28 {
			p.fail(errNot)
			return 0
		}
		p.pos++
	}
	return n
}

// try parses with f and restores the state if f fails.
func (p *parser) try(f func() string) (string, bool) {
	at, depth, last := p.pos, p.depth, p.last
	out := f()
	if p.err == nil {
		return out, true
	}
	if p.err == errLong {
		return "", false
	}
	p.err, p.pos, p.depth, p.last, p.whole = nil, at, depth, last, false
	return "", false
}

// target returns the position that the back reference here refers to: base 26 letters,
// the last of them in lower case, count back from the Q.
func (p *parser) target() int {
	at := p.pos
	p.pos++
	n := 0
	for {
		c := p.peek(0)
		switch {
		case 'A' <= c && c <= 'Z':
			n = n*26 + int(c-'A')
		case 'a' <= c && c <= 'z':
			n = n*26 + int(c-'a')
		default:
			p.fail(errNot)
			return 0
		}
		p.pos++
		if n > len(p.s) {
			p.fail(errNot)
			return 0
		}
		if c >= 'a' {
			break
		}
	}
	if n == 0 || n > at {
		p.fail(errNot)
		return 0
	}
	return at - n
}

// back parses the target of a back reference with f. The target and all references in
// it are before the reference, so none leads to itself.
func (p *parser) back(f func() string) string {
	at := p.pos
	if at >= p.last {
		return p.fail(errNot)
	}
	to := p.target()
	if p.err != nil {
		return ""
	}
	on, last := p.pos, p.last
	p.pos, p.last = to, at
	out := f()
	p.pos, p.last = on, last
	return out
}

// mangled reads _D QualifiedName (Type or Z).
func (p *parser) mangled() string {
	if !p.skip("_D") {
		return p.fail(errNot)
	}
	out := p.qualified(true)
	if p.err == nil && !p.whole && !p.skip("Z") {
		p.typ() // of the variable, or the return type of the function
	}
	p.whole = false
	return out
}

// symbolAhead reports whether another part of a qualified name begins here.
func (p *parser) symbolAhead() bool {
	switch c := p.peek(0); {
	case digit(c):
		return true
	case c == '_':
		return p.peek(1) == '_' && (p.peek(2) == 'T' || p.peek(2) == 'U')
	case c == 'Q':
		at := p.pos
		to := p.target()
		ok := p.err == nil && digit(p.s[to])
		p.pos, p.err = at, nil
		return ok
	}
	return false
}

// qualified parses dotted names; functions with their parameters, and with their method
// qualifiers if modifiers is set.
func (p *parser) qualified(modifiers bool) string {
	var parts []string
	special := ""
	size := 0
	for n := 0; n == 0 || p.symbolAhead(); n++ {
		if p.skip("0") { // without a name
			continue
		}
		name, template := p.symbol()
		if p.err != nil {
			return ""
		}
		if name == "" { // an enclosing symbol that distinguishes symbols of one name
			continue
		}
		if p.peek(0) == 'Z' || p.pos == len(p.s) {
			if w, ok := artificial[name]; ok && len(parts) > 0 {
				special = w
				break
			}
		}
		switch {
		case name == "__ctor":
			name = "this"
		case name == "__dtor":
			name = "~this"
		case name == "__postblit":
			name = "this(this)"
		case template == "__ctor":
			name = "this" + name[len("__ctor"):]
		}
		shown := name
		p.whole = false
		if p.peek(0) == 'M' || convention(p.peek(0)) {
			if args, ok := p.try(func() string { return p.parameters(modifiers) }); ok && p.o.Params && name != "this(this)" {
				shown += args
			}
		}
		if i := len(parts) - 1; template == "" && i >= 0 && !p.o.Params && instance(parts[i], shown) {
			continue // std.conv.to!(int).to is std.conv.to!(int)
		}
		parts = append(parts, shown)
		if size += len(shown) + 1; size > maxOut {
			return p.fail(errLong)
		}
	}
	return p.bounded(special + strings.Join(parts, "."))
}

// artificial are symbols that the compiler generates.
var artificial = map[string]string{"__init": "initializer for ", "__vtbl": "vtable for ", "__Class": "ClassInfo for ",
	"__Interface": "Interface for ", "__ModuleInfo": "ModuleInfo for "}

// instance reports whether template is an instance of the template name.
func instance(template, name string) bool {
	return len(template) > len(name) && template[len(name)] == '!' && template[:len(name)] == name
}

// parameters parses a member's modifiers and a function's type without its return type.
func (p *parser) parameters(modifiers bool) string {
	mods := ""
	if p.skip("M") {
		mods = p.modifiers()
	}
	args := ""
	if p.peek(0) == 'Q' { // the type refers back to another function's
		args = p.back(p.unreturned)
		p.whole = true
	} else if args = p.unreturned(); p.err == nil && p.pos == len(p.s) {
		return p.fail(errNot) // no type follows: not a function
	}
	if modifiers {
		args += mods
	}
	return args
}

// unreturned parses a function's type without its return type.
func (p *parser) unreturned() string {
	if !convention(p.peek(0)) {
		return p.fail(errNot)
	}
	p.pos++
	p.attributes()
	return "(" + p.args() + ")"
}

// symbol parses one name; template is the name of a template instance, otherwise "".
func (p *parser) symbol() (name, template string) {
	if !p.enter() {
		return "", ""
	}
	defer func() { p.depth-- }()
	switch c := p.peek(0); {
	case c == 'Q':
		return p.back(func() string { return p.identifier() }), ""
	case c == '_':
		return p.template(-1)
	case digit(c):
		at := p.pos
		n := p.number()
		if p.err == nil && n <= len(p.s)-p.pos && n >= 5 && (strings.HasPrefix(p.s[p.pos:], "__T") || strings.HasPrefix(p.s[p.pos:], "__U")) {
			start := p.pos
			var t string
			if out, ok := p.try(func() string { var o string; o, t = p.template(n); return o }); ok {
				return out, t
			}
			p.pos = start
		}
		p.pos = at
		return p.identifier(), ""
	}
	p.fail(errNot)
	return "", ""
}

// identifier reads a length and a name.
func (p *parser) identifier() string {
	n := p.number()
	if p.err != nil || n == 0 || n > len(p.s)-p.pos {
		return p.fail(errNot)
	}
	name := p.s[p.pos : p.pos+n]
	p.pos += n
	if len(name) > 3 && strings.HasPrefix(name, "__S") && strings.Trim(name[3:], "0123456789") == "" {
		return ""
	}
	return name
}

// template parses an instance: __T, name, arguments, Z. length is that of the older
// form, -1 for none.
func (p *parser) template(length int) (name, template string) {
	start := p.pos
	if !p.skip("__T") && !p.skip("__U") {
		p.fail(errNot)
		return "", ""
	}
	if p.peek(0) == 'Q' {
		template = p.back(p.identifier)
	} else {
		template = p.identifier()
	}
	args := p.templateArgs()
	if p.err != nil || template == "" || length >= 0 && p.pos != start+length {
		p.fail(errNot)
		return "", ""
	}
	if p.o.NoArgs && args != "" {
		args = "..."
	}
	return p.bounded(template + "!(" + args + ")"), template
}

func (p *parser) templateArgs() string {
	var b strings.Builder
	for n := 0; p.err == nil && !p.skip("Z"); n++ {
		if n > 0 {
			b.WriteString(", ")
		}
		p.skip("H") // matches a specialised parameter
		switch p.peek(0) {
		case 'T':
			p.pos++
			b.WriteString(p.typ())
		case 'S':
			p.pos++
			b.WriteString(p.symbolArg())
		case 'V':
			p.pos++
			b.WriteString(p.valueArg())
		case 'X': // mangled as in another language
			p.pos++
			n := p.number()
			if p.err != nil || n > len(p.s)-p.pos {
				return p.fail(errNot)
			}
			b.WriteString(p.s[p.pos : p.pos+n])
			p.pos += n
		default:
			return p.fail(errNot)
		}
		if b.Len() > maxOut {
			return p.fail(errLong)
		}
	}
	return p.bounded(b.String())
}

// symbolArg parses a symbol as an argument. The older form starts with its length,
// whose digits run into those of the first name.
func (p *parser) symbolArg() string {
	if strings.HasPrefix(p.s[p.pos:], "_D") {
		return p.mangled()
	}
	at := p.pos
	if p.peek(0) == 'Q' || p.peek(0) == '_' {
		return p.qualified(false)
	}
	if out, ok := p.try(func() string {
		out := p.qualified(false)
		// Another argument or the end must follow.
		if c := p.peek(0); p.err == nil && (!strings.ContainsRune("TSVXHZ", rune(c)) || Is(out)) {
			return p.fail(errNot)
		}
		return out
	}); ok || p.err != nil {
		return out
	}
	digits := 0
	for digit(p.peek(digits)) && digits < 8 {
		digits++
	}
	for n := digits; n > 0; n-- {
		p.pos = at
		if out, ok := p.try(func() string {
			whole := p.s
			defer func() { p.s = whole }()
			size := 0
			for range n {
				size = size*10 + int(p.peek(0)-'0')
				p.pos++
			}
			if size > len(p.s)-p.pos {
				return p.fail(errNot)
			}
			end := p.pos + size
			p.s = p.s[:end]
			var out string
			if strings.HasPrefix(p.s[p.pos:], "_D") {
				out = p.mangled()
			} else {
				out = p.qualified(false)
			}
			if p.err == nil && p.pos != end {
				return p.fail(errNot)
			}
			return out
		}); ok || p.err != nil {
			return out
		}
	}
	return p.fail(errNot)
}

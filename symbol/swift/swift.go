// Package swift demangles the linker symbols of Swift: $s3app6EngineC3runyyF becomes
// app.Engine.run() -> (). It reads the stable mangling of Swift 4.2 and later as
// published (docs/ABI/Mangling.rst of the Swift project): operators follow their
// operands, so the parser needs only a stack of nodes. It rejects unknown operators.
//
// It works on a string alone and may be called from several goroutines.
package swift

import (
	"errors"
	"strings"
)

// Options select the parts of a name to show.
type Options struct {
	// Short omits modules, parameters, types and compiler attributes of a function. It
	// omits what swift-demangle -simplified omits, and parameters too.
	Short bool
}

// Bounds: a name can refer back to parts of itself, and so expand to much more than its
// length.
const (
	maxOut   = 1 << 16 // bytes of the result
	maxDepth = 128     // of nodes in nodes, and of functions in the names of specialised ones
	maxWork  = 1 << 15 // nodes created and written; a node that is referred to counts each time
	maxSubst = 1 << 12 // substitution candidates
	maxWords = 26
)

var (
	errNot  = errors.New("swift: not a mangled name, or of a kind that is not known")
	errLong = errors.New("swift: too long or too deep")
)

var prefixes = []string{"$s", "_$s", "$S", "_$S", "$e", "_$e"}

// Is reports whether a name may be a Swift symbol.
func Is(name string) bool { return prefix(name) > 0 }

func prefix(name string) int {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) && len(name) > len(p) {
			return len(p)
		}
	}
	return 0
}

// Demangle returns the readable form of a name.
func Demangle(name string, o Options) (string, error) {
	from := prefix(name)
	if from == 0 {
		return "", errNot
	}
	d := &demangler{s: name[from:]}
	n := d.global()
	if d.err != nil {
		return "", d.err
	}
	w := &writer{o: o}
	w.node(n)
	switch {
	case w.err != nil:
		return "", w.err
	case w.b.Len() == 0:
		return "", errNot
	}
	return w.b.String(), nil
}

// node is a part of a name. The kinds document its children.
type node struct {
	kind kind
	text string
	n    int
	kids []*node
}

func (n *node) kid(i int) *node {
	if n == nil || i >= len(n.kids) {
		return nil
	}
	return n.kids[i]
}

// find returns the first child of a kind, nil for none.
func (n *node) find(k kind) *node {
	for _, c := range n.kids {
		if c.kind == k {
			return c
		}
	}
	return nil
}

// demangler reads one name.
type demangler struct {
	s     string
	pos   int
	stack []*node
	subst []*node
	words []string
	work  int
	err   error
}

func (d *demangler) fail(err error) *node {
	if d.err == nil {
		d.err = err
	}
	return nil
}

func (d *demangler) peek() byte {
	if d.pos < len(d.s) {
		return d.s[d.pos]
	}
	return 0
}

// next is the next byte, 0 at the end.
func (d *demangler) next() byte {
	c := d.peek()
	if c != 0 {
		d.pos++
	}
	return c
}

func (d *demangler) skip(c byte) bool {
	if d.peek() != c || c == 0 {
		return false
	}
	d.pos++
	return true
}

func (d *demangler) make(k kind, text string, kids ...*node) *node {
	if d.work++; d.work > maxWork {
		d.fail(errLong)
	}
	for _, c := range kids {
		if c == nil {
			return d.fail(errNot)
		}
	}
	return &node{kind: k, text: text, kids: kids}
}

// some is make without nil children.
func (d *demangler) some(k kind, text string, kids ...*node) *node {
	n := d.make(k, text)
	for _, c := range kids {
		if c != nil {
			n.kids = append(n.kids, c)
		}
	}
	return n
}

func (d *demangler) push(n *node) {
	if n == nil {
		d.fail(errNot)
		return
	}
	d.stack = append(d.stack, n)
}

// remember makes n a substitution candidate.
func (d *demangler) remember(n *node) *node {
	if n == nil {
		return nil
	}
	if d.subst = append(d.subst, n); len(d.subst) > maxSubst {
		return d.fail(errLong)
	}
	return n
}

func (d *demangler) top() *node {
	if len(d.stack) == 0 {
		return nil
	}
	return d.stack[len(d.stack)-1]
}

// pop takes the top node; nil if there is none.
func (d *demangler) pop() *node {
	n := d.top()
	if n != nil {
		d.stack = d.stack[:len(d.stack)-1]
	}
	return n
}

// popIf takes the top node if it is of one of the kinds.
func (d *demangler) popIf(ks ...kind) *node {
	if n := d.top(); n != nil {
		for _, k := range ks {
			if n.kind == k {
				return d.pop()
			}
		}
	}
	return nil
}

func (d *demangler) popType() *node {
	if n := d.top(); n != nil && n.kind.isType() {
		return d.pop()
	}
	return nil
}

// mustType is popType, but fails without a type.
func (d *demangler) mustType() *node {
	n := d.popType()
	if n == nil {
		return d.fail(errNot)
	}
	return n
}

func (d *demangler) popNominal() *node {
	n := d.popType()
	if n == nil || !n.kind.isNominal() {
		return d.fail(errNot)
	}
	return n
}

// popModule pops a module. An identifier in its position is a module.
func (d *demangler) popModule() *node {
	switch n := d.top(); {
	case n == nil:
		return nil
	case n.kind == identifier:
		d.pop()
		return d.make(module, n.text)
	case n.kind == module:
		return d.pop()
	}
	return nil
}

func (d *demangler) popContext() *node {
	if m := d.popModule(); m != nil {
		return m
	}
	if n := d.top(); n != nil && n.kind.isContext() {
		return d.pop()
	}
	return d.fail(errNot)
}

func (d *demangler) popDeclName() *node {
	return d.popIf(identifier, localName, privateName, relatedName, operator)
}

func (d *demangler) popProtocol() *node {
	if t := d.popType(); t != nil {
		if t.kind != protocol {
			return d.fail(errNot)
		}
		return t
	}
	name := d.popDeclName()
	return d.make(protocol, "", d.popContext(), name)
}

func reverse(ns []*node) {
	for i, j := 0, len(ns)-1; i < j; i, j = i+1, j-1 {
		ns[i], ns[j] = ns[j], ns[i]
	}
}

// global parses the whole name. A function's attributes follow it in the name and
// precede it in the output.
func (d *demangler) global() *node {
	for d.err == nil && d.pos < len(d.s) {
		if n := d.operator(); d.err == nil {
			d.push(n)
		}
	}
	if d.err != nil {
		return nil
	}
	out := d.make(global, "")
	for n := d.top(); n != nil && n.kind.isAttribute(); n = d.top() {
		out.kids = append(out.kids, d.pop())
	}
	n := d.pop()
	switch {
	case len(d.stack) > 0 || n == nil && len(out.kids) == 0 || n != nil && n.kind.isPart():
		return d.fail(errNot)
	case n != nil:
		out.kids = append(out.kids, n)
	}
	return out
}

// natural parses a number; ok is false if there is none.
func (d *demangler) natural() (n int, ok bool) {
	for c := d.peek(); '0' <= c && c <= '9'; c = d.peek() {
		if n = n*10 + int(c-'0'); n > 1<<24 {
			d.fail(errNot)
			return 0, false
		}
		d.pos++
		ok = true
	}
	return n, ok
}

// index reads _ for 0 and N_ for N+1.
func (d *demangler) index() int {
	n, ok := d.natural()
	if !d.skip('_') {
		d.fail(errNot)
	}
	if ok {
		n++
	}
	return n
}

// letters maps letters to the characters of operators' names.
const letters = "& @/= >    <*!|+?%-~   ^ ."

// identifier parses a name: its length and text, with words of earlier names as letters
// after a 0, and in Punycode after 00.
func (d *demangler) identifier() *node {
	hasWords, puny := false, false
	if d.skip('0') {
		if puny = d.skip('0'); !puny {
			hasWords = true
		}
	}
	var b strings.Builder
	for more := true; more && d.err == nil; more = hasWords {
		for hasWords {
			c := d.peek()
			lower := 'a' <= c && c <= 'z'
			if !lower && !('A' <= c && c <= 'Z') {
				break
			}
			d.pos++
			i := int(c - 'A')
			if lower {
				i = int(c - 'a')
			} else {
				hasWords = false
			}
			if i >= len(d.words) {
				return d.fail(errNot)
			}
			b.WriteString(d.words[i])
		}
		if d.skip('0') {
			break
		}
		if !hasWords && b.Len() > 0 && !isDigit(d.peek()) {
			return d.fail(errNot)
		}
		n, ok := d.natural()
		if puny {
			d.skip('_')
		}
		if !ok || n <= 0 || n > len(d.s)-d.pos {
			return d.fail(errNot)
		}
		part := d.s[d.pos : d.pos+n]
		d.pos += n
		if puny {
			s, ok := punycode(part)
			if !ok {
				return d.fail(errNot)
			}
			part = s
		}
		b.WriteString(part)
		if !puny {
			d.addWords(part)
		}
	}
	if b.Len() == 0 || b.Len() > maxOut {
		return d.fail(errNot)
	}
	return d.remember(d.make(identifier, b.String()))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

// addWords stores the words of a name: a word starts with a letter, and ends before an
// underscore, before a capital that follows no capital, and at the end.
func (d *demangler) addWords(s string) {
	start := -1
	for i := 0; i <= len(s); i++ {
		var c byte
		if i < len(s) {
			c = s[i]
		}
		ends := c == '_' || c == 0 || start >= 0 && i > 0 && !isUpper(s[i-1]) && isUpper(c)
		if start >= 0 && ends {
			if i-start >= 2 && len(d.words) < maxWords {
				d.words = append(d.words, s[start:i])
			}
			start = -1
		}
		if start < 0 && c != 0 && c != '_' && !isDigit(c) {
			start = i
		}
	}
}

// substitutions parses one or more references to earlier nodes.
func (d *demangler) substitutions() *node {
	if d.peek() == '_' || isDigit(d.peek()) {
		n, repeat := d.natural()
		if d.skip('_') {
			if repeat {
				n++
			}
			return d.substituted(n + 26)
		}
		if !repeat {
			return d.fail(errNot)
		}
		return d.repeated(n)
	}
	return d.repeated(1)
}

// repeated parses letters, each with its repeat count before it.
func (d *demangler) repeated(times int) *node {
	for d.err == nil {
		c := d.next()
		var i int
		switch {
		case 'a' <= c && c <= 'z':
			i = int(c - 'a')
		case isUpper(c):
			i = int(c - 'A')
		default:
			return d.fail(errNot)
		}
		n := d.substituted(i)
		if n == nil || times < 1 || times > 2048 {
			return d.fail(errNot)
		}
		for range times - 1 {
			d.push(n)
		}
		if isUpper(c) {
			return n
		}
		d.push(n)
		if d.work++; d.work > maxWork {
			return d.fail(errLong)
		}
		var ok bool
		if times, ok = d.natural(); !ok {
			times = 1
		} else if d.peek() == '_' { // the last index is beyond the letters
			d.pos++
			return d.substituted(times + 27)
		}
	}
	return nil
}

func (d *demangler) substituted(i int) *node {
	if i >= len(d.subst) {
		return d.fail(errNot)
	}
	return d.subst[i]
}

// standard are the types of one letter after S, and of one after Sc.
var standard = map[byte]string{
	'A': "VAutoreleasingUnsafeMutablePointer", 'a': "VArray", 'B': "PBinaryFloatingPoint", 'b': "VBool", 'D': "VDictionary",
	'd': "VDouble", 'E': "PEncodable", 'e': "PDecodable", 'F': "PFloatingPoint", 'f': "VFloat", 'G': "PRandomNumberGenerator",
	'H': "PHashable", 'h': "VSet", 'I': "VDefaultIndices", 'i': "VInt", 'J': "VCharacter", 'j': "PNumeric", 'K': "PBidirectionalCollection",
	'k': "PRandomAccessCollection", 'L': "PComparable", 'l': "PCollection", 'M': "PMutableCollection", 'm': "PRangeReplaceableCollection",
	'N': "VClosedRange", 'n': "VRange", 'O': "VObjectIdentifier", 'P': "VUnsafePointer", 'p': "VUnsafeMutablePointer", 'Q': "PEquatable",
	'q': "OOptional", 'R': "VUnsafeBufferPointer", 'r': "VUnsafeMutableBufferPointer", 'S': "VString", 's': "VSubstring", 'T': "PSequence",
	't': "PIteratorProtocol", 'U': "PUnsignedInteger", 'u': "VUInt", 'V': "VUnsafeRawPointer", 'v': "VUnsafeMutableRawPointer",
	'W': "VUnsafeRawBufferPointer", 'w': "VUnsafeMutableRawBufferPointer", 'X': "PRangeExpression", 'x': "PStrideable",
	'Y': "PRawRepresentable", 'y': "PStringProtocol", 'Z': "PSignedInteger", 'z': "PBinaryInteger",
}

var concurrent = map[byte]string{
	'A': "PActor", 'C': "VCheckedContinuation", 'c': "VUnsafeContinuation", 'E': "VCancellationError", 'e': "VUnownedSerialExecutor",
	'F': "PExecutor", 'f': "PSerialExecutor", 'G': "VTaskGroup", 'g': "VThrowingTaskGroup", 'h': "PTaskExecutor", 'I': "PAsyncIteratorProtocol",
	'i': "PAsyncSequence", 'J': "VUnownedJob", 'M': "CMainActor", 'P': "VTaskPriority", 'S': "VAsyncStream", 's': "VAsyncThrowingStream",
	'T': "VTask", 't': "VUnsafeCurrentTask",
}

var nominals = map[byte]kind{'C': class, 'V': structure, 'O': enum, 'P': protocol, 'a': alias}

func (d *demangler) standard() *node {
	switch {
	case d.skip('o'):
		return d.make(module, "__C")
	case d.skip('C'):
		return d.make(module, "__C_Synthesized")
	case d.skip('g'):
		return d.remember(d.make(bound, "", d.known("OOptional"), d.make(list, "", d.mustType())))
	}
	times, some := d.natural()
	c := d.next()
	t := standard[c]
	if c == 'c' {
		t = concurrent[d.next()]
	}
	if t == "" || some && (times < 1 || times > 2048) {
		return d.fail(errNot)
	}
	n := d.known(t)
	for range times - 1 {
		d.push(n)
	}
	return n
}

func (d *demangler) known(s string) *node {
	return d.make(nominals[s[0]], "", d.make(module, "Swift"), d.make(identifier, s[1:]))
}

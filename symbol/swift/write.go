package swift

import (
	"strconv"
	"strings"
)

// writer writes a node and its children.
type writer struct {
	o     Options
	b     strings.Builder
	work  int
	depth int
	err   error
}

func (w *writer) put(ss ...string) {
	for _, s := range ss {
		if w.b.Len()+len(s) > maxOut && w.err == nil {
			w.err = errLong
		}
		if w.err == nil {
			w.b.WriteString(s)
		}
	}
}

// enter counts a node; leave with w.depth--.
func (w *writer) enter() bool {
	w.depth++
	w.work++
	if (w.depth > maxDepth || w.work > maxWork) && w.err == nil {
		w.err = errLong
	}
	return w.err == nil
}

func (w *writer) joined(ns []*node, between string) {
	for i, n := range ns {
		if i > 0 {
			w.put(between)
		}
		w.node(n)
	}
}

// node writes the whole of n.
func (w *writer) node(n *node) {
	if n == nil || !w.enter() {
		return
	}
	defer func() { w.depth-- }()
	if n.kind.isContext() && n.kind != bound {
		w.entity(n, false)
		return
	}
	switch n.kind {
	case global:
		w.global(n)
	case identifier, operator:
		w.put(n.text)
	case module:
		if !w.o.Short {
			w.put(n.text)
		}
	case localName:
		w.node(n.kid(0))
		w.put(" #", strconv.Itoa(n.n+1))
	case privateName:
		w.private(n)
	case relatedName:
		if w.o.Short {
			w.node(n.kid(0))
			return
		}
		w.put("related decl '", n.text, "' for ")
		w.node(n.kid(0))
	case bound, tuple, metatype, existMetatype, existential, superclassed, constrained, dynamicSelf, param, member, builtin, wrapped,
		opaque, opaqueHere, opaqueOf, pack, packElement, expansion, boxType, integer:
		w.typ(n)
	case functionType:
		w.function(nil, n)
	case dependent:
		w.signature(n.kid(0))
		if t := n.kid(1); t.kind != functionType && t.kind != dependent {
			w.put(" ")
		}
		w.node(n.kid(1))
	case implType:
		w.impl(n)
	case ofType:
		text := n.text
		if w.o.Short {
			text = strings.Replace(text, " value witness for ", " for ", 1)
		}
		w.put(text)
		if t := n.kid(0); t.kind == dependent && strings.HasPrefix(text, "outlined") {
			w.node(t.kid(1))
			w.node(t.kid(0))
			return
		}
		w.node(n.kid(0))
	case ofTypes:
		w.put(n.text)
		w.joined(n.kids, "")
	case conformance:
		w.conformance(n)
	case witness:
		w.witness(n)
	case thunkOf:
		w.thunk(n)
	case keyPath:
		w.keyPath(n)
	case signature:
		w.signature(n)
	case requirement:
		w.requirement(n)
	case emptyList, first:
	default:
		w.err = errNot
	}
}

func (w *writer) private(n *node) {
	switch {
	case len(n.kids) > 1 && w.o.Short:
		w.node(n.kid(1))
	case len(n.kids) > 1:
		w.put("(")
		w.node(n.kid(1))
		w.put(" in ", n.kid(0).text, ")")
	case !w.o.Short:
		w.put("(in ", n.kid(0).text, ")")
	}
}

// global writes the attributes of a function, then the function.
func (w *writer) global(n *node) {
	suffix := ""
	bare := n.kids[len(n.kids)-1].kind.isAttribute() // a forwarder whose function has no name
	for _, c := range n.kids {
		switch {
		case c.kind == attribute && strings.HasPrefix(c.text, "."):
			suffix = c.text
		case c.kind == attribute:
			text := c.text
			if w.o.Short && len(c.kids) > 0 {
				text = c.kids[0].text
			}
			if bare {
				text = strings.TrimSuffix(text, " for ")
			}
			w.put(text)
		case c.kind == specialised || c.kind == respecified:
			w.specialised(c)
		default:
			w.node(c)
		}
	}
	if suffix != "" && !w.o.Short {
		w.put(" with unmangled suffix ", strconv.Quote(suffix))
	}
}

func (w *writer) specialised(n *node) {
	if w.o.Short {
		// Once is enough.
		if s := w.b.String(); !strings.HasSuffix(s, "specialized ") {
			w.put("specialized ")
		}
		return
	}
	w.put(n.text, " <")
	if n.n == 1 {
		w.put("serialized")
		if len(n.kids) > 0 {
			w.put(", ")
		}
	}
	if n.kind == specialised {
		w.joined(n.kids, ", ")
		w.put("> of ")
		return
	}
	some := false
	for i, p := range n.kids {
		if p.text == "" {
			continue
		}
		if some {
			w.put(", ")
		}
		some = true
		if p.n == 1 {
			w.put("Return = ")
		} else {
			w.put("Arg[", strconv.Itoa(i), "] = ")
		}
		w.put(p.text)
		types := strings.HasPrefix(p.text, "[Closure")
		for j, k := range p.kids {
			switch {
			case j == 1 && types:
				w.put(", Argument Types : [")
			case j > 0:
				w.put(", ")
			}
			switch {
			case k.kind != identifier:
				w.node(k)
			case types:
				w.put(k.text)
			default:
				w.put(w.inner(k.text))
			}
		}
		if types && len(p.kids) == 1 {
			w.put(", Argument Types : [")
		}
		if len(p.kids) > 0 {
			w.put("]")
		}
	}
	w.put("> of ")
}

// inner returns the name of a function that another was specialised for.
func (w *writer) inner(name string) string {
	if !Is(name) || w.depth > maxDepth/2 {
		return name
	}
	d := &demangler{s: name[prefix(name):]}
	n := d.global()
	if d.err != nil {
		return name
	}
	x := &writer{o: w.o, depth: w.depth + 8, work: w.work}
	x.node(n)
	if w.work = x.work; x.err != nil {
		return name
	}
	return x.b.String()
}

func (w *writer) conformance(n *node) {
	w.node(n.kid(0))
	if w.o.Short {
		return
	}
	w.put(" : ")
	w.node(n.kid(1))
	if m := n.kid(2); m != nil {
		w.put(" in ")
		w.node(m)
	}
}

func (w *writer) witness(n *node) {
	w.put(n.text)
	con := n.kid(0)
	switch {
	case strings.HasPrefix(n.text, "lazy"):
		w.node(n.kid(1))
		w.put(" and conformance ")
	case strings.HasPrefix(n.text, "protocol witness"):
		w.node(n.kid(1))
		w.put(" in conformance ")
	case len(n.kids) > 2:
		w.node(n.kid(1))
		w.put(" : ")
		w.node(n.kid(2))
		w.put(" in ")
	default:
		w.node(n.kid(1))
		w.put(" in ")
	}
	w.node(con)
}

func (w *writer) thunk(n *node) {
	switch {
	case strings.HasPrefix(n.text, "reabstraction"):
		kids := n.kids
		if w.o.Short {
			w.put("thunk for ")
			if kids[0].kind == signature {
				kids = kids[1:]
			}
			w.node(kids[0])
			return
		}
		w.put(n.text)
		if kids[0].kind == signature {
			w.node(kids[0])
			w.put(" ")
			kids = kids[1:]
		}
		w.put("from ")
		w.node(kids[0])
		w.put(" to ")
		w.node(kids[1])
		if len(kids) > 2 {
			w.put(" self ")
			w.node(kids[2])
		}
	case strings.HasPrefix(n.text, "with global"):
		w.node(n.kid(0))
		w.put(" ", n.text)
		w.node(n.kid(1))
	case strings.HasPrefix(n.text, "vtable"):
		w.put(n.text)
		w.node(n.kid(0))
		w.put(" dispatching to ")
		w.node(n.kid(1))
	case strings.HasPrefix(n.text, "associated conf"), strings.HasPrefix(n.text, "default assoc"):
		w.put(n.text)
		w.joined(n.kids[:2], ".")
		w.put(": ")
		w.node(n.kid(2))
	case strings.HasPrefix(n.text, "base"):
		w.put(n.text)
		w.joined(n.kids, ": ")
	case strings.Contains(n.text, "completion handler"):
		w.put(n.text)
		kids := n.kids
		if kids[0].kind == signature {
			w.node(kids[0])
			w.put(" ")
			kids = kids[1:]
		}
		w.node(kids[0])
		w.put(" with result type ")
		w.node(kids[1])
	default:
		w.put(n.text)
		w.joined(n.kids, "")
	}
}

func (w *writer) keyPath(n *node) {
	w.put(n.text)
	w.node(n.kid(0))
	if w.o.Short {
		return
	}
	w.put(" : ")
	for i, k := range n.kids[1:] {
		if i > 0 && n.kids[i].kind != signature {
			w.put(", ")
		}
		w.node(k)
	}
}

// entity writes a declaration with its context. A closure, or an entity local to a
// function, cannot be the first part of a dotted name. With asPrefix it is not written,
// and entity returns it for the caller to write later.
func (w *writer) entity(n *node, asPrefix bool) (left *node) {
	if !w.enter() {
		return nil
	}
	defer func() { w.depth-- }()
	switch n.kind {
	case extension:
		if !w.o.Short {
			w.put("(extension in ")
			w.node(n.kid(0))
			w.put("):")
		}
		w.node(n.kid(1))
		if sig := n.kid(2); sig != nil {
			w.signature(sig)
		}
		return nil
	case static:
		w.put("static ")
		w.node(n.kid(0))
		return nil
	case anonymous:
		w.put(n.text)
		for i, k := range n.kids[1:] {
			if i > 0 {
				w.put(", ")
			}
			w.entity(&node{kind: alias, kids: []*node{n.kids[0], k}}, false)
		}
		return nil
	case accessor:
		v := n.kid(0)
		if v.kind == static { // of a class
			w.put("static ")
			v = v.kid(0)
		}
		return w.named(v, asPrefix, n.text, true)
	case function, variable, subscript, initialiser:
		return w.named(n, asPrefix, "", true)
	case closure:
		return w.named(n, asPrefix, n.text+strconv.Itoa(n.n), !w.o.Short)
	case defaultArg:
		return w.named(n, asPrefix, n.text+strconv.Itoa(n.n), false)
	}
	return w.named(n, asPrefix, "", false) // nominal types, special functions, initial values
}

// named writes a context, a name or its replacement, an extra (getter), and a type.
func (w *writer) named(n *node, asPrefix bool, extra string, typed bool) (left *node) {
	name := n.text
	switch n.kind {
	case function, variable, class, structure, enum, protocol, alias:
		name = ""
	case closure, defaultArg:
		name = extra
		extra = ""
	}
	local := n.kid(1) != nil && n.kid(1).kind == localName
	words := strings.Contains(name, " ") || local
	if asPrefix && (typed || words) {
		return n
	}
	var after *node
	ctx := n.kid(0)
	if words {
		after = ctx
	} else {
		at := w.b.Len()
		after = w.prefix(ctx)
		if w.b.Len() > at {
			w.put(".")
		}
	}
	at := w.b.Len()
	switch n.kind {
	case function, variable, class, structure, enum, protocol, alias:
		w.node(n.kid(1))
	case initialiser:
		if name == "__allocating_init" && !isClass(ctx) {
			name = "init"
		}
		w.put(name)
	case special:
		if name == "__deallocating_deinit" && !isClass(ctx) {
			name = "deinit"
		}
		w.put(name)
	default:
		w.put(name)
	}
	if p := n.find(privateName); p != nil && n.kid(1) != p {
		w.private(p)
	}
	if extra != "" {
		if w.b.Len() > at {
			w.put(".")
		}
		w.put(extra)
	}
	if typed {
		w.typed(n, extra != "", local)
	}
	if after != nil && !asPrefix {
		if n.kind == defaultArg || n.kind == initialValue {
			w.put(" of ")
		} else {
			w.put(" in ")
		}
		w.node(after)
		after = nil
	}
	return after
}

// prefix writes a context before a dot, and returns the part that could not be written.
func (w *writer) prefix(ctx *node) *node {
	if ctx == nil {
		return nil
	}
	if ctx.kind == bound {
		w.node(ctx)
		return nil
	}
	if ctx.kind.isContext() {
		return w.entity(ctx, true)
	}
	w.node(ctx)
	return nil
}

func isClass(n *node) bool {
	for n != nil && (n.kind == bound || n.kind == extension) {
		if n.kind == extension {
			n = n.kid(1)
		} else {
			n = n.kid(0)
		}
	}
	return n != nil && n.kind == class
}

// typed writes the type of a function as its parameters, and of a variable
// after a colon.
func (w *writer) typed(n *node, accessed, local bool) {
	var t *node
	for _, k := range n.kids[1:] {
		if k.kind.isType() {
			t = k
		}
	}
	if t == nil {
		return
	}
	inner := t
	for inner.kind == dependent {
		inner = inner.kid(1)
	}
	if n.kind == variable || inner.kind != functionType || n.kind == subscript && accessed {
		if !w.o.Short {
			w.put(" : ")
			w.withLabels(n, t)
		}
		return
	}
	if (n.kind == closure || local) && (!w.o.Short || t.kind == dependent) {
		w.put(" ")
	}
	w.withLabels(n, t)
}

func (w *writer) withLabels(n, t *node) {
	for t.kind == dependent {
		w.signature(t.kid(0))
		if t = t.kid(1); t.kind != functionType && t.kind != dependent {
			w.put(" ")
		}
	}
	if t.kind != functionType {
		w.node(t)
		return
	}
	if w.o.Short {
		return
	}
	w.function(n.find(labels), t)
}

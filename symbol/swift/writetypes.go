package swift

import (
	"strconv"
	"strings"
)

// function writes a function's type, with the parameter labels of its declaration; nil
// for none.
func (w *writer) function(l, t *node) {
	var before, after string
	sending := false
	for _, e := range t.kid(2).kids { // the last attributes come first
		switch e.text {
		case "async":
			after = " async" + after
		case "throws":
			if len(e.kids) > 0 {
				x := &writer{o: w.o, depth: w.depth, work: w.work}
				x.node(e.kids[0])
				w.work = x.work
				after = " throws(" + x.b.String() + ")" + after
			} else {
				after = " throws" + after
			}
		case "sending":
			sending = true
		case "actor":
			x := &writer{o: w.o, depth: w.depth, work: w.work}
			x.node(e.kids[0])
			w.work = x.work
			before = "@" + x.b.String() + " " + before
		case "@Sendable":
			before += "@Sendable "
		default:
			before = e.text + " " + before
		}
	}
	w.put(t.text, before)
	w.params(l, t.kid(0))
	w.put(after, " -> ")
	if sending {
		w.put("sending ")
	}
	w.node(t.kid(1))
}

func (w *writer) params(l, p *node) {
	w.put("(")
	defer w.put(")")
	if p.kind != tuple {
		if l != nil && len(l.kids) == 1 {
			w.label(l.kids[0])
		}
		w.node(p)
		return
	}
	for i, e := range p.kids {
		if i > 0 {
			w.put(", ")
		}
		if l != nil && i < len(l.kids) {
			w.label(l.kids[i])
		} else if e.text != "" {
			w.put(e.text, ": ")
		}
		w.element(e)
	}
}

func (w *writer) label(n *node) {
	if n.kind == identifier {
		w.put(n.text, ": ")
	} else {
		w.put("_: ")
	}
}

func (w *writer) element(e *node) {
	w.node(e.kid(0))
	if e.n == 1 {
		w.put("...")
	}
}

// simple reports whether a type needs no parentheses before ? and the like.
func simple(n *node) bool {
	switch n.kind {
	case functionType, implType, dependent, wrapped, opaqueHere:
		return false
	case existential, superclassed:
		return n.kind == existential && (n.text == "" && len(n.kids) <= 1 || len(n.kids) == 0)
	}
	return true
}

func (w *writer) grouped(n *node) {
	if simple(n) {
		w.node(n)
		return
	}
	w.put("(")
	w.node(n)
	w.put(")")
}

// typ writes types.
func (w *writer) typ(n *node) {
	switch n.kind {
	case bound:
		w.bound(n)
	case tuple:
		w.put("(")
		for i, e := range n.kids {
			if i > 0 {
				w.put(", ")
			}
			if e.text != "" {
				w.put(e.text, ": ")
			}
			w.element(e)
		}
		w.put(")")
	case metatype:
		w.put(n.text)
		w.grouped(n.kid(0))
		if k := n.kid(0).kind; k == existential || k == superclassed || k == constrained || k == protocol {
			w.put(".Protocol")
		} else {
			w.put(".Type")
		}
	case existMetatype:
		w.put(n.text)
		w.grouped(n.kid(0))
		w.put(".Type")
	case existential:
		w.joined(n.kids, " & ")
		switch {
		case len(n.kids) == 0 && n.text == "":
			w.put("Any")
		case len(n.kids) > 0 && n.text != "":
			w.put(" & ", w.std(n.text))
		case n.text != "":
			w.put(w.std(n.text))
		}
	case superclassed:
		w.joined(n.kids, " & ")
	case constrained:
		w.put("any ")
		w.node(n.kid(0))
		w.put("<")
		w.joined(n.kids[1:], ", ")
		w.put(">")
	case dynamicSelf:
		w.put("Self")
	case param, integer:
		w.put(n.text)
	case builtin:
		if strings.HasPrefix(n.text, "_") || strings.HasPrefix(n.text, "<") || n.text == "AnyObject" {
			w.put(n.text)
		} else {
			w.put("Builtin.", n.text)
		}
	case member:
		w.node(n.kid(0))
		if w.b.Len() > 0 && n.kid(0).text+string(rune('0'+len(n.kid(0).kids))) != "0" {
			w.put(".")
		}
		if p := n.kid(2); p != nil {
			w.node(p)
			w.put(".")
		}
		w.node(n.kid(1))
	case wrapped:
		w.put(n.text)
		w.node(n.kid(0))
	case opaque:
		w.node(n.kid(0))
		if !w.o.Short {
			w.put(".")
		}
		w.put("some")
	case opaqueHere:
		w.put("some")
	case opaqueOf:
		w.put("<<opaque return type of ")
		w.node(n.kid(0))
		w.put(">>")
	case pack:
		w.put(n.text, "{")
		w.joined(n.kids, ", ")
		w.put("}")
	case packElement:
		w.put("/* level: ", strconv.Itoa(n.n), " */ ")
		w.node(n.kid(0))
	case expansion:
		w.put("repeat ")
		w.node(n.kid(0))
	case boxType:
		w.put("{ ")
		w.joined(n.kids, ", ")
		w.put(" }")
	}
}

// std returns the name of an entity of the standard library.
func (w *writer) std(s string) string {
	if w.o.Short {
		return s
	}
	return "Swift." + s
}

// bound writes a type with its arguments, common ones in source syntax.
func (w *writer) bound(n *node) {
	of, args := n.kid(0), n.kid(1)
	if m := of.kid(0); m != nil && m.kind == module && m.text == "Swift" && of.kid(1) != nil {
		switch name := of.kid(1).text; {
		case name == "Optional" && len(args.kids) == 1:
			w.grouped(args.kid(0))
			w.put("?")
			return
		case name == "Array" && len(args.kids) == 1:
			w.put("[")
			w.node(args.kid(0))
			w.put("]")
			return
		case name == "Dictionary" && len(args.kids) == 2:
			w.put("[")
			w.joined(args.kids, " : ")
			w.put("]")
			return
		}
	}
	w.node(of)
	w.put("<")
	w.joined(args.kids, ", ")
	w.put(">")
}

// signature writes generic parameters and their requirements.
func (w *writer) signature(n *node) {
	if n == nil || !w.enter() {
		return
	}
	defer func() { w.depth-- }()
	each := map[string]string{}
	var reqs []*node
	for _, k := range n.kids {
		if k.kind != requirement {
			continue
		}
		switch k.text {
		case "each":
			each[k.kid(0).text] = "each "
		case "let":
			each[k.kid(0).text] = "let "
		default:
			reqs = append(reqs, k)
		}
	}
	w.put("<")
	some := false
	for i, l := range n.kids {
		if l.kind != list {
			break
		}
		if i > 0 {
			w.put("><")
		}
		for j, p := range l.kids {
			if j > 0 {
				w.put(", ")
			}
			w.put(each[p.text], p.text)
			some = true
		}
	}
	if len(reqs) > 0 && !w.o.Short {
		if some {
			w.put(" ")
		}
		w.put("where ")
		w.joined(reqs, ", ")
	}
	w.put(">")
}

func (w *writer) requirement(n *node) {
	w.node(n.kid(0))
	w.put(n.text)
	w.node(n.kid(1))
}

// impl writes a function type with its calling convention.
func (w *writer) impl(n *node) {
	part := 0
	to := func(p int) {
		if part == 0 && p > 0 {
			for _, k := range n.kids {
				if k.kind == list && k.kid(0).kind == signature {
					w.put("@substituted ")
					w.node(k.kid(0))
					w.put(" ")
				}
			}
			w.put("(")
			part = 1
		}
		if part == 1 && p > 1 {
			w.put(") -> ")
			if n.n == 1 {
				w.put("sending ")
			}
			w.put("(")
			part = 2
		}
	}
	var last int
	for _, k := range n.kids {
		switch {
		case k.kind == list:
			continue
		case k.kind != impl || k.n == implAttribute:
			if k.kind == impl {
				w.put(k.text)
			} else {
				w.node(k)
			}
			w.put(" ")
			continue
		case k.n == implParam:
			if last == 1 {
				w.put(", ")
			}
			to(1)
			last = 1
		default:
			if last == 2 {
				w.put(", ")
			}
			to(2)
			last = 2
		}
		w.put(k.text, " ")
		w.node(k.kid(0))
	}
	to(2)
	w.put(")")
	for _, k := range n.kids {
		if k.kind == list {
			w.put(" for <")
			w.joined(k.kids[1:], "")
			w.put(">")
		}
	}
}

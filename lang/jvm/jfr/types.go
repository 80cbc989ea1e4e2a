package jfr

import (
	"fmt"
	"strconv"
)

const (
	typeMetadata   = 0
	typeCheckpoint = 1

	// Bounds on what a chunk describes. HotSpot 25 has 260 types with up to 30 fields.
	maxTypes  = 1 << 14
	maxFields = 1 << 10
	maxDepth  = 16 // of elements in the description, and of types in types
)

// base is how a value is written.
type base uint8

const (
	structure base = iota
	boolean
	byte1
	char
	short
	integer
	long
	float
	double
	text
)

var bases = map[string]base{"boolean": boolean, "byte": byte1, "char": char, "short": short, "int": integer, "long": long,
	"float": float, "double": double, "java.lang.String": text}

// Type is one that a chunk describes: of an event, or of a value.
type Type struct {
	ID     int64
	Name   string
	Fields []Field
	base   base
}

// Field is one of a Type.
type Field struct {
	Name     string
	Type     *Type // of it, or of its elements
	Constant bool  // the value is a key of a constant
	Array    bool

	id int64 // of Type
}

// field returns the number of a field; -1: the type does not have it.
func (t *Type) field(name string) int {
	for i := range t.Fields {
		if t.Fields[i].Name == name {
			return i
		}
	}
	return -1
}

// Type returns a type by name; nil: the chunk has none.
func (c *Chunk) Type(name string) *Type { return c.names[name] }

// readTypes reads the event that describes the types.
func (c *Chunk) readTypes() error {
	r, _, typ, err := c.event(c.metadata)
	if err == nil && typ != typeMetadata {
		err = fmt.Errorf("event of type %d in place of the metadata at %d", typ, c.metadata)
	}
	if err != nil {
		return err
	}
	r.long() // start
	r.long() // duration
	r.long() // number of this description
	m := describing{r: &r, c: c}
	n := r.count()
	for range n {
		s, _, _ := r.text()
		m.strings = append(m.strings, s)
		if r.err != nil {
			break
		}
	}
	m.element(0, nil)
	if r.err != nil {
		return fmt.Errorf("metadata: %w", r.err)
	}
	for _, t := range c.types {
		for i := range t.Fields {
			f := &t.Fields[i]
			if f.Type = c.types[f.id]; f.Type == nil {
				return fmt.Errorf("metadata: %s.%s is of type %d, which is not described", t.Name, f.Name, f.id)
			}
		}
	}
	return nil
}

// describing reads the tree of elements: root, metadata, class, field and others.
type describing struct {
	r       *cursor
	c       *Chunk
	strings []string
}

func (m *describing) string() string {
	i := int(m.r.int())
	if m.r.err == nil && (i < 0 || i >= len(m.strings)) {
		m.r.fail(fmt.Errorf("string %d of %d", i, len(m.strings)))
	}
	if m.r.err != nil {
		return ""
	}
	return m.strings[i]
}

// element reads one with all that is in it. in is the type that it is part of.
func (m *describing) element(depth int, in *Type) {
	if depth == maxDepth {
		m.r.fail(fmt.Errorf("elements in more than %d others", maxDepth))
	}
	name := m.string()
	var id, class, typeName, constant, dimension string
	for range m.r.count() {
		switch key, value := m.string(), m.string(); key {
		case "id":
			id = value
		case "name":
			typeName = value
		case "class":
			class = value
		case "constantPool":
			constant = value
		case "dimension":
			dimension = value
		}
		if m.r.err != nil {
			return
		}
	}
	switch {
	case name == "class" && in == nil:
		in = m.class(id, typeName)
	case name == "field" && in != nil:
		m.field(in, Field{Name: typeName, id: m.number(class), Constant: constant == "true", Array: dimension != "" && dimension != "0"})
	}
	for range m.r.count() {
		if m.r.err != nil {
			return
		}
		m.element(depth+1, in)
	}
}

func (m *describing) number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		m.r.fail(fmt.Errorf("invalid number of a type %.40q", s))
	}
	return n
}

func (m *describing) class(id, name string) *Type {
	t := &Type{ID: m.number(id), Name: name, base: bases[name]}
	switch {
	case m.r.err != nil:
	case len(m.c.types) == maxTypes:
		m.r.fail(fmt.Errorf("more than %d types", maxTypes))
	case m.c.types[t.ID] != nil:
		m.r.fail(fmt.Errorf("two types have the number %d", t.ID))
	default:
		m.c.types[t.ID], m.c.names[name] = t, t
	}
	return t
}

func (m *describing) field(t *Type, f Field) {
	if len(t.Fields) == maxFields {
		m.r.fail(fmt.Errorf("%.80q has more than %d fields", t.Name, maxFields))
		return
	}
	t.Fields = append(t.Fields, f)
}

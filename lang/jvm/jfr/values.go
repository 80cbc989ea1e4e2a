package jfr

import (
	"errors"
	"fmt"
)

// Kind is the kind of a Value.
type Kind uint8

// The kinds of values.
const (
	Null Kind = iota
	Int
	Float
	Text
	Ref    // key of a constant: see Chunk.Constant
	Struct // Elems are its fields
	Array
)

// Value is one of an event or a constant.
type Value struct {
	Kind  Kind
	Int   int64   // of Int, and the key of Ref; a boolean is 0 or 1
	Float float64 // of Float
	Text  string
	Elems []Value
	Type  *Type // of Struct, and of the constant of Ref
}

const (
	// maxKept bounds the values of constants that a chunk's reader keeps.
	maxKept = 1 << 21
	// seenShare bounds the values that are decoded, for each byte of the chunk: a structure without fields has no byte.
	seenShare = 4
	// maxCheckpoints bounds the events with constants of one chunk.
	maxCheckpoints = 1 << 16
)

var errTooMany = errors.New("more values than bytes")

// value reads one value of a field. If keep is not set, only its bytes are passed over.
func (c *Chunk) value(r *cursor, f *Field, depth int, keep bool) Value {
	if !f.Array {
		return c.one(r, f, depth, keep)
	}
	n := r.count()
	v := Value{Kind: Array}
	for range n {
		if r.err != nil {
			break
		}
		if x := c.one(r, f, depth, keep); keep {
			v.Elems = append(v.Elems, x)
		}
	}
	return v
}

func (c *Chunk) one(r *cursor, f *Field, depth int, keep bool) Value {
	if f.Constant {
		c.seen++
		return Value{Kind: Ref, Int: r.long(), Type: f.Type}
	}
	return c.plain(r, f.Type, depth, keep)
}

// plain reads a value of a type that is written in place.
func (c *Chunk) plain(r *cursor, t *Type, depth int, keep bool) Value {
	if c.seen++; c.seen > seenShare*len(c.data) {
		r.fail(errTooMany)
	}
	if r.err != nil {
		return Value{}
	}
	switch t.base {
	case boolean, byte1:
		return Value{Kind: Int, Int: int64(int8(r.byte()))}
	case char:
		return Value{Kind: Int, Int: int64(r.short())}
	case short:
		return Value{Kind: Int, Int: int64(int16(r.short()))}
	case integer:
		return Value{Kind: Int, Int: int64(r.int())}
	case long:
		return Value{Kind: Int, Int: r.long()}
	case float:
		return Value{Kind: Float, Float: r.float()}
	case double:
		return Value{Kind: Float, Float: r.double()}
	case text:
		s, ref, kind := r.text()
		return Value{Kind: kind, Text: s, Int: ref, Type: t}
	}
	if depth == maxDepth {
		r.fail(fmt.Errorf("%.80q in more than %d others", t.Name, maxDepth))
		return Value{}
	}
	v := Value{Kind: Struct, Type: t}
	for i := range t.Fields {
		if r.err != nil {
			break
		}
		if x := c.value(r, &t.Fields[i], depth+1, keep); keep {
			v.Elems = append(v.Elems, x)
		}
	}
	return v
}

// needed are the types of constants that values of the fields can refer to.
func needed(fields []*Field) map[*Type]bool {
	out := map[*Type]bool{}
	var add func(fs []*Field)
	add = func(fs []*Field) {
		for _, f := range fs {
			if out[f.Type] {
				continue
			}
			out[f.Type] = true
			var more []*Field
			for i := range f.Type.Fields {
				more = append(more, &f.Type.Fields[i])
			}
			add(more)
		}
	}
	add(fields)
	return out
}

// readPools reads the constants of the types in want. Checkpoint events are a chain from the last one back.
func (c *Chunk) readPools(want map[*Type]bool) error {
	c.pools, c.kept = map[*Type]map[int64]Value{}, 0
	off := c.Header.pools
	for n := 0; off != 0; n++ {
		r, _, typ, err := c.event(off)
		switch {
		case err == nil && typ != typeCheckpoint:
			err = fmt.Errorf("event of type %d in place of constants at %d", typ, off)
		case err == nil && n == maxCheckpoints:
			err = fmt.Errorf("more than %d events with constants", maxCheckpoints)
		}
		if err != nil {
			return err
		}
		r.long() // start
		r.long() // duration
		delta := r.long()
		r.byte() // what it is for
		for range r.count() {
			if c.pool(&r, want); r.err != nil {
				break
			}
		}
		if r.err != nil {
			return fmt.Errorf("constants: %w", r.err)
		}
		if delta == 0 {
			break
		}
		if delta > 0 || off+delta < headerSize || off+delta > off {
			return fmt.Errorf("constants at %d refer to others %d bytes on", off, delta)
		}
		off += delta
	}
	return nil
}

// pool reads the constants of one type.
func (c *Chunk) pool(r *cursor, want map[*Type]bool) {
	id := r.long()
	n := r.count()
	t := c.types[id]
	if r.err == nil && t == nil {
		r.fail(fmt.Errorf("constants of type %d, which is not described", id))
	}
	if r.err != nil {
		return
	}
	keep := want[t]
	pool := c.pools[t]
	if pool == nil && keep {
		pool = map[int64]Value{}
		c.pools[t] = pool
	}
	for range n {
		key, before := r.long(), c.seen
		v := c.plain(r, t, 0, keep)
		if r.err != nil {
			return
		}
		if !keep {
			continue
		}
		if c.kept += c.seen - before; c.kept > maxKept {
			r.fail(fmt.Errorf("more than %d constants", maxKept))
			return
		}
		pool[key] = v
	}
}

// Events yields the events of a type, in the order of the file, with the fields of these names. A field that the type
// does not have is Null. The values are the callee's until it returns. A chunk without that type has no such events.
func (c *Chunk) Events(name string, fields []string, yield func([]Value) error) error {
	t := c.names[name]
	if t == nil {
		return nil
	}
	at := make([]int, len(t.Fields)) // where a field's value goes, plus 1
	var chosen []*Field
	for i, want := range fields {
		if k := t.field(want); k >= 0 {
			at[k] = i + 1
			chosen = append(chosen, &t.Fields[k])
		}
	}
	c.seen = 0
	if err := c.readPools(needed(chosen)); err != nil {
		return err
	}
	c.seen = 0
	out := make([]Value, len(fields))
	for off := int64(headerSize); off < c.Size; {
		r, end, typ, err := c.event(off)
		if err != nil {
			return err
		}
		if off = end; typ != t.ID {
			continue
		}
		clear(out)
		for i := range t.Fields {
			v := c.value(&r, &t.Fields[i], 0, at[i] > 0)
			if at[i] > 0 {
				out[at[i]-1] = v
			}
		}
		if r.err != nil {
			return fmt.Errorf("%s: %w", name, r.err)
		}
		if err := yield(out); err != nil {
			return err
		}
	}
	return nil
}

// Constant returns what a Ref refers to, and any other value as it is. A constant that the chunk does not have is Null.
// It may be called while Events yields.
func (c *Chunk) Constant(v Value) Value {
	for range maxDepth { // a constant may be another one's key
		if v.Kind != Ref {
			return v
		}
		v = c.pools[v.Type][v.Int]
	}
	return Value{}
}

// Path goes through fields by name, and through constants, from a value of a structure. Where one is missing the value
// is Null.
func (c *Chunk) Path(v Value, names ...string) Value {
	v = c.Constant(v)
	for _, n := range names {
		if v.Kind != Struct {
			return Value{}
		}
		i := v.Type.field(n)
		if i < 0 || i >= len(v.Elems) {
			return Value{}
		}
		v = c.Constant(v.Elems[i])
	}
	return v
}

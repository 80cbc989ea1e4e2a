package hprof

import "encoding/binary"

// Field is an instance field of a class, without those of its superclasses.
type Field struct {
	Name uint64 // its name's string
	Type Type
}

// Static is a static field with its value.
type Static struct {
	Name  uint64 // its name's string
	Type  Type
	Value uint64 // the value's bits; an object's identifier
}

// Constant is an entry of a class's constant pool. HotSpot and ART write none.
type Constant struct {
	Index uint16
	Type  Type
	Value uint64
}

// Class is a class as a SubClass has it. An instance's body has the values of its
// class's Fields in order, then those of the superclass's, and so on.
type Class struct {
	ID, Super, Loader, Signers, Domain uint64
	Trace                              uint32
	Size                               uint32 // bytes of an instance
	Constants                          []Constant
	Statics                            []Static
	Fields                             []Field
}

// classHead returns the bytes of the class at the current position, of which the
// first fixed are available.
func (r *Reader) classHead(at int64, fixed int) (int, error) {
	ids, n := r.header.IDSize, fixed
	for part := range 3 {
		if !r.need(n + 2) {
			return 0, r.short(at, "a class")
		}
		count := int(binary.BigEndian.Uint16(r.buf[r.pos+n:]))
		n += 2
		name := ids
		if part == 0 {
			name = 2
		}
		if part == 2 {
			n += count * (ids + 1)
			break
		}
		for range count {
			if !r.need(n + name + 1) {
				return 0, r.short(at, "a class")
			}
			t := Type(r.buf[r.pos+n+name])
			size := t.Size(ids)
			if size == 0 {
				return 0, r.damaged(at, "a class with a value of invalid type %d", uint8(t))
			}
			n += name + 1 + size
		}
	}
	if !r.need(n) {
		return 0, r.short(at, "a class")
	}
	return n, nil
}

// Class decodes the current Item, which is a SubClass, into c, whose slices are
// used again.
func (r *Reader) Class(c *Class) error {
	it, ids := &r.item, r.header.IDSize
	if it.Kind != KindSub || it.Tag != SubClass {
		return r.damaged(it.Offset, "no class")
	}
	b := it.Head[1:]
	id := func() uint64 {
		v := ID(b, ids)
		b = b[ids:]
		return v
	}
	u2 := func() uint16 {
		v := binary.BigEndian.Uint16(b)
		b = b[2:]
		return v
	}
	typed := func() (Type, uint64) {
		t := Type(b[0])
		v := value(b[1:], t, ids)
		b = b[1+t.Size(ids):]
		return t, v
	}
	c.ID = id()
	b = b[4:]
	c.Trace = it.Trace
	c.Super, c.Loader, c.Signers, c.Domain = id(), id(), id(), id()
	b = b[2*ids+4:]
	c.Size = it.Count
	c.Constants, c.Statics, c.Fields = c.Constants[:0], c.Statics[:0], c.Fields[:0]
	for range u2() {
		k := Constant{Index: u2()}
		k.Type, k.Value = typed()
		c.Constants = append(c.Constants, k)
	}
	for range u2() {
		s := Static{Name: id()}
		s.Type, s.Value = typed()
		c.Statics = append(c.Statics, s)
	}
	for range u2() {
		f := Field{Name: id(), Type: Type(b[0])}
		if b = b[1:]; f.Type.Size(ids) == 0 {
			return r.damaged(it.Offset, "a class with a field of invalid type %d", uint8(f.Type))
		}
		c.Fields = append(c.Fields, f)
	}
	return nil
}

// Frame is a stack frame, as a TagFrame has it. The names are strings' identifiers.
type Frame struct {
	ID, Method, Signature, Source uint64
	Class                         uint32 // the class's serial number
	Line                          int32  // > 0: line; 0: none; -1: unknown; -2: compiled; -3: native
}

// Frame decodes the current Item, which is a TagFrame.
func (r *Reader) Frame() (Frame, error) {
	ids := r.header.IDSize
	b, err := r.fixed(4*ids + 8)
	if err != nil {
		return Frame{}, err
	}
	return Frame{ID(b, ids), ID(b[ids:], ids), ID(b[2*ids:], ids), ID(b[3*ids:], ids),
		binary.BigEndian.Uint32(b[4*ids:]), int32(binary.BigEndian.Uint32(b[4*ids+4:]))}, nil
}

// Trace is a stack trace, leaf first, as a TagTrace has it.
type Trace struct {
	Serial, Thread uint32
	Frames         []uint64
}

// Trace decodes the current Item, which is a TagTrace, into t, whose slice is
// used again.
func (r *Reader) Trace(t *Trace) error {
	ids := r.header.IDSize
	b, err := r.fixed(12)
	if err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(b[8:]))
	t.Serial, t.Thread, t.Frames = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), t.Frames[:0]
	if b = b[12:]; n > len(b)/ids {
		return r.damaged(r.item.Offset, "a stack trace of %d frames in %d bytes", n, len(b))
	}
	for i := range n {
		t.Frames = append(t.Frames, ID(b[i*ids:], ids))
	}
	return nil
}

// Thread is the start of a thread, as a TagStartThread has it.
type Thread struct {
	Serial, Trace           uint32
	ID, Name, Group, Parent uint64
}

// Thread decodes the current Item, which is a TagStartThread.
func (r *Reader) Thread() (Thread, error) {
	ids := r.header.IDSize
	b, err := r.fixed(4*ids + 8)
	if err != nil {
		return Thread{}, err
	}
	t := Thread{Serial: binary.BigEndian.Uint32(b), ID: ID(b[4:], ids)}
	b = b[4+ids:]
	t.Trace = binary.BigEndian.Uint32(b)
	t.Name, t.Group, t.Parent = ID(b[4:], ids), ID(b[4+ids:], ids), ID(b[4+2*ids:], ids)
	return t, nil
}

// fixed returns the body of a record that has at least n bytes.
func (r *Reader) fixed(n int) ([]byte, error) {
	b, err := r.Bytes()
	if err == nil && len(b) < n {
		err = r.damaged(r.item.Offset, "%s has %d bytes, its fields need %d", r.item.name(), len(b), n)
	}
	return b, err
}

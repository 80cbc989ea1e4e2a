package jvm

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf16"
)

const (
	// maxFlags bounds HotSpot's flags; there are some 1,500.
	maxFlags = 1 << 13
	// maxFields bounds the fields of a class, and maxSupers its superclasses.
	maxFields = 1 << 12
	maxSupers = 64
	// maxText bounds the characters to read of a string.
	maxText = 256
)

// oops describes references and object headers in the process's heap.
type oops struct {
	narrow, narrowClass  bool
	compact              bool // the class is in the object's first word (JEP 519)
	base, classBase      uint64
	shift, classShift    uint64
	classAt              uint64 // offset in an object, if the class is not in the first word
	constants, fields    uint64 // of an InstanceKlass
	super                uint64
	fieldCount           uint64 // of an InstanceKlass, up to 20; none: in the list
	arrayLength, content uint64 // of an array of bytes
	gc                   collector
}

// readOops reads the flags that describe the heap. It is called once.
func (r *Runtime) readOops() (*oops, error) {
	g := &lookup{s: r.s}
	o := &oops{constants: g.field("InstanceKlass._constants"), fields: g.field("InstanceKlass._fields", "InstanceKlass._fieldinfo_stream"),
		super: g.field("Klass._super"), fieldCount: g.maybe("InstanceKlass._java_fields_count"),
		classAt: g.field("oopDesc._metadata._compressed_klass")}
	static := func(names ...string) uint64 {
		for _, n := range names {
			if a := r.s.static[n]; a != 0 {
				return a
			}
		}
		return g.static(names[0])
	}
	base, shift := static("CompressedOops._narrow_oop._base", "CompressedOops._base"), static("CompressedOops._narrow_oop._shift", "CompressedOops._shift")
	cbase := static("CompressedKlassPointers._narrow_klass._base", "CompressedKlassPointers._base")
	cshift := static("CompressedKlassPointers._narrow_klass._shift", "CompressedKlassPointers._shift")
	if err := g.err(r.Major); err != nil {
		return nil, err
	}
	flags, err := (&Tables{Major: r.Major, s: r.s}).Flags(r.mem)
	if err != nil {
		return nil, err
	}
	on := map[string]bool{}
	for _, name := range []string{"UseCompressedOops", "UseCompressedClassPointers", "UseCompactObjectHeaders", "UseZGC", "ZGenerational", "UseShenandoahGC"} {
		if v, ok := flags[name]; ok {
			var b [1]byte
			if err := read(r.mem, b[:], v); err != nil {
				return nil, err
			}
			on[name] = b[0] != 0
		}
	}
	o.narrow, o.narrowClass, o.compact = on["UseCompressedOops"], on["UseCompressedClassPointers"], on["UseCompactObjectHeaders"]
	if o.gc, err = r.readCollector(on); err != nil {
		return nil, err
	}
	var err1, err2, err3, err4 error
	o.base, err1 = word(r.mem, base)
	o.classBase, err2 = word(r.mem, cbase)
	s, err3 := half(r.mem, shift)
	cs, err4 := half(r.mem, cshift)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	o.shift, o.classShift = uint64(s)&31, uint64(cs)&31
	switch { // arrayOopDesc in src/hotspot/share/oops/arrayOop.hpp
	case o.compact:
		o.arrayLength, o.content = 8, 12
	case o.narrowClass:
		o.arrayLength, o.content = 12, 16
	case r.Major >= 23:
		o.arrayLength, o.content = 16, 20
	default:
		o.arrayLength, o.content = 16, 24
	}
	return o, nil
}

// heapOf returns the description of the heap. It is constant while the process runs.
func (r *Runtime) heapOf() (*oops, error) {
	r.mu.Lock()
	o := r.oops
	r.mu.Unlock()
	if o != nil {
		return o, nil
	}
	o, err := r.readOops()
	if err != nil {
		return nil, fmt.Errorf("how objects look: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.oops = o
	return o, nil
}

// classNamed returns the class itself or the superclass with this internal name, or 0 if there is
// none.
func (r *Runtime) classNamed(o *oops, class uint64, name string) uint64 {
	for range maxSupers {
		p, err := word(r.mem, class+r.l.klassName)
		if err != nil {
			return 0
		}
		if s, err := r.symbol(p); err != nil {
			return 0
		} else if s == name {
			return class
		}
		if class, err = word(r.mem, class+o.super); err != nil || class == 0 {
			return 0
		}
	}
	return 0
}

// fieldOf returns the offset of a field with this name and type in the objects of a class, in
// bytes. It does not search superclasses.
func (r *Runtime) fieldOf(o *oops, class uint64, name, typ string) (uint64, error) {
	key := fmt.Sprintf("%x.%s", class, name)
	r.mu.Lock()
	off, ok := r.offsets[key]
	r.mu.Unlock()
	if ok {
		return off, nil
	}
	off, err := r.readField(o, class, name, typ)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.offsets) >= maxKept {
		clear(r.offsets)
	}
	r.offsets[key] = off
	return off, nil
}

func (r *Runtime) readField(o *oops, class uint64, name, typ string) (uint64, error) {
	defer r.firstLook()()
	pool, err := word(r.mem, class+o.constants)
	if err != nil {
		return 0, err
	}
	n, err := half(r.mem, pool+r.l.poolLength)
	if err != nil {
		return 0, err
	}
	is := func(i uint32, want string) bool {
		if i == 0 || i >= n {
			return false
		}
		p, err := word(r.mem, pool+r.l.pool+8*uint64(i))
		if err != nil {
			return false
		}
		s, err := r.symbol(p &^ 1)
		return err == nil && s == want
	}
	list, err := word(r.mem, class+o.fields)
	if err != nil {
		return 0, err
	}
	size, err := half(r.mem, list) // Array: length, then from offset 4 on the elements
	if err != nil {
		return 0, err
	}
	if o.fieldCount != none {
		var cb [2]byte
		if err := read(r.mem, cb[:], class+o.fieldCount); err != nil {
			return 0, err
		}
		count := min(uint64(u16(cb[:], 0)), maxFields, uint64(size)/6)
		b := make([]byte, 12*count)
		if count > 0 {
			if err := read(r.mem, b, list+4); err != nil {
				return 0, err
			}
		}
		for i := uint64(0); i < count; i++ { // src/hotspot/share/oops/fieldInfo.hpp of 17
			f := b[12*i:]
			const isOffset = 1 // tag in the lowest two bits
			packed := uint64(u16(f, 8)) | uint64(u16(f, 10))<<16
			if packed&3 == isOffset && is(uint32(u16(f, 2)), name) && is(uint32(u16(f, 4)), typ) {
				return packed >> 2, nil
			}
		}
		return 0, fmt.Errorf("no field %s", name)
	}
	b := make([]byte, min(size, 16*maxFields))
	if len(b) > 0 {
		if err := read(r.mem, b, list+4); err != nil {
			return 0, err
		}
	}
	in := stream{b: b}
	count := min(in.next(), maxFields)
	in.next() // fields added by the virtual machine follow
	for range count {
		// src/hotspot/share/oops/fieldInfo.hpp of 21 and 25.
		const initialized, generic, contended = 1 << 0, 1 << 2, 1 << 4
		nameIndex, typIndex, off := in.next(), in.next(), in.next()
		in.next() // access
		flags := in.next()
		for _, bit := range [...]uint32{initialized, generic, contended} {
			if flags&bit != 0 {
				in.next()
			}
		}
		if in.bad {
			break
		}
		if is(nameIndex, name) && is(typIndex, typ) {
			return uint64(off), nil
		}
	}
	return 0, fmt.Errorf("no field %s", name)
}

// text reads a java.lang.String.
func (v *look) text(addr uint64) string {
	class := v.class(addr)
	if v.err != nil {
		return ""
	}
	if class == 0 || v.r.classNamed(v.o, class, "java/lang/String") != class {
		v.err = fmt.Errorf("no string at %#x", addr)
		return ""
	}
	array := v.ref(addr + v.field(class, "value", "[B"))
	wide := v.half(addr+v.field(class, "coder", "B")) & 1
	n := v.half(array + v.o.arrayLength)
	if v.err == nil && n > math.MaxInt32 {
		v.err = fmt.Errorf("a string of %d bytes", n)
	}
	if v.err != nil {
		return ""
	}
	b := make([]byte, min(n, 2*maxText)&^wide)
	if len(b) == 0 {
		return ""
	}
	if v.err = read(v.r.mem, b, array+v.o.content); v.err != nil {
		return ""
	}
	if wide == 0 { // Latin-1
		out := make([]rune, len(b))
		for i, c := range b {
			out[i] = rune(c)
		}
		return string(out[:min(len(out), maxText)])
	}
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = u16(b, uint64(2*i))
	}
	return string(utf16.Decode(u))
}

// ThreadName returns the name of a Java thread.
func (r *Runtime) ThreadName(thread uint64) (string, error) {
	v, err := r.look()
	if err != nil {
		return "", err
	}
	obj := v.handle(thread + r.l.threadObj)
	if v.err == nil && obj == 0 {
		return "", fmt.Errorf("no object of the thread at %#x", thread)
	}
	// A collector may move the string during the read: accept it only if it is a string before and
	// after.
	at := v.threadFields(obj).name
	s := v.ref(obj + at)
	if v.err == nil && s == 0 {
		return "", fmt.Errorf("the thread has no name")
	}
	return v.text(s), v.err
}

// NamesByTID returns the names of all Java threads, by the TIDs that the process itself sees. Names
// that cannot be read are missing.
func (r *Runtime) NamesByTID() map[int32]string {
	all, err := r.Threads()
	if err != nil {
		return nil
	}
	out := make(map[int32]string, len(all))
	for _, t := range all {
		if name, err := r.ThreadName(t.Addr); err == nil && name != "" {
			out[t.TID] = name
		}
	}
	return out
}

package hotspot

import (
	"fmt"

	"github.com/sliverprof/sliver/heap/hprof"
)

// Most class loaders, classes, fields of a class, and classes above one that are read.
const (
	maxLoaders = 1 << 20
	maxClasses = 1 << 22
	maxFields  = 1 << 14
	maxSupers  = 256
	maxBad     = 16 // classes that cannot be read, and 1 % of all
)

// Kind says how the objects of a class look.
type Kind uint8

const (
	KindInstance   Kind = iota
	KindMirror          // java.lang.Class: statics of the class follow the fields
	KindChunk           // jdk.internal.vm.StackChunk: frames of a virtual thread follow
	KindObjects         // array of references
	KindPrimitives      // array of primitive values
)

// Field is a field that Java code declared.
type Field struct {
	Name   string
	Type   hprof.Type
	Offset uint32 // in the object, for a static field in the class's mirror
}

// Class is a class or an array's class.
type Class struct {
	Addr    uint64 // of its Klass
	Name    string // as the virtual machine has it: java/lang/String, [I
	Kind    Kind
	Mirror  uint64 // its java.lang.Class; 0 for a dormant class of the archive, whose objects do not count
	Loader  uint64 // the class loader; 0: the boot loader
	Super   *Class
	Element hprof.Type // of an array
	Loaded  bool       // past "allocated": it has fields
	Hidden  bool       // its loader data belongs to the class alone
	Fields  []Field    // that the class declares itself, in the order of HotSpot's dumps
	Statics []Field
	// Resolved is the array of the constants that were resolved, which the class keeps alive; 0: there is none.
	Resolved uint64

	Count, Bytes uint64 // of its objects, after Heap.Scan

	number int32 // in Heap.Classes
	super  uint64
	layout int32
	bottom uint64   // of an array: the class of its innermost elements
	all    []Field  // with those of the classes above
	copies []move   // how those of all come into a record
	refs   []uint32 // offsets of those of all that are references
	end    uint64   // of the last of all, in the object
	size   uint32   // of an instance's fields in a dump
	fixed  uint64   // the size of each object; 0: not the same for all, or not known
	unit   uint32   // the bytes of an array's element in a dump
	plain  bool     // an instance or array of which nothing but its head and its size matters to a walk
	weak   uint8    // of a class derived from java.lang.ref.Reference, while marking: how it holds its referent
}

// classOffsets are where fields of HotSpot's class structures are.
type classOffsets struct {
	cldNext, cldKlasses, cldLoader, cldHidden                          uint64
	next, name, layout, mirror, super                                  uint64
	state, constants, fields, count17                                  uint64
	poolCache, poolSize, poolLength, cacheResolved, symLength, symBody uint64
	bottom                                                             uint64
	loaded                                                             int64
}

// classes reads all classes.
func (v *VM) classes() (map[uint64]*Class, error) {
	f := v.field
	head := v.static("ClassLoaderDataGraph._head")
	o := classOffsets{
		cldNext: f("ClassLoaderData._next"), cldKlasses: f("ClassLoaderData._klasses"), cldLoader: f("ClassLoaderData._class_loader"),
		cldHidden: f("ClassLoaderData._has_class_mirror_holder"),
		next:      f("Klass._next_link"), name: f("Klass._name"), layout: f("Klass._layout_helper"), mirror: f("Klass._java_mirror"), super: f("Klass._super"),
		state: f("InstanceKlass._init_state"), constants: f("InstanceKlass._constants"), fields: f("InstanceKlass._fields", "InstanceKlass._fieldinfo_stream"),
		poolCache: f("ConstantPool._cache"), poolLength: f("ConstantPool._length"), cacheResolved: f("ConstantPoolCache._resolved_references"),
		symLength: f("Symbol._length"), symBody: f("Symbol._body", "Symbol._body[0]"), bottom: f("ObjArrayKlass._bottom_klass"),
	}
	if v.Major == 17 {
		o.count17 = f("InstanceKlass._java_fields_count")
	}
	var ok bool
	if o.poolSize, ok = v.t.Size("ConstantPool"); !ok {
		v.missing = append(v.missing, "the size of ConstantPool")
	}
	if o.loaded, ok = v.t.Constant("InstanceKlass::loaded"); !ok {
		v.missing = append(v.missing, "InstanceKlass::loaded")
	}
	if err := v.lacks(); err != nil {
		return nil, err
	}
	bad, all := 0, map[uint64]*Class{}
	cld, err := v.mem.word(head)
	if err != nil {
		return nil, fmt.Errorf("class loaders: %w", err)
	}
	for n := 0; cld != 0; n++ {
		if n == maxLoaders {
			return nil, fmt.Errorf("class loaders: more than %d", maxLoaders)
		}
		loader := v.mem.handle(cld + o.cldLoader)
		hidden, _ := v.mem.byte(cld + o.cldHidden)
		k, err := v.mem.word(cld + o.cldKlasses)
		if err != nil {
			return nil, fmt.Errorf("classes of a loader at %#x: %w", cld, err)
		}
		for k != 0 && all[k] == nil {
			if len(all) == maxClasses {
				return nil, fmt.Errorf("more than %d classes", maxClasses)
			}
			c, err := v.class(&o, k)
			if err != nil {
				// One that is being made has no objects yet.
				if bad++; bad > maxBad+len(all)/100 {
					return nil, err
				}
				c = &Class{Addr: k, Name: "?"}
			}
			c.Loader, c.Hidden = loader, hidden != 0
			all[k] = c
			if k, err = v.mem.word(k + o.next); err != nil {
				return nil, fmt.Errorf("class at %#x: %w", c.Addr, err)
			}
		}
		if cld, err = v.mem.word(cld + o.cldNext); err != nil {
			return nil, fmt.Errorf("class loaders: %w", err)
		}
	}
	for _, c := range all {
		c.Super = all[c.super]
	}
	for _, c := range all {
		c.settle(v)
	}
	return all, nil
}

// settle derives how objects of the class look from its fields and those of the classes above.
func (c *Class) settle(v *VM) {
	for k, n := c, 0; k != nil && n < maxSupers; k, n = k.Super, n+1 {
		c.all = append(c.all, k.Fields...)
	}
	for _, f := range c.all {
		if f.Type == hprof.TypeObject {
			c.refs = append(c.refs, f.Offset)
		}
		c.copies = append(c.copies, v.move(f))
		c.size += uint32(f.Type.Size(idBytes))
		c.end = max(c.end, uint64(f.Offset)+v.size(f.Type))
	}
	switch {
	case c.layout < 0:
		c.unit = uint32(c.Element.Size(idBytes))
	case c.Kind == KindInstance && c.layout >= 8:
		c.fixed = up(uint64(c.layout&^7), v.align)
	}
}

// class reads one Klass.
func (v *VM) class(o *classOffsets, k uint64) (*Class, error) {
	c := &Class{Addr: k}
	fail := func(err error) (*Class, error) { return nil, fmt.Errorf("class at %#x: %w", k, err) }
	sym, err := v.mem.word(k + o.name)
	if err != nil {
		return fail(err)
	}
	if c.Name, err = v.symbol(o, sym); err != nil {
		return fail(err)
	}
	lh, err := v.mem.half(k + o.layout)
	if err != nil {
		return fail(err)
	}
	if c.super, err = v.mem.word(k + o.super); err != nil {
		return fail(err)
	}
	c.layout = int32(lh)
	c.Mirror = v.mem.handle(k + o.mirror)
	if c.layout < 0 { // src/hotspot/share/oops/klass.hpp: tag, header bytes, element type, log2 of its size
		c.Loaded = true
		const tagObjects = -2
		if c.layout>>30 == tagObjects {
			c.Kind, c.Element = KindObjects, hprof.TypeObject
			if c.bottom, err = v.mem.word(k + o.bottom); err != nil {
				return fail(err)
			}
		} else {
			c.Kind, c.Element = KindPrimitives, hprof.Type(lh>>8&255) // HotSpot's BasicType has the numbers of HPROF
			if c.Element < hprof.TypeBoolean || c.Element > hprof.TypeLong {
				return fail(fmt.Errorf("an array of type %d", c.Element))
			}
		}
		return c, nil
	}
	switch c.Name {
	case "java/lang/Class":
		c.Kind = KindMirror
	case "jdk/internal/vm/StackChunk":
		c.Kind = KindChunk
	}
	state, err := v.mem.byte(k + o.state)
	if err != nil {
		return fail(err)
	}
	if c.Loaded = int64(state) >= o.loaded; c.Loaded {
		if err := v.fields(o, c); err != nil {
			return fail(err)
		}
	}
	return c, nil
}

func (v *VM) symbol(o *classOffsets, addr uint64) (string, error) {
	var b [2]byte
	if addr == 0 {
		return "", fmt.Errorf("no name")
	}
	if err := v.mem.read(b[:], addr+o.symLength); err != nil {
		return "", err
	}
	s := make([]byte, le16(b[:]))
	if err := v.mem.read(s, addr+o.symBody); err != nil {
		return "", err
	}
	return string(s), nil
}

// fields reads the fields that Java code declared (src/hotspot/share/oops/fieldInfo.hpp and
// fieldStreams.hpp of 17, 21 and 25), and the resolved constants.
func (v *VM) fields(o *classOffsets, c *Class) error {
	pool, err := v.mem.word(c.Addr + o.constants)
	if err != nil || pool == 0 {
		return err
	}
	if cache, err := v.mem.word(pool + o.poolCache); err == nil && cache != 0 {
		c.Resolved = v.mem.handle(cache + o.cacheResolved)
	}
	f := fieldReader{v: v, o: o, c: c, pool: pool}
	if f.poolLength, err = v.mem.half(pool + o.poolLength); err != nil {
		return err
	}
	list, err := v.mem.word(c.Addr + o.fields)
	if err != nil || list == 0 {
		return err
	}
	size, err := v.mem.half(list)
	if err != nil {
		return err
	}
	if v.Major == 17 {
		return f.array(list, size)
	}
	return f.stream(list, size)
}

// A fieldReader reads the fields of one class.
type fieldReader struct {
	v          *VM
	o          *classOffsets
	c          *Class
	pool       uint64 // address of the constant pool
	poolLength uint32
}

const accStatic = 8 // JVM_ACC_STATIC

// array reads the u2 array of version 17: size u2 at list+4, of which six are a field.
func (r *fieldReader) array(list uint64, size uint32) error {
	var b [2]byte
	if err := r.v.mem.read(b[:], r.c.Addr+r.o.count17); err != nil {
		return err
	}
	n := min(uint32(le16(b[:])), maxFields, size/6)
	all := make([]byte, 12*n)
	if err := r.v.mem.read(all, list+4); err != nil {
		return err
	}
	for i := int(n) - 1; i >= 0; i-- { // its dumps have them from the last to the first
		f := all[12*i:]
		packed := uint32(le16(f[8:])) | uint32(le16(f[10:]))<<16
		if err := r.add(uint32(le16(f[2:])), uint32(le16(f[4:])), packed>>2, le16(f)&accStatic != 0); err != nil {
			return err
		}
	}
	return nil
}

// stream reads the compressed stream of version 21 and later: size bytes at list+4.
func (r *fieldReader) stream(list uint64, size uint32) error {
	b := make([]byte, min(size, 32*maxFields))
	if err := r.v.mem.read(b, list+4); err != nil {
		return err
	}
	in := unsigned5{b: b}
	n := min(in.next(), maxFields)
	in.next() // the fields that the virtual machine adds follow
	for range n {
		const initialized, injected, generic, contended = 1 << 0, 1 << 1, 1 << 2, 1 << 4
		nameAt, sigAt, offset, access, flags := in.next(), in.next(), in.next(), in.next(), in.next()
		for _, bit := range [...]uint32{initialized, generic, contended} {
			if flags&bit != 0 {
				in.next()
			}
		}
		if in.bad {
			return fmt.Errorf("its list of fields ends too soon")
		}
		if flags&injected != 0 {
			continue
		}
		if err := r.add(nameAt, sigAt, offset, access&accStatic != 0); err != nil {
			return err
		}
	}
	return nil
}

// add adds a field whose name and signature are constants of the pool.
func (r *fieldReader) add(nameAt, sigAt, offset uint32, static bool) error {
	name, err := r.constant(nameAt)
	if err != nil {
		return err
	}
	sig, err := r.constant(sigAt)
	if err != nil {
		return err
	}
	f := Field{Name: name, Offset: offset}
	if f.Type = typeOf(sig); f.Type == 0 {
		return fmt.Errorf("field %s of type %q", name, sig)
	}
	if static {
		r.c.Statics = append(r.c.Statics, f)
	} else {
		r.c.Fields = append(r.c.Fields, f)
	}
	return nil
}

// constant returns the symbol with number i in the pool.
func (r *fieldReader) constant(i uint32) (string, error) {
	if i == 0 || i >= r.poolLength {
		return "", fmt.Errorf("constant %d of %d", i, r.poolLength)
	}
	sym, err := r.v.mem.word(r.pool + r.o.poolSize + 8*uint64(i))
	if err != nil {
		return "", err
	}
	return r.v.symbol(r.o, sym&^1)
}

func typeOf(sig string) hprof.Type {
	if sig == "" {
		return 0
	}
	switch sig[0] {
	case 'L', '[':
		return hprof.TypeObject
	case 'Z':
		return hprof.TypeBoolean
	case 'C':
		return hprof.TypeChar
	case 'F':
		return hprof.TypeFloat
	case 'D':
		return hprof.TypeDouble
	case 'B':
		return hprof.TypeByte
	case 'S':
		return hprof.TypeShort
	case 'I':
		return hprof.TypeInt
	case 'J':
		return hprof.TypeLong
	}
	return 0
}

// unsigned5 reads HotSpot's compressed numbers (src/hotspot/share/utilities/unsigned5.hpp).
type unsigned5 struct {
	b   []byte
	bad bool
}

func (s *unsigned5) next() (v uint32) {
	for i := range uint(5) {
		if len(s.b) == 0 || s.b[0] == 0 {
			s.bad = true
			return 0
		}
		c := uint32(s.b[0])
		s.b = s.b[1:]
		if v += (c - 1) << (6 * i); c < 192 {
			break
		}
	}
	return v
}

package hprof

const (
	// maxSymbols bounds the kinds of items that a model distinguishes: tags, with the
	// class of instances and object arrays and the type of primitive arrays.
	maxSymbols = 1 << 16
	// maxSlots bounds the fields that have predictions of their own.
	maxSlots = 1 << 16
	// maxModelClasses bounds the classes whose fields are kept.
	maxModelClasses = 1 << 17
	// maxModelFields bounds these fields.
	maxModelFields = 1 << 20
	// ownSlots is after how many instances of a class its fields have columns of
	// their own. Columns of few values cost more than they save.
	ownSlots = 4
	// maxPiece is how much of a body is coded at once. A multiple of 8.
	maxPiece = 64 << 10
)

// kind of an item of a packed dump, as op says.
const (
	opHeader    = 0x50 // {version, u4, u8}
	opBare      = 0x52 // a SubPrimitiveArray whose values were cut out
	opKept      = 0x53 // one with values in such a dump
	opRecord    = 0x60 // + tag: records 0x01 to 0x0E
	opOther     = 0x70 // a record of another tag
	opSegment   = 0x71
	opDumpEnd   = 0x72
	opUnmodeled = 0x00 // bytes as they are
)

// symbolKey is what makes a symbol.
type symbolKey struct {
	op  uint8
	typ Type
	ref uint64
}

// symbol is a kind of item.
type symbol struct {
	symbolKey
	number  uint32
	seen    int    // items of this kind, up to ownSlots
	layout  []Type // of an instance's body, nil while it is not known
	epoch   uint32 // of the classes when the layout was looked up
	slots   []*slot
	count   slot
	content [8]column // values of arrays, by byte where they have several
	step    uint64    // of an instance: how far behind it the next object was
	base    uint64    // of an array: size of its header in the heap
	scale   uint64    // bytes of an element in the heap
}

// model predicts the items of a dump. It is the same on both sides: item codes an
// item while packing and fills it in while unpacking.
type model struct {
	columns
	ids      int
	symbols  map[symbolKey]*symbol
	list     []*symbol
	slots    int
	follow   [1 << 14]uint32 // symbol + 1 that came after the last two, by their hash
	after    [1 << 12]uint32 // after the last one
	last     [2]uint32
	classes  map[uint64]*modelClass
	fields   int
	epoch    uint32
	shared   [12]*slot // of classes of few instances, by type
	plane    [8]column
	ranks    [4]column
	nextID   uint64 // where the next object is expected
	previous *symbol
	lastID   uint64
	records
}

// modelClass is what a model knows of a class.
type modelClass struct {
	super  uint64
	fields []Type
}

// records are the slots of items that are not objects.
type records struct {
	symCode, symLow, symHigh, symRaw column
	micros, length, trace, stringID  slot
	serial, loaded, loadName         slot
	class, super, loader, reserved   slot
	size, counts, names, statics     slot
	root                             [256]slot
	rootA, rootB                     [256]slot
	prefix, suffix, text, other      column
	types, header                    column
	string                           []byte            // the last string
	order                            map[uint64]uint64 // which class followed which, where that was last seen
	nameOrder                        map[uint64]uint64 // likewise of names
	topName                          uint64
	loadedSet, nameSet               idSet
}

func newModel(packing bool) *model {
	m := &model{columns: columns{packing: packing, block: 1}, symbols: map[symbolKey]*symbol{}, classes: map[uint64]*modelClass{}}
	for i := range m.shared {
		m.shared[i] = newSlot()
	}
	for i := range m.plane {
		m.plane[i].group = groupPlane0 + group(i)
	}
	for i := range m.ranks {
		m.ranks[i].group = groupPlane0 + group(i)
	}
	r := &m.records
	r.symCode.group, r.symLow.group, r.symHigh.group, r.symRaw.group = groupSymbols, groupSmall, groupSmall, groupOther
	for _, s := range []*slot{&r.micros, &r.length, &r.trace, &r.stringID, &r.serial, &r.loaded, &r.loadName, &r.class, &r.super,
		&r.loader, &r.reserved, &r.size, &r.counts, &r.names, &r.statics} {
		s.group(groupCodes)
	}
	for i := range r.root {
		for _, s := range []*slot{&r.root[i], &r.rootA[i], &r.rootB[i]} {
			s.group(groupCodes)
		}
	}
	r.prefix.group, r.suffix.group, r.text.group, r.other.group = groupSmall, groupSmall, groupText, groupOther
	r.types.group, r.header.group = groupCodes, groupOther
	r.order, r.nameOrder = map[uint64]uint64{}, map[uint64]uint64{}
	return m
}

// symbol codes which kind of item comes, by what came after the last ones before.
func (m *model) symbol(k symbolKey) *symbol {
	second := &m.follow[(m.last[0]*0x9E3779B1^m.last[1]*0x85EBCA6B)>>18]
	first := &m.after[m.last[0]*0x9E3779B1>>20]
	const (
		bySecond = iota
		byFirst
		known
		fresh
	)
	var s *symbol
	code := byte(fresh)
	if m.packing {
		if s = m.symbols[k]; s != nil {
			switch s.number + 1 {
			case *second:
				code = bySecond
			case *first:
				code = byFirst
			default:
				code = known
			}
		}
	}
	switch code = m.u1(&m.symCode, code); code {
	case bySecond, byFirst:
		n := *second
		if code == byFirst {
			n = *first
		}
		s = m.numbered(n - 1)
	case known:
		var n uint32
		if s != nil {
			n = s.number
		}
		low, high := m.u1(&m.symLow, byte(n)), m.u1(&m.symHigh, byte(n>>8))
		s = m.numbered(uint32(low) | uint32(high)<<8)
	default:
		k.op, k.typ = m.u1(&m.symRaw, k.op), Type(m.u1(&m.symRaw, byte(k.typ)))
		if k.op == SubInstance || k.op == SubObjectArray {
			k.ref = m.raw(&m.symRaw, k.ref, 8)
		}
		s = m.fresh(k)
	}
	*second, *first = s.number+1, s.number+1
	m.last[1], m.last[0] = m.last[0], s.number
	return s
}

func (m *model) numbered(n uint32) *symbol {
	if int(n) < len(m.list) {
		return m.list[n]
	}
	m.fail()
	return m.fresh(symbolKey{op: opUnmodeled})
}

func (m *model) fresh(k symbolKey) *symbol {
	if s := m.symbols[k]; s != nil {
		return s
	}
	s := &symbol{symbolKey: k, number: uint32(len(m.list)), base: 16, scale: uint64(max(1, k.typ.Size(m.ids)))}
	if k.op == SubObjectArray {
		s.scale = 4
	}
	s.count.group(groupSmall)
	for i := range s.content {
		s.content[i].group = groupWide
		if k.typ.Size(8) == 1 {
			s.content[i].group = groupBytes
		}
	}
	if len(m.list) < maxSymbols {
		m.list = append(m.list, s)
		m.symbols[k] = s
	} else {
		s.number = 0 // it has no number: each comes as fresh
	}
	return s
}

// rec is an item between a dump and its packed form: the fields of its head, and a
// body that is coded in pieces after it.
type rec struct {
	op, tag            uint8 // tag: of a record that op does not say
	typ                Type
	micros             uint32
	length             uint32 // of a record
	id, ref            uint64
	a, b, trace, count uint32 // a, b: numbers of a root or a loaded class
	version            []byte // of a header
	millis             uint64
	idSize             uint32
	class              Class
	reserved           [2]uint64
	body               int64 // bytes
	text               bool  // the body is a string record's
	sym                *symbol
	inline             []byte // all of a short string record's body, which is coded with the head
	at                 int64  // bytes of the body that have been coded
	valid              bool
}

// head codes an item without its body.
func (m *model) head(x *rec) {
	k := symbolKey{op: x.op}
	switch x.op {
	case SubInstance, SubObjectArray:
		k.ref = x.ref
	case SubPrimitiveArray, SubPrimitiveBare, opBare, opKept:
		k.typ = x.typ
	}
	s := m.symbol(k)
	x.sym, x.op, x.at, x.body = s, s.op, 0, 0
	if m.ids == 0 && x.op != opHeader {
		m.fail()
		return
	}
	switch op := x.op; {
	case op == opHeader:
		m.headHeader(x)
	case op == SubInstance || op == SubObjectArray || op == SubPrimitiveArray || op == SubPrimitiveBare || op == opBare || op == opKept:
		m.headObject(x, s)
	case op == SubClass:
		m.headClass(x)
	case op > opRecord && op <= opRecord+TagControl || op == opOther || op == opSegment || op == opDumpEnd:
		m.headRecord(x)
	case subHead(op, m.ids) != 0:
		m.headRoot(x)
	default:
		m.fail()
	}
	x.valid = m.err == nil
}

func (m *model) headHeader(x *rec) {
	n := int(m.u1(&m.header, byte(len(x.version))))
	if !m.packing {
		x.version = make([]byte, n)
	}
	m.bytes(&m.header, x.version)
	x.idSize = uint32(m.raw(&m.header, uint64(x.idSize), 4))
	x.millis = m.raw(&m.header, x.millis, 8)
	if x.idSize != 4 && x.idSize != 8 {
		m.fail()
		return
	}
	m.ids = int(x.idSize)
	m.loadedSet.reset()
	m.nameSet.reset()
}

// headObject codes an instance or array.
func (m *model) headObject(x *rec, s *symbol) {
	x.ref, x.typ = s.ref, s.typ
	slot := &m.root[SubInstance]
	x.id = m.near(slot, x.id, m.nextID)
	m.learn(x.id)
	x.trace = uint32(m.num(&m.records.trace, uint64(x.trace), 4))
	if s.op == SubInstance {
		x.count = uint32(m.num(&s.count, uint64(x.count), 4))
	} else {
		x.count = uint32(m.small(&s.count.codes, uint64(x.count)))
	}
	n := uint64(x.count)
	switch s.op {
	case SubInstance:
		x.body = int64(n)
		m.nextID = x.id + s.step
	case SubObjectArray:
		x.body = int64(n) * int64(m.ids)
		m.nextID = x.id + s.extent(n)
	case SubPrimitiveArray, opKept:
		x.body = int64(n) * int64(x.typ.Size(m.ids))
		fallthrough
	default:
		if size := x.typ.Size(m.ids); size == 0 || x.typ == TypeObject {
			m.fail()
		}
		m.nextID = x.id + s.extent(n)
	}
	s.count.last, m.previous, m.lastID = n, s, x.id
}

// extent is the size in the heap of an array of n elements.
func (s *symbol) extent(n uint64) uint64 { return (s.base + n*s.scale + 7) &^ 7 }

// learn compares where an object is with where it was expected.
func (m *model) learn(id uint64) {
	s := m.previous
	if s == nil || id == m.nextID {
		return
	}
	d, n := id-m.lastID, s.count.last
	if s.op == SubInstance {
		if d < 1<<16 {
			s.step = d
		}
		return
	}
	scales := [...]uint64{s.scale, 4, 8}
	if s.op != SubObjectArray {
		scales[1], scales[2] = s.scale, s.scale
	}
	for _, scale := range scales {
		for _, base := range [...]uint64{16, 12, 24, 20} {
			if (base+n*scale+7)&^7 == d {
				s.base, s.scale = base, scale
				return
			}
		}
	}
}

// define keeps a class's fields for its instances.
func (m *model) define(c *Class) {
	k := m.classes[c.ID]
	if k == nil {
		if len(m.classes) >= maxModelClasses || m.fields+len(c.Fields) > maxModelFields {
			return
		}
		k = &modelClass{}
		m.classes[c.ID] = k
	} else {
		if m.fields+len(c.Fields) > maxModelFields {
			return
		}
		m.epoch++
	}
	m.fields += len(c.Fields) - len(k.fields)
	k.super, k.fields = c.Super, make([]Type, len(c.Fields))
	for i, f := range c.Fields {
		k.fields[i] = f.Type
	}
}

// resolve looks up the layout of an instance's body of n bytes.
func (m *model) resolve(s *symbol, n int64) bool {
	if s.layout != nil && s.epoch == m.epoch {
		return s.size(m.ids) == n
	}
	s.layout, s.slots = nil, nil
	var layout []Type
	var sum int64
	at := s.ref
	for depth := 0; at != 0; depth++ {
		k := m.classes[at]
		if k == nil || depth > maxDepth || len(layout) > maxSlots {
			return false
		}
		for _, t := range k.fields {
			layout = append(layout, t)
			sum += int64(t.Size(m.ids))
		}
		at = k.super
	}
	if sum != n || sum == 0 || m.slots+len(layout) > maxSlots {
		return false
	}
	m.slots += len(layout)
	s.layout, s.epoch = layout, m.epoch
	return true
}

func (s *symbol) size(ids int) (n int64) {
	for _, t := range s.layout {
		n += int64(t.Size(ids))
	}
	return n
}

// piece returns how many bytes of the body are coded next.
func (x *rec) piece() int { return int(min(x.body-x.at, maxPiece)) }

// content codes the next piece of the body, all of b.
func (m *model) content(x *rec, b []byte) {
	s := x.sym
	whole := x.at == 0 && int64(len(b)) == x.body
	switch {
	case x.op == SubInstance && whole && m.resolve(s, x.body):
		m.instance(x, s, b)
	case x.op == SubObjectArray:
		if len(s.slots) == 0 {
			s.slots = []*slot{newSlot()}
		}
		for i := 0; i+m.ids <= len(b); i += m.ids {
			PutID(b[i:], m.ids, m.ref(s.slots[0], m.in(b[i:], m.ids), x.id))
		}
	case x.op == SubPrimitiveArray || x.op == opKept:
		mixer := m.mixer
		if x.body > mixedArray {
			m.mixer = nil
		}
		m.values(s, x.typ, b)
		m.mixer = mixer
	case x.text && m.mixer != nil:
		for i := range b {
			b[i] = m.mixer.textByte(groupText, b[i])
		}
	case x.text:
		m.string = m.shareText(b, whole)
	default:
		m.bytes(&m.other, b)
	}
	x.at += int64(len(b))
}

func (m *model) instance(x *rec, s *symbol, b []byte) {
	own := s.seen >= ownSlots
	if !own {
		s.seen++
	} else if s.slots == nil {
		s.slots = make([]*slot, len(s.layout))
		for i := range s.slots {
			s.slots[i] = newSlot()
		}
	}
	at := 0
	for i, t := range s.layout {
		k := m.shared[t%Type(len(m.shared))]
		if own {
			k = s.slots[i]
		}
		n := t.Size(m.ids)
		m.value(k, b[at:at+n], t, x.id)
		at += n
	}
}

// values codes the elements of a primitive array.
func (m *model) values(s *symbol, t Type, b []byte) {
	size := t.Size(m.ids)
	switch {
	case m.mixer != nil && (t == TypeChar || t == TypeByte):
		m.mixer.begins()
		for i := range b {
			if size == 2 && i&1 == 0 {
				b[i] = m.mixer.columnByte(&s.content[0], b[i])
			} else {
				b[i] = m.mixer.textByte(s.content[0].group, b[i])
			}
		}
		return
	case size <= 1:
		m.bytes(&s.content[0], b)
		return
	}
	for i := 0; i+size <= len(b); i += size {
		for k := range size {
			b[i+k] = m.u1(&s.content[k], b[i+k])
		}
	}
}

// shareText codes a string: how much it shares with the last one, and the rest.
func (m *model) shareText(b []byte, whole bool) []byte {
	n := 0
	if m.packing && whole {
		for n < len(b) && n < len(m.string) && n < maxPrefix && b[n] == m.string[n] {
			n++
		}
		if n < minPrefix {
			n = 0
		}
	}
	n = int(m.u1(&m.prefix, byte(n)))
	if n > len(b) || n > len(m.string) {
		m.fail()
		return nil
	}
	copy(b, m.string[:n])
	m.bytes(&m.records.text, b[n:])
	return append(m.string[:0], b[:min(len(b), maxPrefix)]...)
}

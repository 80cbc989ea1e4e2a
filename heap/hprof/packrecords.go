package hprof

import (
	"bytes"
	"math/bits"
	"slices"
)

// headRoot codes a root or a heap's name.
func (m *model) headRoot(x *rec) {
	op := x.op
	if op == SubHeapInfo {
		x.a = uint32(m.num(&m.rootA[op], uint64(x.a), 4))
		x.ref = m.near(&m.root[op], x.ref, m.root[op].last)
		return
	}
	s := &m.root[op]
	if op == SubRootSticky {
		x.id = m.ranked(s, &m.loadedSet, x.id, m.order[s.last])
	} else {
		x.id = m.near(s, x.id, s.last)
	}
	switch n := subHead(op, m.ids) - 1 - m.ids; {
	case op == SubRootJNIGlobal:
		x.ref = m.near(&m.rootA[op], x.ref, m.rootA[op].last)
	case n >= 4:
		x.a = uint32(m.num(&m.rootA[op], uint64(x.a), 4))
		if n == 8 {
			x.b = uint32(m.num(&m.rootB[op], uint64(x.b), 4))
		}
	}
}

// headRecord codes a record's head.
func (m *model) headRecord(x *rec) {
	if x.op == opOther {
		x.tag = m.u1(&m.other, x.tag)
	}
	x.micros = uint32(m.num(&m.micros, uint64(x.micros), 4))
	switch x.op {
	case opRecord + TagString:
		x.id = m.near(&m.stringID, x.id, m.stringID.last)
		m.nameSet.add(x.id)
		m.string = m.string[:min(len(m.string), maxPrefix)]
		x.text = true
		if m.mixer != nil && m.headString(x) {
			return
		}
		x.length = uint32(m.small(&m.suffix, uint64(x.length)))
		x.body = int64(x.length) - int64(m.ids)
	case opRecord + TagLoadClass:
		x.a = uint32(m.num(&m.serial, uint64(x.a), 4))
		pred, ok := m.order[m.loaded.last]
		if !ok {
			pred = m.loaded.last
		}
		before := m.loaded.last
		x.id = m.near(&m.loaded, x.id, pred)
		m.follows(m.order, before, x.id)
		m.loadedSet.add(x.id)
		x.trace = uint32(m.num(&m.records.trace, uint64(x.trace), 4))
		x.ref = m.name(&m.loadName, x.ref)
		x.length = uint32(m.num(&m.length, uint64(x.length), 4))
		x.body = int64(x.length) - int64(8+2*m.ids)
	case opSegment, opRecord + TagHeapDump:
		x.length = uint32(m.small(&m.counts.values, uint64(x.length)))
	default:
		x.length = uint32(m.small(&m.counts.values, uint64(x.length)))
		x.body = int64(x.length)
	}
	if x.body < 0 {
		m.fail()
	}
}

// headString codes a string record's length and content, if the content has no zero, which ends it then.
func (m *model) headString(x *rec) bool {
	const ended, counted = 0, 1
	code := byte(ended)
	if m.packing && (x.inline == nil || bytes.IndexByte(x.inline, 0) >= 0) {
		code = counted
	}
	if m.u1(&m.prefix, code) != ended {
		return false
	}
	m.mixer.begins()
	if m.packing {
		for _, c := range x.inline {
			m.mixer.textByte(groupText, c)
		}
		m.mixer.textByte(groupText, 0)
	} else {
		x.inline = x.inline[:0]
		for c := m.mixer.textByte(groupText, 0); c != 0; c = m.mixer.textByte(groupText, 0) {
			if len(x.inline) == maxPiece {
				m.fail()
				return true
			}
			x.inline = append(x.inline, c)
		}
	}
	x.body = int64(len(x.inline))
	x.at = x.body
	x.length = uint32(len(x.inline) + m.ids)
	return true
}

// follows notes what came after an identifier.
func (m *model) follows(order map[uint64]uint64, before, id uint64) {
	if _, ok := order[before]; ok || len(order) < maxModelClasses {
		order[before] = id
	}
}

// idSet is the identifiers of classes or strings, which are all known before the
// heap dump begins: what refers to them is coded by rank.
type idSet struct {
	ids    []uint64
	sorted bool
}

// maxSet bounds an idSet. Later ones have no rank.
const maxSet = 1 << 18

// add adds an identifier, unless ranks have been asked for.
func (s *idSet) add(id uint64) {
	if !s.sorted && len(s.ids) < maxSet {
		s.ids = append(s.ids, id)
	}
}

func (s *idSet) reset() { s.ids, s.sorted = s.ids[:0], false }

// rank returns how many identifiers are smaller, and whether id is in the set.
func (s *idSet) rank(id uint64) (int, bool) {
	if !s.sorted {
		slices.Sort(s.ids)
		s.sorted = true
	}
	return slices.BinarySearch(s.ids, id)
}

// above returns the next larger identifier.
func (s *idSet) above(id uint64) uint64 {
	if i, _ := s.rank(id + 1); i < len(s.ids) {
		return s.ids[i]
	}
	return id
}

// ranked codes an identifier of a set of known size: by pred, by its rank in
// as many bytes as the size takes, or by its distance from the last one.
func (m *model) ranked(s *slot, set *idSet, v, pred uint64) uint64 {
	const (
		isPred  = 0
		isLast  = 1
		isAbove = 2
		isNear  = 3
		isRank  = 4 // + 1…3 bytes
	)
	last := s.last
	above := set.above(last)
	n := (bits.Len(uint(max(1, len(set.ids))-1)) + 7) / 8
	var code byte
	var rank int
	if m.packing {
		known := false
		rank, known = set.rank(v)
		switch {
		case v == pred:
			code = isPred
		case v == last:
			code = isLast
		case v == above:
			code = isAbove
		case known:
			code = isRank
		default:
			code = isNear
		}
	}
	switch m.u1(&s.values, code) {
	case isPred:
		v = pred
	case isLast:
		v = last
	case isAbove:
		v = above
	case isRank:
		if rank = int(m.rank(uint64(rank), n)); rank >= len(set.ids) {
			m.fail()
			return 0
		}
		v = set.ids[rank]
	default:
		v = m.near(s, v, last)
	}
	if m.ids == 4 {
		v = uint64(uint32(v))
	}
	s.last = v
	return v
}

// name codes a reference to a string record.
func (m *model) name(s *slot, v uint64) uint64 {
	before := s.last
	pred, ok := m.nameOrder[before]
	if !ok {
		pred = m.topName + 1 // newer versions of ART number names as they come
	}
	v = m.ranked(s, &m.nameSet, v, pred)
	m.topName = max(m.topName, v)
	m.follows(m.nameOrder, before, v)
	return v
}

// maxPrefix is how much of the last string the next one can share.
const (
	maxPrefix = 255
	minPrefix = 12 // less costs more than it saves
)

func (m *model) headClass(x *rec) {
	c := &x.class
	pred, ok := m.order[m.class.last]
	if !ok {
		pred = m.class.last
	}
	before := m.class.last
	c.ID = m.ranked(&m.class, &m.loadedSet, c.ID, pred)
	m.follows(m.order, before, c.ID)
	c.Trace = uint32(m.num(&m.records.trace, uint64(c.Trace), 4))
	c.Super = m.ref(&m.super, c.Super, c.ID)
	for _, v := range []*uint64{&c.Loader, &c.Signers, &c.Domain, &x.reserved[0], &x.reserved[1]} {
		s := &m.reserved
		if v == &c.Loader {
			s = &m.loader
		}
		*v = m.ref(s, *v, c.ID)
	}
	c.Size = uint32(m.num(&m.size, uint64(c.Size), 4))
	var b [8]byte
	n := int(m.small(&m.counts.codes, uint64(len(c.Constants))))
	c.Constants = resize(c.Constants, n, m)
	for i := range c.Constants {
		k := &c.Constants[i]
		k.Index = uint16(m.raw(&m.other, uint64(k.Index), 2))
		k.Type = Type(m.u1(&m.types, byte(k.Type)))
		k.Value = m.raw(&m.other, k.Value, k.Type.Size(m.ids))
	}
	n = int(m.small(&m.counts.codes, uint64(len(c.Statics))))
	c.Statics = resize(c.Statics, n, m)
	for i := range c.Statics {
		f := &c.Statics[i]
		f.Name = m.name(&m.names, f.Name)
		f.Type = Type(m.u1(&m.types, byte(f.Type)))
		size := f.Type.Size(m.ids)
		if size == 0 {
			m.fail()
			return
		}
		s := m.shared[f.Type]
		if f.Type == TypeObject {
			s = &m.statics
		}
		m.put(b[:], size, f.Value)
		m.value(s, b[:size], f.Type, c.ID)
		f.Value = value(b[:], f.Type, m.ids)
	}
	n = int(m.small(&m.counts.codes, uint64(len(c.Fields))))
	c.Fields = resize(c.Fields, n, m)
	for i := range c.Fields {
		f := &c.Fields[i]
		f.Name = m.name(&m.names, f.Name)
		f.Type = Type(m.u1(&m.types, byte(f.Type)))
	}
	if m.err == nil {
		m.define(c)
	}
}

// resize returns a slice of n elements, as many as a class has at most.
func resize[T any](s []T, n int, m *model) []T {
	if n > 1<<16-1 {
		m.fail()
		n = 0
	}
	if m.packing {
		return s
	}
	// Every element has a type in a column, which is opened when it is used and not
	// before: the packer opened it then.
	left := len(m.data[m.types.group])
	if m.types.block == m.block {
		left = len(m.types.buf)
	}
	if n > left && m.mixer == nil {
		m.fail()
	}
	if m.err != nil {
		return s[:0]
	}
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

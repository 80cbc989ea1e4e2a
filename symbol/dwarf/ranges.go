package dwarf

// eachRange calls yield for every range of p.
func (u *unit) eachRange(p *pcs, yield func(lo, hi uint64)) {
	if p.ranges.set {
		u.rangeList(p.ranges, yield)
		return
	}
	lo, ok := u.addr(p.low)
	if !ok || !p.high.set {
		return
	}
	hi, isAddr := u.addr(p.high)
	if !isAddr {
		hi = lo + p.high.u
	}
	if lo < hi {
		yield(lo, hi)
	}
}

func (u *unit) rangeList(v value, yield func(lo, hi uint64)) {
	sec, off, list := u.d.c.RngLists, v.u, u.rngList
	base := u.low
	if u.skel != nil {
		base = u.skel.low
	}
	switch {
	case u.s.version < 5 && u.skel != nil: // in the file with the skeleton, relative to its base
		sec, list = u.skel.d.c.Ranges, u.ranges
		off += u.skel.rngBase
	case u.s.version < 5:
		sec, list = u.d.c.Ranges, u.ranges
	case v.form == formRnglistx:
		if off > sec.Len() {
			return
		}
		rel, ok := number(sec, u.rngBase+off*uint64(u.s.off), int(u.s.off))
		if !ok {
			return
		}
		off = u.rngBase + rel
	}
	if sec.Len() > 0 && sec.r == nil {
		if !list(cursor{b: sec.at(off, sec.Len())}, base, yield) {
			u.d.problem("range list at %#x: %w", off, errTruncated)
		}
		return
	}
	// The length of a list is not known in advance. The first read only counts, so if a
	// chunk does not contain the whole list nothing is yielded twice.
	n := uint64(chunk)
	for c := (cursor{b: sec.at(off, n)}); !list(c, base, nil); c = (cursor{b: sec.at(off, n)}) {
		if n >= sec.Len() {
			u.d.problem("range list at %#x: %w", off, errTruncated)
			break
		}
		n *= 8
	}
	list(cursor{b: sec.at(off, n)}, base, yield)
}

// ranges reads a list of .debug_ranges; false if c ends inside it.
func (u *unit) ranges(c cursor, base uint64, yield func(lo, hi uint64)) bool {
	top := ^uint64(0) >> (64 - 8*uint(u.s.addr))
	for range maxRanges {
		if !u.d.toil(16) {
			return true
		}
		lo, hi := c.uint(int(u.s.addr)), c.uint(int(u.s.addr))
		switch {
		case c.bad:
			return false
		case lo == 0 && hi == 0:
			return true
		case lo == top:
			base = hi
		case lo < hi && yield != nil:
			yield(base+lo, base+hi)
		}
	}
	return true
}

// Entries of DWARF 5 range lists (section 7.25).
const (
	rleEnd = iota
	rleBasex
	rleStartxEndx
	rleStartxLength
	rleOffsetPair
	rleBase
	rleStartEnd
	rleStartLength
)

// rngList reads a list of .debug_rnglists; false if c ends inside it.
func (u *unit) rngList(c cursor, base uint64, yield func(lo, hi uint64)) bool {
	x := func() (uint64, bool) { return u.addr(value{form: formAddrx, u: c.uleb(), set: true}) }
	n := int(u.s.addr)
	for range maxRanges {
		if !u.d.toil(8) {
			return true
		}
		var lo, hi uint64
		ok, ok2 := true, true
		switch c.u8() {
		case rleEnd:
			return !c.bad
		case rleBasex:
			base, _ = x()
			continue
		case rleStartxEndx:
			lo, ok = x()
			hi, ok2 = x()
		case rleStartxLength:
			lo, ok = x()
			hi = lo + c.uleb()
		case rleOffsetPair:
			lo = base + c.uleb()
			hi = base + c.uleb()
		case rleBase:
			base = c.uint(n)
			continue
		case rleStartEnd:
			lo, hi = c.uint(n), c.uint(n)
		case rleStartLength:
			lo = c.uint(n)
			hi = lo + c.uleb()
		default:
			return true
		}
		if c.bad {
			return false
		}
		if ok && ok2 && lo < hi && yield != nil {
			yield(lo, hi)
		}
	}
	return true
}

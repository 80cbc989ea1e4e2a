package dwarf

// The tags, attributes and forms used here (DWARF 5 sections 7.5.3 to 7.5.6; GNU and
// LLVM extensions from binutils include/dwarf2.def and LLVM's Dwarf.def).
const (
	tagClass       = 0x02
	tagEnumeration = 0x04
	tagCompileUnit = 0x11
	tagStructure   = 0x13
	tagUnion       = 0x17
	tagInlined     = 0x1d
	tagModule      = 0x1e
	tagSubprogram  = 0x2e
	tagInterface   = 0x38
	tagNamespace   = 0x39
	tagTypeUnit    = 0x41
	tagSkeleton    = 0x4a

	atName        = 0x03
	atStmtList    = 0x10
	atLowPC       = 0x11
	atHighPC      = 0x12
	atLanguage    = 0x13
	atCompDir     = 0x1b
	atAbstract    = 0x31
	atDeclFile    = 0x3a
	atDeclLine    = 0x3b
	atSpec        = 0x47
	atEntryPC     = 0x52
	atRanges      = 0x55
	atCallFile    = 0x58
	atCallLine    = 0x59
	atLinkage     = 0x6e
	atStrOffBase  = 0x72
	atAddrBase    = 0x73
	atRngBase     = 0x74
	atDwoName     = 0x76
	atMIPSLinkage = 0x2007
	atGNUDwoName  = 0x2130
	atGNUDwoID    = 0x2131
	atGNURngBase  = 0x2132
	atGNUAddrBase = 0x2133

	formAddr      = 0x01
	formBlock2    = 0x03
	formBlock4    = 0x04
	formData2     = 0x05
	formData4     = 0x06
	formData8     = 0x07
	formString    = 0x08
	formBlock     = 0x09
	formBlock1    = 0x0a
	formData1     = 0x0b
	formFlag      = 0x0c
	formSdata     = 0x0d
	formStrp      = 0x0e
	formUdata     = 0x0f
	formRefAddr   = 0x10
	formRef1      = 0x11
	formRef2      = 0x12
	formRef4      = 0x13
	formRef8      = 0x14
	formRefUdata  = 0x15
	formIndirect  = 0x16
	formSecOffset = 0x17
	formExprloc   = 0x18
	formPresent   = 0x19
	formStrx      = 0x1a
	formAddrx     = 0x1b
	formRefSup4   = 0x1c
	formStrpSup   = 0x1d
	formData16    = 0x1e
	formLineStrp  = 0x1f
	formRefSig8   = 0x20
	formImplicit  = 0x21
	formLoclistx  = 0x22
	formRnglistx  = 0x23
	formRefSup8   = 0x24
	formStrx1     = 0x25
	formStrx2     = 0x26
	formStrx3     = 0x27
	formStrx4     = 0x28
	formAddrx1    = 0x29
	formAddrx2    = 0x2a
	formAddrx3    = 0x2b
	formAddrx4    = 0x2c
	formGNUAddrx  = 0x1f01
	formGNUStrx   = 0x1f02
	formGNURefAlt = 0x1f20
	formGNUStrAlt = 0x1f21
	formLLVMAddrx = 0x2001
)

// shape holds the parameters that determine the size of a form.
type shape struct {
	addr    int8 // bytes of an address
	off     int8 // bytes of an offset: 4 or 8
	version uint16
}

// size returns the size of form f in bytes, -1 if it is variable, -2 if f is unknown.
func (s shape) size(f uint64) int8 {
	switch f {
	case formAddr:
		return s.addr
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2
	case formStrx3, formAddrx3:
		return 3
	case formData4, formRef4, formStrx4, formAddrx4, formRefSup4:
		return 4
	case formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formPresent, formImplicit:
		return 0
	case formStrp, formSecOffset, formLineStrp, formStrpSup, formGNURefAlt, formGNUStrAlt:
		return s.off
	case formRefAddr:
		if s.version <= 2 { // an address in DWARF 2, an offset since DWARF 3
			return s.addr
		}
		return s.off
	case formBlock, formBlock1, formBlock2, formBlock4, formString, formSdata, formUdata, formRefUdata, formIndirect,
		formExprloc, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrx, formGNUStrx, formLLVMAddrx:
		return -1
	}
	return -2
}

// skipForm moves c past a value of a form of variable size.
func (s shape) skipForm(c *cursor, f uint64) {
	switch f {
	case formBlock1:
		c.skip(uint64(c.u8()))
	case formBlock2:
		c.skip(uint64(c.u16()))
	case formBlock4:
		c.skip(uint64(c.u32()))
	case formBlock, formExprloc:
		c.skip(c.uleb())
	case formString:
		c.skipString()
	case formSdata, formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrx, formGNUStrx:
		c.uleb()
	case formLLVMAddrx:
		c.uleb()
		c.skip(4)
	case formIndirect:
		f = c.uleb()
		if n := s.size(f); n >= 0 && f != formImplicit {
			c.skip(uint64(n))
		} else if n == -1 && f != formIndirect {
			s.skipForm(c, f)
		} else {
			c.bad = true
		}
	default:
		c.bad = true
	}
}

// value is an attribute as encoded in the unit.
type value struct {
	form uint64
	u    uint64 // the number, offset or index; for formString the offset in the unit's bytes
	set  bool
}

// read reads the value of attribute a.
func (s shape) read(c *cursor, a *attr) value {
	f := a.form
	if f == formIndirect {
		if f = c.uleb(); f == formIndirect || f == formImplicit {
			c.bad = true
			return value{}
		}
	}
	v := value{form: f, set: true}
	switch f {
	case formImplicit:
		v.u = uint64(a.implicit)
	case formPresent:
		v.u = 1
	case formSdata:
		v.u = uint64(c.sleb())
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrx, formGNUStrx:
		v.u = c.uleb()
	case formString:
		v.u = uint64(c.pos)
		c.skipString()
	default:
		switch n := s.size(f); {
		case n >= 0 && n <= 8:
			v.u = c.uint(int(n))
		case n == 16:
			c.skip(16)
			v.set = false
		default:
			s.skipForm(c, f)
			v.set = false
		}
	}
	return v
}

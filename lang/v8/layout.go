package v8

import "fmt"

// layout holds offsets in V8's objects, in bytes from the start of the object. types holds the
// instance types of maps.
type layout struct {
	tried bool // this version was tested

	mapInstanceType uint64
	types           types

	shared     uint64 // JSFunction
	sfiData    uint64 // SharedFunctionInfo
	sfiName    uint64
	sfiScript  uint64
	scopeFixed bool // ScopeInfo: positions precede the variable part, and flags are a plain number
	moduleType uint64
	source     uint64 // Script
	name       uint64
	lineOffset uint64
	lineEnds   uint64
	id         uint64

	evalFrom, evalPosition, scriptFlags uint64 // Script; scriptFlags in most versions

	inCode    bool   // the Code object holds the instructions
	header    uint64 // from the object with the instructions to the first one
	deopt     uint64 // Code: deoptimization data, or the bytecode of baseline code
	positions uint64
	start     uint64 // address of the first instruction; none with inCode
	flags     uint64
	size      uint64
	kindMask  uint32
	baseline  uint32 // code kinds below are interpreted, those above optimized
	regexp    uint32

	// Indexes of the deoptimization data. deoptExits holds the offset of the exits in the code. It
	// is followed by the numbers of checks and of calls, and by their places.
	deoptFrames, deoptCount, deoptLiterals, deoptShared, deoptInlining, deoptExits uint64
	deoptHead                                                                      int           // words before the places
	wrapped                                                                        bool          // deoptShared is a SharedFunctionInfoWrapper
	trans                                                                          *translations // nil: unknown

	bytecodePositions, bytecodeData uint64

	bytecodeSizes []byte // of all bytecodes, for three operand scales: plain, wide, extra wide
}

// types holds the instance types of the objects that are read.
type types struct {
	maps, function, lastFunction, shared, wrapper, scope, script uint16
	code, stream, bytecode, interpreterData                      uint16
	fixed                                                        []uint16 // arrays of tagged values
	bytes                                                        []uint16 // arrays of bytes
}

// Offsets that are equal in all tested versions.
const (
	tag          = 1 // of a pointer to an object
	arrayLength  = 8
	arrayData    = 16
	streamCode   = 8 // InstructionStream: its Code object
	wrappedSFI   = 8
	interpreted  = 8 // InterpreterData: its bytecode
	stringLength = 12
	stringData   = 16 // characters; first, actual or parent string; resource
	stringSecond = 24 // second string; offset in the parent; characters of an external one
	scopeFlags   = 8
	scopeLocals  = 24
	scopeRest    = 32 // without scopeFixed
	scopeStart   = 32 // with it
	scopeNames   = 48
	maxInlined   = 75 // functions with more local names keep them in a separate table
	closures     = 15 // instance types of JSFunction and its subclasses
)

// fill sets the layout from num, the values of the symbols called v8dbg_, and from known facts
// about the version.
func (l *layout) fill(major, minor int, num func(string) (int, bool)) error {
	switch [2]int{major, minor} {
	case [2]int{10, 2}, [2]int{11, 3}, [2]int{12, 4}, [2]int{13, 6}:
		l.tried = true
	}
	if major < 10 {
		return fmt.Errorf("too old to be read (Node 18 to 24 are)")
	}
	var missing string
	has := func(names ...string) (int, bool) {
		for _, n := range names {
			if v, ok := num(prefix + n); ok {
				return v, true
			}
		}
		return 0, false
	}
	off := func(def int, names ...string) uint64 {
		v, ok := has(names...)
		switch {
		case ok && v >= 0 && v < 4096:
			return uint64(v)
		case def >= 0:
			return uint64(def)
		}
		missing = names[0]
		return 0
	}
	typ := func(names ...string) uint16 { return uint16(off(-1, names...)) }
	optional := func(names ...string) uint16 { return uint16(off(0, names...)) }

	l.mapInstanceType = off(12, "class_Map__instance_type__uint16_t")
	t := &l.types
	t.maps = typ("type_Map__MAP_TYPE")
	t.function = typ("type_JSFunction__JS_FUNCTION_TYPE")
	t.lastFunction = uint16(off(int(t.function)+closures, "LastJSFunctionType"))
	t.shared = typ("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")
	t.wrapper = optional("type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE")
	t.scope = typ("type_ScopeInfo__SCOPE_INFO_TYPE")
	t.script = typ("type_Script__SCRIPT_TYPE")
	t.code = typ("type_Code__CODE_TYPE")
	t.stream = optional("type_InstructionStream__INSTRUCTION_STREAM_TYPE")
	t.bytecode = typ("type_BytecodeArray__BYTECODE_ARRAY_TYPE")
	t.interpreterData = typ("type_InterpreterData__INTERPRETER_DATA_TYPE")
	for _, n := range [...]string{"FixedArray__FIXED", "WeakFixedArray__WEAK_FIXED", "TrustedFixedArray__TRUSTED_FIXED",
		"TrustedWeakFixedArray__TRUSTED_WEAK_FIXED", "ProtectedFixedArray__PROTECTED_FIXED"} {
		if v := optional("type_" + n + "_ARRAY_TYPE"); v != 0 {
			t.fixed = append(t.fixed, v)
		}
	}
	for _, n := range [...]string{"ByteArray__BYTE", "TrustedByteArray__TRUSTED_BYTE"} {
		if v := optional("type_" + n + "_ARRAY_TYPE"); v != 0 {
			t.bytes = append(t.bytes, v)
		}
	}

	l.shared = off(-1, "class_JSFunction__shared__SharedFunctionInfo")
	l.sfiData = 8 // trusted_function_data since 12.5
	l.sfiName = off(-1, "class_SharedFunctionInfo__name_or_scope_info__Object", "class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
		"class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_")
	l.sfiScript = off(-1, "class_SharedFunctionInfo__script_or_debug_info__HeapObject", "class_SharedFunctionInfo__script__Tagged_HeapObject_")
	// ScopeInfo has no metadata. Since 12.8.44 the positions come first.
	l.scopeFixed = major > 12 || major == 12 && minor >= 8
	l.moduleType = 3 // ScopeType in scope-info.tq
	if major >= 13 {
		l.moduleType = 5
	}
	l.source = off(8, "class_Script__source__Object")
	l.name = off(16, "class_Script__name__Object")
	l.lineOffset = l.name + 8
	l.lineEnds = off(56, "class_Script__line_ends__Object")
	l.id = l.lineEnds + 8
	l.evalFrom = off(72, "class_Script__eval_from_shared_or_wrapped_arguments__Object")
	l.evalPosition = off(int(l.evalFrom)+8, "class_Script__eval_from_position__SMI")
	l.scriptFlags = l.evalPosition + 16 // after shared_function_infos
	if most := max(l.source, l.lineOffset, l.id, l.evalFrom, l.scriptFlags); most+24 > scriptHead {
		return fmt.Errorf("a field of Script at %d is beyond its %d bytes", most, scriptHead)
	}

	l.inCode = t.stream == 0
	switch {
	case l.inCode: // up to 11.1
		l.header = off(128, "class_Code__instruction_start__uintptr_t")
		l.deopt, l.positions = 16, 24
		l.size = off(40, "class_Code__instruction_size__int")
		l.flags = off(48, "class_Code__flags__uint32_t")
	case major == 11:
		l.header = off(16, "class_InstructionStream__instruction_start__uintptr_t")
		l.deopt = off(16, "class_Code__deoptimization_data__FixedArray")
		l.positions = off(24, "class_Code__source_position_table__ByteArray")
		l.start, l.flags, l.size = 40, 48, 56
		if minor > 4 {
			l.size = 52
		}
	default:
		l.header = off(32, "class_InstructionStream__instruction_start__uintptr_t")
		l.deopt, l.positions = 8, 16
		l.start = off(40, "class_Code__instruction_start__Address")
		l.flags = off(48, "class_Code__flags__uint32_t")
		l.size = off(52, "class_Code__instruction_size__int")
	}
	l.kindMask = uint32(off(15, "CodeKindFieldMask"))
	l.baseline = uint32(off(11, "CodeKindBaseline"))
	l.regexp = 3 // src/objects/code-kind.h

	l.deoptCount = off(1, "DeoptimizationDataInlinedFunctionCountIndex")
	l.deoptLiterals = off(2, "DeoptimizationDataLiteralArrayIndex")
	_, l.wrapped = has("DeoptimizationDataWrappedSharedFunctionInfoIndex")
	l.deoptShared = off(6, "DeoptimizationDataSharedFunctionInfoIndex", "DeoptimizationDataWrappedSharedFunctionInfoIndex")
	l.deoptInlining = off(7, "DeoptimizationDataInliningPositionsIndex")
	l.deoptExits = l.deoptInlining + 1
	l.deoptHead = int(l.deoptExits) + 3
	if l.deoptHead+2 > len(code{}.head) {
		return fmt.Errorf("the symbol %sDeoptimizationDataInliningPositionsIndex says %d", prefix, l.deoptInlining)
	}
	if major == 13 {
		l.trans = &translations13
	}

	l.bytecodeData = off(-1, "class_BytecodeArray__data__uintptr_t")
	l.bytecodePositions = 32
	if _, ok := has("class_BytecodeArray__wrapper__Tagged_BytecodeWrapper_"); ok {
		l.bytecodePositions = 24
	}
	if missing != "" {
		return fmt.Errorf("the file lacks the symbol %s%s", prefix, missing)
	}
	return nil
}

package jvm

import (
	"fmt"
	"strings"
)

// none is the offset of a field that a version does not have.
const none = ^uint64(0)

// layout holds the offsets of the fields that are read, in bytes from the beginning of their
// structure, and the sizes of structures.
type layout struct {
	major int

	// The code cache: CodeHeap with the VirtualSpaces of its memory and of its segment map, and the
	// HeapBlock before each CodeBlob.
	heapMemory, heapSegmap, heapLog2             uint64
	spaceLow, spaceHigh, spaceEnd                uint64 // committed range, and the end of the reserved one
	block, blockUsed                             uint64 // size of HeapBlock, and its flag for being in use
	blobName, blobSize, blobComplete, blobFrame  uint64
	blobCode, blobEnd                            uint64 // addresses up to 21, offsets of 4 bytes in 25
	blobMutable, blobMutableSize, blobRelocation uint64 // 25
	blob                                         uint64 // bytes to read of one

	nmMethod, nmCompileID, nmLevel, nmOrigPC, nmEntryBCI uint64
	nmPcs, nmData                                        uint64 // pc descriptors and scopes
	nmMetadata, nmDependencies                           uint64 // up to 21
	nmDeopt, nmDeoptMH                                   uint64
	nmImmutable, nmImmutableSize                         uint64 // 25
	nmOSR                                                uint64
	nmethod                                              uint64 // bytes to read of one

	pcOffset, pcScope, pcDesc uint64

	methodConst                                        uint64
	cmConstants, cmFlags, cmCodeSize, cmName, cmSig    uint64
	constMethod                                        uint64 // size: its bytecodes follow
	hasLines                                           uint32
	poolHolder, poolLength, poolSource                 uint64
	pool                                               uint64 // size: its entries follow
	klassName                                          uint64
	symbolLength, symbolBody                           uint64
	listLength, listThreads                            uint64
	osThread, osThreadID, osState                      uint64 // in Thread, in OSThread
	condWait                                           uint32 // its state of a thread that is parked or sleeps
	threadObj, threadState, stackBase, stackSize       uint64
	anchor, anchorSP, anchorPC, anchorFP               uint64 // in JavaThread
	pending, waiting, ownerID, lockStackTop, lockStack uint64
	monitorObject, monitorOwner                        uint64
	vthread, layoutHelper                              uint64
}

// tried reports whether the layout of a version outside of HotSpot's own tables is known.
func tried(major int64) bool { return major == 17 || major == 21 || major == 25 }

// lookup resolves names and records missing ones.
type lookup struct {
	s       *structs
	missing []string
}

// field returns the offset of the first of the names that exists.
func (l *lookup) field(names ...string) uint64 {
	for _, n := range names {
		if off, ok := l.s.offset[n]; ok {
			return off
		}
	}
	l.missing = append(l.missing, names[0])
	return 0
}

// maybe returns the offset of an optional field.
func (l *lookup) maybe(name string) uint64 {
	if off, ok := l.s.offset[name]; ok {
		return off
	}
	return none
}

func (l *lookup) size(name string) uint64 {
	n, ok := l.s.size[name]
	if !ok || n == 0 {
		l.missing = append(l.missing, "size of "+name)
	}
	return n
}

func (l *lookup) static(name string) uint64 {
	a, ok := l.s.static[name]
	if !ok || a == 0 {
		l.missing = append(l.missing, name)
	}
	return a
}

func (l *lookup) constant(names ...string) int64 {
	for _, n := range names {
		if v, ok := l.s.value[n]; ok {
			return v
		}
	}
	l.missing = append(l.missing, names[0])
	return 0
}

// err returns an error that lists the missing names.
func (l *lookup) err(major int) error {
	if len(l.missing) == 0 {
		return nil
	}
	return &VersionError{fmt.Sprint(major), "its tables lack " + strings.Join(l.missing[:min(len(l.missing), 3)], ", ")}
}

// newLayout returns the layout of a tested version.
func newLayout(s *structs, major int) (*layout, error) {
	g := &lookup{s: s}
	f := g.field
	l := &layout{
		major:      major,
		heapMemory: f("CodeHeap._memory"), heapSegmap: f("CodeHeap._segmap"), heapLog2: f("CodeHeap._log2_segment_size"),
		spaceLow: f("VirtualSpace._low"), spaceHigh: f("VirtualSpace._high"), spaceEnd: f("VirtualSpace._high_boundary"),
		block: g.size("HeapBlock"), blockUsed: f("HeapBlock::Header._used"),
		blobName: f("CodeBlob._name"), blobSize: f("CodeBlob._size"), blobFrame: f("CodeBlob._frame_size"),
		blobComplete: f("CodeBlob._frame_complete_offset"), blob: g.size("CodeBlob"),
		blobMutable: none, blobMutableSize: none, blobRelocation: none,
		nmMethod:    f("nmethod._method", "CompiledMethod._method"),
		nmCompileID: f("nmethod._compile_id"), nmLevel: f("nmethod._comp_level"), nmOrigPC: f("nmethod._orig_pc_offset"),
		nmEntryBCI: f("nmethod._entry_bci"), nmPcs: f("nmethod._scopes_pcs_offset"), nmOSR: f("nmethod._osr_entry_point"),
		nmImmutable: none, nmImmutableSize: none, nmMetadata: none, nmDependencies: none, nmethod: g.size("nmethod"),
		pcOffset: f("PcDesc._pc_offset"), pcScope: f("PcDesc._scope_decode_offset"), pcDesc: g.size("PcDesc"),
		methodConst: f("Method._constMethod"),
		cmConstants: f("ConstMethod._constants"), cmFlags: f("ConstMethod._flags", "ConstMethod._flags._flags"),
		cmCodeSize: f("ConstMethod._code_size"), cmName: f("ConstMethod._name_index"), cmSig: f("ConstMethod._signature_index"),
		constMethod: g.size("ConstMethod"),
		hasLines:    uint32(g.constant("ConstMethod::_has_linenumber_table", "ConstMethodFlags::_misc_has_linenumber_table")),
		poolHolder:  f("ConstantPool._pool_holder"), poolLength: f("ConstantPool._length"),
		poolSource: f("ConstantPool._source_file_name_index"), pool: g.size("ConstantPool"),
		klassName:    f("Klass._name"),
		symbolLength: f("Symbol._length"), symbolBody: f("Symbol._body", "Symbol._body[0]"),
		listLength: f("ThreadsList._length"), listThreads: f("ThreadsList._threads"),
		osThread: f("JavaThread._osthread", "Thread._osthread"), osThreadID: f("OSThread._thread_id"),
		osState: g.maybe("OSThread._state"), condWait: uint32(g.s.value["CONDVAR_WAIT"]),
		threadObj: f("JavaThread._threadObj"), threadState: f("JavaThread._thread_state"),
		stackBase: f("JavaThread._stack_base"), stackSize: f("JavaThread._stack_size"),
		pending: f("JavaThread._current_pending_monitor"), waiting: f("JavaThread._current_waiting_monitor"),
		ownerID: g.maybe("JavaThread._monitor_owner_id"), lockStack: none, lockStackTop: none,
		monitorObject: f("ObjectMonitor._object"), monitorOwner: f("ObjectMonitor._owner"),
		vthread: g.maybe("JavaThread._vthread"), layoutHelper: g.maybe("Klass._layout_helper"),
	}
	l.anchor = f("JavaThread._anchor")
	l.anchorSP, l.anchorPC = l.anchor+f("JavaFrameAnchor._last_Java_sp"), l.anchor+f("JavaFrameAnchor._last_Java_pc")
	l.anchorFP = l.anchor + f("JavaFrameAnchor._last_Java_fp")
	if at := g.maybe("JavaThread._lock_stack"); at != none {
		l.lockStackTop, l.lockStack = at+f("LockStack._top"), at+f("LockStack._base[0]")
	}
	if major >= 23 {
		l.blobCode, l.blobEnd = f("CodeBlob._code_offset"), f("CodeBlob._data_offset")
		l.blobMutable, l.blobMutableSize = f("CodeBlob._mutable_data"), f("CodeBlob._mutable_data_size")
		l.blobRelocation = f("CodeBlob._relocation_size")
		l.nmData, l.nmImmutable, l.nmImmutableSize = f("nmethod._scopes_data_offset"), f("nmethod._immutable_data"), f("nmethod._immutable_data_size")
		l.nmDeopt, l.nmDeoptMH = f("nmethod._deopt_handler_offset"), f("nmethod._deopt_mh_handler_offset")
	} else {
		l.blobCode, l.blobEnd = f("CodeBlob._code_begin"), f("CodeBlob._code_end")
		l.nmData, l.nmMetadata, l.nmDependencies = f("CompiledMethod._scopes_data_begin"), f("nmethod._metadata_offset"), f("nmethod._dependencies_offset")
		l.nmDeopt, l.nmDeoptMH = f("CompiledMethod._deopt_handler_begin"), f("CompiledMethod._deopt_mh_handler_begin")
	}
	if err := g.err(major); err != nil {
		return nil, err
	}
	return l, l.check()
}

// check compares the offsets of fields with the sizes of the reads.
func (l *layout) check() error {
	for _, x := range [...]struct {
		size   uint64
		fields []uint64
	}{
		{l.blob, []uint64{l.blobName, l.blobSize, l.blobComplete, l.blobFrame, l.blobCode, l.blobEnd}},
		{l.nmethod, []uint64{l.blob, l.nmMethod, l.nmCompileID, l.nmLevel, l.nmOrigPC, l.nmEntryBCI, l.nmPcs, l.nmData, l.nmDeopt, l.nmDeoptMH, l.nmOSR}},
		{l.constMethod, []uint64{l.cmConstants, l.cmFlags, l.cmCodeSize, l.cmName, l.cmSig}},
		{l.pcDesc, []uint64{l.pcOffset, l.pcScope}},
		{l.pool, []uint64{l.poolHolder, l.poolLength, l.poolSource}},
		{l.nmethod, []uint64{or(l.nmImmutable), or(l.nmImmutableSize), or(l.nmMetadata), or(l.nmDependencies)}},
		{l.blob, []uint64{or(l.blobMutable), or(l.blobMutableSize), or(l.blobRelocation)}},
	} {
		for _, f := range x.fields {
			if f+2 > x.size {
				return &VersionError{fmt.Sprint(l.major), fmt.Sprintf("a field at %d of a structure of %d bytes", f, x.size)}
			}
		}
	}
	if l.symbolLength+2 > l.symbolBody || l.symbolBody > 32 {
		return &VersionError{fmt.Sprint(l.major), fmt.Sprintf("a Symbol's length at %d, its text at %d", l.symbolLength, l.symbolBody)}
	}
	if l.block == 0 || l.block > 64 || l.blockUsed >= l.block || l.pcDesc < 12 || l.pcDesc > 64 {
		return &VersionError{fmt.Sprint(l.major), fmt.Sprintf("HeapBlock of %d bytes, PcDesc of %d", l.block, l.pcDesc)}
	}
	return nil
}

func or(off uint64) uint64 {
	if off == none {
		return 0
	}
	return off
}

// room is the space that a buffer needs for the last field.
const room = 8

package python

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// newest is the last supported minor version.
const newest = 14

// none marks a field that a version lacks.
const none = 0xffff

// layout holds offsets in the interpreter's data, in bytes.
type layout struct {
	interpreters                                 uint64 // _PyRuntimeState.interpreters.head
	interpNext, interpThreads, interpModules     uint64
	gil                                          uint64 // in _PyRuntimeState up to 3.11; from 3.12 on the pointer to it in PyInterpreterState
	tsNext, tsInterp, tsThread, tsNative, tsSize uint64
	tsFrame                                      uint64 // the innermost frame; none in 3.11 and 3.12, which have it in the CFrame
	tsCFrame, tsRootCFrame                       uint64
	cfCurrent, cfPrevious                        uint64
	tsChunk                                      uint64 // the data stack's newest chunk
	tsTask                                       uint64 // asyncio's running task, from 3.14 on
	tsContext                                    uint64 // context_ver, which each step of an asyncio task increments at its start and end; none up to 3.10
	fCode, fBack, fInstr, fOwner, fSize          uint64
	fEntry                                       uint64 // is_entry, 3.11 only
	coFile, coName, coQualname, coFirst          uint64
	coLines, coCode, coSize                      uint64
	coVersion                                    uint64 // co_nfreevars and co_version, a number for each code object; none up to 3.11
	ascii, compact                               uint64 // sizes of PyASCIIObject and PyCompactUnicodeObject
	cachedKeys                                   uint64 // PyHeapTypeObject.ht_cached_keys
}

// Equal in all known versions; PyObject has 16 bytes.
const (
	obType      = 8
	obSize      = 16 // PyVarObject.ob_size, PyUnicodeObject.length, PyDictObject.ma_used
	uniState    = 32
	bytesData   = 32
	coBytecode  = 48 // PyCodeObject.co_code, up to 3.10
	chunkHead   = 16 // _PyStackChunk: previous, size in bytes
	moduleDict  = 16
	dictKeys    = 32
	dictValues  = 40
	typeBasic   = 32
	typeFlags   = 168
	typeDict    = 288 // tp_dictoffset
	gilHolder   = 8   // in struct _gil_runtime_state
	gilLocked   = 16
	gilSize     = 208
	longDigits  = 24
	ownerThread = 0
	ownerGen    = 1
	ownerFrame  = 2
	ownerC      = 3 // and above: a frame on the C stack that marks an evaluation, from 3.12 on
)

var layouts = map[int]layout{
	8: {interpreters: 32, interpNext: 0, interpThreads: 8, interpModules: 56, gil: 1152,
		tsNext: 8, tsInterp: 16, tsThread: 176, tsNative: none, tsSize: 264, tsFrame: 24, tsCFrame: none, tsRootCFrame: none, tsChunk: none, tsTask: none, tsContext: none,
		fCode: 32, fBack: 24, fInstr: 104, fOwner: none, fSize: 120, fEntry: none,
		coFile: 104, coName: 112, coQualname: none, coFirst: 40, coLines: 120, coCode: none, coSize: 176, coVersion: none, ascii: 48, compact: 72, cachedKeys: 872},
	9: {interpreters: 32, interpNext: 0, interpThreads: 8, interpModules: 856, gil: 352,
		tsNext: 8, tsInterp: 16, tsThread: 176, tsNative: none, tsSize: 264, tsFrame: 24, tsCFrame: none, tsRootCFrame: none, tsChunk: none, tsTask: none, tsContext: none,
		fCode: 32, fBack: 24, fInstr: 104, fOwner: none, fSize: 120, fEntry: none,
		coFile: 104, coName: 112, coQualname: none, coFirst: 40, coLines: 120, coCode: none, coSize: 176, coVersion: none, ascii: 48, compact: 72, cachedKeys: 864},
	10: {interpreters: 32, interpNext: 0, interpThreads: 8, interpModules: 856, gil: 352,
		tsNext: 8, tsInterp: 16, tsThread: 176, tsNative: none, tsSize: 280, tsFrame: 24, tsCFrame: 48, tsRootCFrame: 264, cfCurrent: none, cfPrevious: 8, tsChunk: none, tsTask: none, tsContext: none,
		fCode: 32, fBack: 24, fInstr: 96, fOwner: none, fSize: 112, fEntry: none,
		coFile: 104, coName: 112, coQualname: none, coFirst: 40, coLines: 120, coCode: none, coSize: 176, coVersion: none, ascii: 48, compact: 72, cachedKeys: 872},
	11: {interpreters: 40, interpNext: 0, interpThreads: 16, interpModules: 888, gil: 360,
		tsNext: 8, tsInterp: 16, tsThread: 152, tsNative: 160, tsSize: 360, tsFrame: none, tsCFrame: 56, tsRootCFrame: 336, cfCurrent: 8, cfPrevious: 16, tsChunk: 296, tsTask: none, tsContext: 232,
		fCode: 32, fBack: 48, fInstr: 56, fOwner: 69, fSize: 80, fEntry: 68,
		coFile: 112, coName: 120, coQualname: 128, coFirst: 72, coLines: 136, coCode: 184, coSize: 192, coVersion: none, ascii: 48, compact: 72, cachedKeys: 872},
	12: {interpreters: 40, interpNext: 0, interpThreads: 72, interpModules: 944, gil: 384,
		tsNext: 8, tsInterp: 16, tsThread: 136, tsNative: 144, tsSize: 288, tsFrame: none, tsCFrame: 56, tsRootCFrame: 272, cfCurrent: 0, cfPrevious: 8, tsChunk: 232, tsTask: none, tsContext: 216,
		fCode: 0, fBack: 8, fInstr: 56, fOwner: 70, fSize: 80, fEntry: none,
		coFile: 112, coName: 120, coQualname: 128, coFirst: 68, coLines: 136, coCode: 192, coSize: 200, coVersion: 88, ascii: 40, compact: 56, cachedKeys: 880},
}

// Offsets at the start of struct _Py_DebugOffsets, in all versions that have it.
const (
	selfCookie    = "xdebugpy"
	selfVersion   = 8
	selfThreaded  = 16      // free_threaded
	selfSize      = 768     // larger than any version's
	maxSelfOffset = 1 << 20 // larger than any structure
)

// self holds the offsets in a version's description of itself, in bytes. It grows in the middle
// from version to version (Include/internal/pycore_debug_offsets.h; pycore_runtime.h up to 3.13).
type self struct {
	interpreters, interpNext, interpThreads, interpModules, gil    int
	tsSize, tsNext, tsInterp, tsFrame, tsThread, tsNative, tsChunk int
	fSize, fBack, fCode, fInstr, fOwner                            int
	coSize, coFile, coName, coQualname, coLines, coFirst, coCode   int
	ascii                                                          int
	// Equal in all known versions.
	obType, uniState, dictKeys, dictValues, bytesData int
}

var selves = map[int]self{
	13: {40, 64, 72, 88, 112, 152, 168, 176, 184, 192, 200, 208, 224, 232, 240, 248, 264, 272, 280, 288, 296, 304, 312, 344, 560,
		360, 544, 456, 464, 528},
	14: {40, 64, 72, 96, 120, 176, 192, 200, 208, 216, 224, 232, 248, 256, 264, 272, 288, 312, 320, 328, 336, 344, 352, 384, 640,
		408, 624, 536, 544, 608},
}

// described makes the layout of a version that describes itself, from the table at the beginning of
// _PyRuntime.
func described(b []byte) (*layout, error) {
	if len(b) < selfSize || !bytes.HasPrefix(b, []byte(selfCookie)) {
		return nil, fmt.Errorf("the interpreter's description of itself is missing")
	}
	version := binary.LittleEndian.Uint64(b[selfVersion:])
	at, known := selves[int(version>>16&0xff)]
	if version>>24 != 3 || !known {
		return nil, &VersionError{fmt.Sprintf("%d.%d", version>>24, version>>16&0xff)}
	}
	if binary.LittleEndian.Uint64(b[selfThreaded:]) != 0 {
		return nil, &VersionError{fmt.Sprintf("3.%d without the global lock", version>>16&0xff)}
	}
	l := layout{tsCFrame: none, tsRootCFrame: none, fEntry: none, cfCurrent: none, cachedKeys: 880}
	for _, f := range [...]struct {
		to *uint64
		at int
	}{
		{&l.interpreters, at.interpreters}, {&l.interpNext, at.interpNext}, {&l.interpThreads, at.interpThreads},
		{&l.interpModules, at.interpModules}, {&l.gil, at.gil},
		{&l.tsSize, at.tsSize}, {&l.tsNext, at.tsNext}, {&l.tsInterp, at.tsInterp}, {&l.tsFrame, at.tsFrame},
		{&l.tsThread, at.tsThread}, {&l.tsNative, at.tsNative}, {&l.tsChunk, at.tsChunk},
		{&l.fSize, at.fSize}, {&l.fBack, at.fBack}, {&l.fCode, at.fCode}, {&l.fInstr, at.fInstr}, {&l.fOwner, at.fOwner},
		{&l.coSize, at.coSize}, {&l.coFile, at.coFile}, {&l.coName, at.coName}, {&l.coQualname, at.coQualname},
		{&l.coLines, at.coLines}, {&l.coFirst, at.coFirst}, {&l.coCode, at.coCode}, {&l.ascii, at.ascii},
	} {
		if *f.to = binary.LittleEndian.Uint64(b[f.at:]); *f.to > maxSelfOffset {
			return nil, fmt.Errorf("the interpreter's description of itself is damaged: %#x at byte %d", *f.to, f.at)
		}
	}
	for _, f := range [...]struct {
		want uint64
		at   int
	}{{obType, at.obType}, {uniState, at.uniState}, {dictKeys, at.dictKeys}, {dictValues, at.dictValues}, {bytesData, at.bytesData}} {
		if is := binary.LittleEndian.Uint64(b[f.at:]); is != f.want {
			return nil, fmt.Errorf("the interpreter's description of itself has %d at byte %d, where %d is known", is, f.at, f.want)
		}
	}
	l.compact = l.ascii + 16
	inside := func(size, most uint64, fields ...uint64) bool {
		for _, f := range fields {
			if f+8 > size {
				return false
			}
		}
		return size <= most
	}
	if !inside(l.tsSize, maxThreadState, l.tsNext, l.tsInterp, l.tsFrame, l.tsThread, l.tsNative, l.tsChunk) ||
		!inside(l.fSize, maxFrameSize, l.fBack, l.fCode, l.fInstr) || l.fOwner >= l.fSize ||
		!inside(l.coSize, maxCodeSize, l.coFile, l.coName, l.coQualname, l.coLines, l.coFirst) || l.coCode > l.coSize {
		return nil, fmt.Errorf("the interpreter's description of itself is damaged: fields outside their structures")
	}
	// Not in the description: context_ver and id are before the data stack's chunk
	// (Include/cpython/pystate.h).
	if l.tsContext = l.tsChunk - 16; l.tsChunk < 16 {
		return nil, fmt.Errorf("the interpreter's description of itself is damaged: no room before the data stack's chunk")
	}
	// co_version is 24 bytes behind the first line, between other numbers and two pointers (Include/cpython/code.h).
	if l.coVersion = none; l.coFile-l.coFirst == 44 && l.coFirst%8 == 4 {
		l.coVersion = l.coFirst + 20
	}
	if l.tsTask = none; version>>16&0xff >= 14 {
		l.tsTask = l.tsSize + runningTask
		l.tsSize = l.tsTask + 8
	}
	return &l, nil
}

// Bounds of the structures that are read as a whole.
const (
	maxThreadState = 4096
	maxFrameSize   = 512
	maxCodeSize    = 1024
)

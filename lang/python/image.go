package python

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sliverprof/sliver/internal/elffile"
)

// ErrNotPython says that a file is not a CPython interpreter.
var ErrNotPython = errors.New("no CPython in this file")

// VersionError says that the interpreter's version is not supported.
type VersionError struct{ Version string }

func (e *VersionError) Error() string {
	if e.Version == pyPy {
		return "PyPy is not supported: its stacks are shown as C alone; CPython 3.8 to 3.14 with the global lock is"
	}
	return fmt.Sprintf("Python %s is not known: its stacks are shown as C alone; 3.8 to 3.14 with the global lock are", e.Version)
}

// pyPy is the Version of another implementation of Python.
const pyPy = "PyPy"

// Other returns a *VersionError if path is the file of another implementation of Python, and nil
// otherwise: libpypy3.11-c.so, or a pypy3.11-c that contains it.
func Other(path string) error {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if strings.HasPrefix(name, "libpypy") || strings.HasPrefix(name, "pypy") {
		return &VersionError{pyPy}
	}
	return nil
}

// Image describes the interpreter in a file: libpython, or a program that is linked with it.
// Addresses are the file's own.
type Image struct {
	Minor   int    // of version 3
	Version string // "3.11.7"; "3.8" if the file does not contain all of it
	runtime uint64 // _PyRuntime
	eval    uint64 // _PyEval_EvalFrameDefault; 0: not exported
	cold    uint64 // the part of it that GCC moved elsewhere; 0: none, or unknown
	types   types
}

// types holds the addresses of type objects.
type types struct{ code, unicode, bytes, dict uint64 }

// maxSymbols bounds a file's table of exported symbols: libpython has 2,000.
const maxSymbols = 1 << 20

// Load looks for CPython in an ELF file. Errors are ErrNotPython (wrapped), a
// *VersionError, and those of a damaged file.
func Load(r io.ReaderAt) (img *Image, err error) {
	defer func() {
		if x := recover(); x != nil { // debug/elf on damaged files
			img, err = nil, fmt.Errorf("look for CPython: damaged file: %v", x)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("look for CPython: %w", err)
	}
	if s := f.SectionByType(elf.SHT_DYNSYM); s == nil || s.Size > maxSymbols*elf.Sym64Size || f.Class != elf.ELFCLASS64 {
		return nil, ErrNotPython
	}
	if !mentions(f, "_PyRuntime") {
		return nil, ErrNotPython
	}
	syms, err := elffile.DynamicSymbols(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPython, err)
	}
	img = &Image{}
	at := map[string]*uint64{"_PyRuntime": &img.runtime, "_PyEval_EvalFrameDefault": &img.eval, "PyCode_Type": &img.types.code,
		"PyUnicode_Type": &img.types.unicode, "PyBytes_Type": &img.types.bytes, "PyDict_Type": &img.types.dict}
	var version uint64
	for _, name := range [...]string{"Py_Version", "PyModule_AddObjectRef", "PyFrame_GetBack", "PyCode_NewWithPosOnlyArgs"} {
		at[name] = new(uint64)
	}
	var size uint64 // of the evaluation function
	for i := range syms {
		if s := &syms[i]; s.Section != elf.SHN_UNDEF {
			if p := at[s.Name]; p != nil {
				*p = s.Value
				if p == &img.eval {
					size = s.Size
				}
			}
		}
	}
	if img.runtime == 0 || img.types.code == 0 || img.types.unicode == 0 || img.types.bytes == 0 {
		return nil, ErrNotPython
	}
	// Py_Version exists since 3.11. Older versions are identified by their additions to the API.
	switch version = *at["Py_Version"]; {
	case version != 0:
		hex, err := word32(f, version)
		if err != nil {
			return nil, fmt.Errorf("read Py_Version: %w", err)
		}
		img.Minor = int(hex >> 16 & 0xff)
		img.Version = fmt.Sprintf("%d.%d.%d", hex>>24, img.Minor, hex>>8&0xff)
		if hex>>24 != 3 {
			return nil, &VersionError{img.Version}
		}
	case *at["PyModule_AddObjectRef"] != 0:
		img.Minor = 10
	case *at["PyFrame_GetBack"] != 0:
		img.Minor = 9
	case *at["PyCode_NewWithPosOnlyArgs"] != 0:
		img.Minor = 8
	default:
		return nil, &VersionError{"3.7 or older"}
	}
	img.cold = cold(r, f, img.eval, size)
	img.Version = cmp.Or(img.Version, fmt.Sprintf("3.%d", img.Minor))
	if img.Minor > newest {
		return nil, &VersionError{img.Version}
	}
	return img, nil
}

// maxStrings bounds the names of a file's exported symbols, in bytes.
const maxStrings = 256 << 20

// mentions looks for a name among those of the exported symbols. This is much faster than reading
// the symbols of a large program.
func mentions(f *elf.File, name string) bool {
	symbols := f.SectionByType(elf.SHT_DYNSYM)
	if int(symbols.Link) >= len(f.Sections) {
		return false
	}
	s := f.Sections[symbols.Link]
	if s.Type != elf.SHT_STRTAB || s.Size > maxStrings {
		return false
	}
	b, err := elffile.Data(s, maxStrings)
	return err == nil && bytes.Contains(b, append([]byte(name), 0))
}

// word32 reads 4 bytes at a vaddr of f.
func word32(f *elf.File, vaddr uint64) (uint32, error) {
	var b [4]byte
	if err := readAt(f, b[:], vaddr); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b[:]), nil
}

// readAt reads len(b) bytes at a vaddr of f.
func readAt(f *elf.File, b []byte, vaddr uint64) error {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			if _, err := p.ReadAt(b, int64(vaddr-p.Vaddr)); err != nil {
				return fmt.Errorf("at %#x: %w", vaddr, err)
			}
			return nil
		}
	}
	return fmt.Errorf("at %#x: no such address in the file", vaddr)
}

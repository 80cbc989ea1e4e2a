// Package symbol resolves addresses of an ELF file to functions, source lines and
// inlined calls, and demangles their names. It works when a recording is dumped, on
// files alone. It knows no process; its caller provides the file and the locations of
// debug files.
//
// Sources, in order of preference: DWARF (of the file or of its separate debug file),
// the Go runtime's tables (provided by the caller), .symtab, .gnu_debugdata, .dynsym,
// and the stubs of the procedure linkage table.
//
// A File belongs to one goroutine at a time; several Files may be used at once.
// Malformed files lose names, but cause no error after Open and never a panic.
package symbol

import (
	"fmt"
	"io"
	"path"
	"strconv"

	"github.com/sliverprof/sliver/symbol/dwarf"
)

// Frame is one logical frame at an address.
type Frame struct {
	Func      string // demangled, never empty
	Linkage   string // the name in the file; "" if the same
	File      string // of the location inside this function, as the compiler saw it; "" if unknown
	Line      int    // in File; 0 if unknown
	StartFile string // of the function's declaration; "" if unknown
	StartLine int    // in StartFile; 0 if unknown
	Inlined   bool   // this frame was inlined into the next one
	Start     uint64 // vaddr of the function's start (inlined: of the containing concrete function); 0 if unknown
}

// GoTable is the Go runtime's own table of functions. It appends the frames at vaddr to
// buf, leaf first, or none if it has no entry. Their names are unchanged from the
// table.
type GoTable interface {
	Frames(vaddr uint64, buf []Frame) []Frame
}

// Options of a File.
type Options struct {
	// Path is the file's name in the target, for messages and as the starting
	// point of the search for debug files.
	Path string
	// Finder finds separate debug files; nil: none are used.
	Finder Finder
	// GoTable opens the Go table of the file in r when it is first needed; nil, or a
	// nil result: there is none.
	GoTable func(r io.ReaderAt) (GoTable, error)
	// FullNames keeps parameters, template arguments, clone suffixes and Go's
	// type arguments.
	FullNames bool
	// Budget bounds the bytes of decoded DWARF, approximately; 0: dwarf.DefaultBudget.
	Budget int
	// Shared is common to all Files opened for the same file at the same time; nil:
	// this is the only one.
	Shared *Shared
	// Sections keeps decompressed sections; nil: nothing is kept.
	Sections Sections
}

// Bounds on caches.
const (
	maxDemangled = 1 << 16 // names in the cache
	maxProblems  = 32
)

// File is one ELF file with all its sources of names.
type File struct {
	o      Options
	main   *image
	debug  *image // separate debug file, or nil
	others []*image
	dw     *dwarf.Data
	syms   *symtab
	plt    []stub
	goTab  GoTable
	isGo   bool

	haveDwarf, haveSyms, haveStubs, haveGo, searched bool
	calls                                            []dwarf.Call
	names                                            map[string]string
	cxx                                              itanium
	problems                                         []error
}

// Open reads the headers of the ELF file in r, and everything else when it is needed. r
// must stay open while the File is used.
func Open(r io.ReaderAt, o Options) (f *File, err error) {
	defer recovered(&err, "ELF headers")
	m, err := openImage(o.Path, r, o.Shared.budget(o.Path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Path, err)
	}
	m.share, m.kept = o.Shared, o.Sections
	f = &File{o: o, main: m, names: make(map[string]string)}
	f.isGo = m.section(".go.buildinfo") != nil || m.section(".gopclntab") != nil || m.section(".note.go.buildid") != nil
	return f, nil
}

// Close closes the debug files that were found, but not Open's r.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	var first error
	for _, m := range append(f.others, f.debug) {
		if m != nil && m.src != nil {
			if err := m.src.Close(); first == nil {
				first = err
			}
		}
	}
	f.others, f.debug, f.dw, f.syms, f.plt = nil, nil, nil, nil, nil
	if f.o.Shared == nil {
		f.main.mem.Close()
	}
	f.haveDwarf, f.haveSyms, f.haveStubs, f.haveGo, f.searched = true, true, true, true, true
	return first
}

// Problems returns what could not be read so far. Each problem loses names.
func (f *File) Problems() []error {
	if f == nil {
		return nil
	}
	p := f.problems
	if f.dw != nil {
		p = append(p[:len(p):len(p)], f.dw.Problems()...)
	}
	return p
}

// DebugFile returns the path of the separate debug file in use, "" for none.
func (f *File) DebugFile() string {
	if f == nil || f.debug == nil {
		return ""
	}
	return f.debug.name
}

func (f *File) problem(what string, err error) {
	if err != nil && len(f.problems) < maxProblems {
		f.problems = append(f.problems, fmt.Errorf("%s: %s: %w", f.o.Path, what, err))
	}
}

// recovered turns a panic over broken input into an error.
func recovered(err *error, what string) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%s: broken: %v", what, r)
	}
}

// Frames appends the frames at vaddr, leaf first, or nothing if no source has an entry:
// use Unknown to make a name. vaddr is the lookup address, for return addresses already
// one less. A nil File has no entries.
func (f *File) Frames(vaddr uint64, buf []Frame) []Frame {
	if f == nil {
		return buf
	}
	from := len(buf)
	calls := f.dwarfCalls(vaddr)
	if len(calls) > 0 && calls[len(calls)-1].Start != 0 {
		for i := range calls {
			if fr, ok := f.frameOf(&calls[i]); ok {
				buf = append(buf, fr)
			}
		}
		if len(buf) > from && !buf[len(buf)-1].Inlined {
			return buf
		}
		buf = buf[:from]
	}
	if t := f.goTable(); t != nil {
		if buf = f.goFrames(t, vaddr, buf); len(buf) > from {
			return buf
		}
	}
	sym, start, ok := f.symbolAt(vaddr)
	if !ok {
		return buf
	}
	fr := Frame{Start: start}
	fr.Func, fr.Linkage = f.display("", sym)
	if len(calls) > 0 && calls[len(calls)-1].Start == 0 {
		fr.File, fr.Line = calls[0].File, calls[0].Line
	}
	return append(buf, fr)
}

func (f *File) goFrames(t GoTable, vaddr uint64, buf []Frame) (out []Frame) {
	var err error
	defer func() {
		if err != nil {
			f.problem("Go tables", err)
			f.goTab, out = nil, buf
		}
	}()
	defer recovered(&err, "lookup")
	out = t.Frames(vaddr, buf)
	for i := len(buf); i < len(out); i++ {
		raw := out[i].Func
		if raw == "" {
			return buf
		}
		out[i].Func = f.goName(raw)
		if out[i].Linkage == "" && out[i].Func != raw {
			out[i].Linkage = raw
		}
	}
	return out
}

// frameOf converts a call of the DWARF to a Frame; ok is false if it has no name.
func (f *File) frameOf(c *dwarf.Call) (fr Frame, ok bool) {
	fr = Frame{File: c.File, Line: c.Line, StartFile: c.DeclFile, StartLine: c.DeclLine, Inlined: c.Inlined, Start: c.Start}
	name, linkage := c.Name, c.Linkage
	if !c.Inlined {
		// The function has a symbol of its own. Prefer it if the DWARF has no linkage
		// name, or if the DWARF has a library's internal name (__libc_malloc for
		// malloc).
		switch {
		case linkage == "" && c.Lang != langGo && (name == "" || name[0] != '_' || cplus(c.Lang)):
			if s, ok := f.symbolStart(c.Start); ok && (name == "" || cplus(c.Lang) && isMangled(s) || qualifies(s, name)) {
				linkage = s
			}
		case (linkage == "" || linkage == name || !isMangled(linkage)) && len(name) > 0 && name[0] == '_':
			if s, ok := f.symbolStart(c.Start); ok && underscores(s) < underscores(name) {
				name, linkage = s, name
			}
		}
	}
	if name == "" && linkage == "" {
		return fr, false
	}
	if c.Lang == langGo {
		fr.Func = f.goName(name)
		if fr.Func != name {
			fr.Linkage = name
		}
		return fr, true
	}
	fr.Func, fr.Linkage = f.display(name, linkage)
	return fr, true
}

// DW_LANG codes (DWARF 5 section 7.12).
const langGo = 0x16

func cplus(lang uint16) bool {
	switch lang {
	case 0x04, 0x11, 0x1a, 0x1c, 0x21, 0x2b, 0x3a: // C++98, Objective-C++, C++11, Rust, C++14, C++17, C++20
		return true
	}
	return false
}

// dwarfCalls looks vaddr up in the DWARF. The result is valid until the next call.
func (f *File) dwarfCalls(vaddr uint64) []dwarf.Call {
	var err error
	if !f.haveDwarf {
		f.haveDwarf = true
		func() {
			defer recovered(&err, "DWARF")
			f.openDwarf()
		}()
		f.problem("opening", err)
	}
	if f.dw == nil {
		return nil
	}
	func() {
		defer recovered(&err, "DWARF")
		f.calls = f.dw.Lookup(vaddr, f.calls[:0])
	}()
	if err != nil {
		f.problem(fmt.Sprintf("at %#x", vaddr), err)
		f.dw = nil
		return nil
	}
	return f.calls
}

func (f *File) goTable() GoTable {
	if !f.haveGo {
		f.haveGo = true
		if f.o.GoTable != nil && f.isGo {
			var err error
			func() {
				defer recovered(&err, "Go tables")
				f.goTab, err = f.o.GoTable(f.main.r)
			}()
			f.problem("Go tables", err)
			if err != nil {
				f.goTab = nil
			}
		}
	}
	return f.goTab
}

// symbolAt returns the symbol or stub that covers vaddr.
func (f *File) symbolAt(vaddr uint64) (name string, start uint64, ok bool) {
	f.loadSymbols()
	if s := f.stubAt(vaddr); s != nil {
		return s.name, s.lo, true
	}
	name, start, sized, ok := f.syms.covering(vaddr)
	if !ok || !sized { // a label extends to the next one
		if lo, is := f.main.trampolineAt(vaddr); is {
			return restorer, lo, true
		}
	}
	return name, start, ok
}

// symbolStart returns the symbol that starts at vaddr.
func (f *File) symbolStart(vaddr uint64) (name string, ok bool) {
	f.loadSymbols()
	name, start, ok := f.syms.find(vaddr)
	return name, ok && start == vaddr
}

// ResolveModule calls yield with the frames of every vaddr in order. Sorted vaddrs are
// much faster, because neighbours share decoded data. frames is empty for an unknown
// vaddr, and valid only during the call.
func ResolveModule(f *File, vaddrs []uint64, yield func(vaddr uint64, frames []Frame)) {
	var buf []Frame
	for _, v := range vaddrs {
		buf = f.Frames(v, buf[:0])
		yield(v, buf)
	}
}

// Unknown names an address that no source has an entry for: the base name of the module
// and the vaddr (or, outside ELF files, the offset) in it.
func Unknown(module string, vaddr uint64) string {
	base := path.Base(module)
	switch base {
	case "", ".", "/":
		base = "[unknown]"
	}
	return base + "+0x" + strconv.FormatUint(vaddr, 16)
}

package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
)

// Func is one function, the unit that a timeline distinguishes.
type Func struct {
	Name      string // demangled, never empty
	Linkage   string // as in the symbol table; "" if the same as Name
	File      string // where it is defined; "": unknown
	StartLine int    // 0: unknown
	Module    int    // index into Recording.Modules; -1: none
	Start     uint64 // vaddr of its first instruction; 0: unknown
}

// LocFrame is one logical frame at a location.
type LocFrame struct {
	Func    int    // index into Symbols.Funcs
	File    string // of Line
	Line    int    // 0: unknown
	Inlined bool   // it was inlined into the next frame of the location
}

// LocKey is a code location: a vaddr in a module's file, or a run-time address if the
// module has no file.
type LocKey struct {
	Module int
	Addr   uint64 // lookup address: one less than a return address
}

// Symbols holds the names of all locations of a recording. Frames of a location are
// innermost first. Add before Write; use one goroutine while it changes.
type Symbols struct {
	Funcs []Func
	Locs  map[LocKey][]LocFrame

	byFunc map[Func]int
}

// FuncID returns the index of f, adding it if it is new.
func (s *Symbols) FuncID(f Func) int {
	if s.byFunc == nil {
		s.byFunc = make(map[Func]int, len(s.Funcs))
		for i, g := range s.Funcs {
			s.byFunc[g] = i
		}
	}
	id, ok := s.byFunc[f]
	if !ok {
		id = len(s.Funcs)
		s.Funcs = append(s.Funcs, f)
		s.byFunc[f] = id
	}
	return id
}

// Set stores the frames of a location.
func (s *Symbols) Set(k LocKey, frames []LocFrame) {
	if s.Locs == nil {
		s.Locs = map[LocKey][]LocFrame{}
	}
	s.Locs[k] = frames
}

// Format of a symb chunk: all counts and values are uvarints; strings are indexes into
// the table that comes first.
//
//	n strings: length, bytes
//	n functions: name, linkage, file, start line, module+1, start
//	n locations: module, address, n frames: function<<1 | inlined, file, line

// AppendSymbols appends names to a recording; w is at its end.
func AppendSymbols(w io.Writer, s *Symbols) error { return (&Writer{w: w}).Symbols(s) }

// Symbols writes all names as one chunk.
func (w *Writer) Symbols(s *Symbols) error {
	index := map[string]uint64{"": 0}
	strs := []string{""}
	id := func(x string) uint64 {
		i, ok := index[x]
		if !ok {
			i = uint64(len(strs))
			index[x] = i
			strs = append(strs, x)
		}
		return i
	}
	var body []byte
	put := func(v uint64) { body = binary.AppendUvarint(body, v) }
	put(uint64(len(s.Funcs)))
	for _, f := range s.Funcs {
		put(id(f.Name))
		put(id(f.Linkage))
		put(id(f.File))
		put(uint64(max(f.StartLine, 0)))
		put(uint64(f.Module + 1))
		put(f.Start)
	}
	keys := make([]LocKey, 0, len(s.Locs))
	for k := range s.Locs {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		if keys[i].Module != keys[j].Module {
			return keys[i].Module < keys[j].Module
		}
		return keys[i].Addr < keys[j].Addr
	})
	put(uint64(len(keys)))
	for _, k := range keys {
		put(uint64(k.Module))
		put(k.Addr)
		frames := s.Locs[k]
		put(uint64(len(frames)))
		for _, f := range frames {
			v := uint64(f.Func) << 1
			if f.Inlined {
				v |= 1
			}
			put(v)
			put(id(f.File))
			put(uint64(max(f.Line, 0)))
		}
	}
	head := binary.AppendUvarint(nil, uint64(len(strs)))
	for _, x := range strs {
		head = binary.AppendUvarint(head, uint64(len(x)))
		head = append(head, x...)
	}
	return w.chunk(chunkSymbols, append(head, body...))
}

// numbers reads uvarints and keeps the first error.
type numbers struct {
	b   []byte
	off int
	err error
}

var errShort = errors.New("ends early")

func (n *numbers) next() uint64 {
	v, k := binary.Uvarint(n.b[n.off:])
	if k <= 0 {
		if n.err == nil {
			n.err = fmt.Errorf("byte %d: %w", n.off, errShort)
		}
		n.off = len(n.b)
		return 0
	}
	n.off += k
	return v
}

// count reads a number of items that take at least size bytes each.
func (n *numbers) count(size int) int {
	v := n.next()
	if v > uint64(len(n.b)-n.off)/uint64(size) {
		if n.err == nil {
			n.err = fmt.Errorf("byte %d: %d items do not fit", n.off, v)
		}
		return 0
	}
	return int(v)
}

// parse adds the names of one chunk. nmod is the number of modules.
func (s *Symbols) parse(b []byte, nmod int) error {
	n := &numbers{b: b}
	strs := make([]string, n.count(1))
	for i := range strs {
		l := n.count(1)
		strs[i] = string(b[n.off : n.off+l])
		n.off += l
	}
	str := func() string {
		if i := n.next(); i < uint64(len(strs)) {
			return strs[i]
		} else if n.err == nil {
			n.err = fmt.Errorf("byte %d: no string %d", n.off, i)
		}
		return ""
	}
	base := len(s.Funcs)
	funcs := make([]Func, n.count(6))
	for i := range funcs {
		f := &funcs[i]
		f.Name, f.Linkage, f.File = str(), str(), str()
		f.StartLine = int(min(n.next(), 1<<31))
		f.Module = int(min(n.next(), uint64(nmod))) - 1
		f.Start = n.next()
		if f.Name == "" {
			f.Name = "?"
		}
	}
	locs := n.count(3)
	if n.err != nil {
		return fmt.Errorf("chunk %s: %w", chunkSymbols, n.err)
	}
	s.Funcs = append(s.Funcs, funcs...)
	s.byFunc = nil
	for range locs {
		k := LocKey{Module: int(min(n.next(), 1<<31)), Addr: n.next()}
		frames := make([]LocFrame, n.count(3))
		for i := range frames {
			v := n.next()
			frames[i] = LocFrame{Func: base + int(v>>1), Inlined: v&1 != 0, File: str(), Line: int(min(n.next(), 1<<31))}
			if v>>1 >= uint64(len(funcs)) {
				n.err = fmt.Errorf("byte %d: no function %d", n.off, v>>1)
			}
		}
		if n.err != nil {
			return fmt.Errorf("chunk %s: %w", chunkSymbols, n.err)
		}
		s.Set(k, frames)
	}
	return nil
}

package exact

import (
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/calls"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
)

// Function is one that a pattern chose.
type Function struct {
	Name    string // readable
	Linkage string // as the symbol table has it
	Module  string // path of its file, as the target sees it
	File    string // source file; "" unknown
	Line    int    // of its beginning; 0 unknown
	Addr    uint64 // of its first instruction, in the target
	Go      bool   // the Go compiler made it
	Code    calls.Code
	Ranges  [][2]uint64 // from and to of its code, in the target
	Why     string      // why it cannot be traced; "" if it can
	Since   stack.Time  // when it was found, if its file was mapped after tracing had begun; 0: it was traced from the start

	gone bool // its file is not mapped there any more
	// inside: the CPU engine has a breakpoint at Code.Second, too.
	inside bool
	bias   uint64 // Addr minus the vaddr
	off    uint64 // offset in the file minus the vaddr
	mod    stack.Mapping
}

// Places is how many probes it takes.
func (f *Function) Places() int { return 1 + len(f.Code.Exits) }

// Inlined is a function that the compiler inlined. These places cannot be traced.
type Inlined struct {
	Name   string
	Places int
}

// Names are the functions that patterns match.
type Names struct {
	Functions []Function // by module, then by address
	Inlined   []Inlined  // by name; only if they were asked for
	Problems  []string   // files whose functions could not be read

	patterns []calls.Pattern
	o        FindOptions
	files    images // that were looked through
}

// image identifies a file with code. images has where the first mapping of each begins.
type (
	image struct {
		dev, inode uint64
		path       string
	}
	images map[image]uint64
)

func imageOf(m *stack.Mapping) image { return image{m.Dev, m.Inode, m.Path} }

// mapped returns the files with code among maps.
func mapped(maps []stack.Mapping) images {
	out := images{}
	for i := range maps {
		m := &maps[i]
		if _, ok := out[imageOf(m)]; !ok && m.Exec && m.Inode != 0 {
			out[imageOf(m)] = m.Start
		}
	}
	return out
}

// FindOptions say where to look.
type FindOptions struct {
	Debug   []string // folders with debug files
	Inlined bool     // count inlined calls too, which reads all DWARF
}

// MaxFunctions bounds how many functions a trace has.
const MaxFunctions = 1 << 16

// Find looks for functions in all files with code that the process has mapped now.
func Find(p *target.Process, patterns []calls.Pattern, o FindOptions) (*Names, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, fmt.Errorf("find functions: %w", err)
	}
	return find(p, maps, patterns, o, nil)
}

// find is Find without the files that known has at the same address.
func find(p *target.Process, maps []stack.Mapping, patterns []calls.Pattern, o FindOptions, known images) (*Names, error) {
	out := &Names{patterns: patterns, o: o, files: mapped(maps)}
	inlined := map[string]int{}
	for i := range maps {
		m := &maps[i]
		k := imageOf(m)
		if at, ok := out.files[k]; !ok || at != m.Start || known[k] == at {
			continue
		}
		mine := slices.DeleteFunc(slices.Clone(maps), func(x stack.Mapping) bool { return !x.Exec || k != imageOf(&x) })
		if err := out.module(p, mine, patterns, o, inlined); err != nil {
			out.Problems = append(out.Problems, fmt.Sprintf("%s: %v", m.Path, err))
		}
		if len(out.Functions) > MaxFunctions {
			return nil, fmt.Errorf("find functions: the patterns match more than %d functions; choose fewer", MaxFunctions)
		}
	}
	for name, n := range inlined {
		out.Inlined = append(out.Inlined, Inlined{name, n})
	}
	slices.SortFunc(out.Inlined, func(a, b Inlined) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// file is one file with code while it is searched.
type file struct {
	r    io.ReaderAt
	src  *naming.Source
	segs [][3]uint64 // offset, vaddr, size
	maps []stack.Mapping
	cold map[string][]uint64 // cold parts of functions, by linkage name
	arch calls.Arch
	buf  []symbol.Frame
}

func (n *Names) module(p *target.Process, maps []stack.Mapping, patterns []calls.Pattern, o FindOptions, inlined map[string]int) error {
	r, err := p.OpenMapping(maps[0])
	if err != nil {
		return err
	}
	defer r.Close()
	f := &file{r: r, maps: maps, cold: map[string][]uint64{}}
	if f.segs, err = live.Segments(r); err != nil {
		return nil // not ELF
	}
	var known bool
	if f.arch, known = calls.ArchOf(runtime.GOARCH); !known {
		return fmt.Errorf("exact tracing knows the code of amd64 and arm64 only")
	}
	root := fmt.Sprintf("/proc/%d/root", p.PID())
	if f.src, err = naming.Open(r, maps[0].Path, runtime.GOARCH, naming.Options{Finder: symbol.Dirs{Root: root, Extra: o.Debug}}); err != nil {
		return err
	}
	defer f.src.Close()
	var found []Function
	f.src.EachFunction(func(raw string, readable func() string, vaddr uint64) bool {
		if head, ok := coldPart(raw); ok {
			f.cold[head] = append(f.cold[head], vaddr)
			return true
		}
		name := ""
		for i := range patterns {
			x := &patterns[i]
			if !strings.Contains(raw, x.Core()) {
				continue
			}
			if name == "" {
				name = readable()
			}
			if !x.Match(name) && !x.Match(raw) {
				continue
			}
			fn := Function{Name: name, Linkage: raw, Module: maps[0].Path, Addr: vaddr}
			f.place(&fn)
			if !x.MatchFile(fn.File) {
				continue
			}
			found = append(found, fn)
			break
		}
		return len(found) <= MaxFunctions
	})
	for i := range found {
		f.scan(&found[i])
	}
	n.Functions = append(n.Functions, found...)
	if o.Inlined {
		f.src.File().EachInlined(func(name, file string) bool {
			for i := range patterns {
				if patterns[i].Match(name) && patterns[i].MatchFile(file) {
					inlined[name]++
					break
				}
			}
			return len(inlined) < MaxFunctions
		})
	}
	return nil
}

// coldPart reports the function whose rarely executed code a symbol names, as GCC and LLVM do.
func coldPart(raw string) (head string, ok bool) {
	i := strings.LastIndex(raw, ".cold")
	if i <= 0 {
		return "", false
	}
	rest := raw[i+len(".cold"):]
	if strings.Trim(rest, ".0123456789") != "" {
		return "", false
	}
	return raw[:i], true
}

// place looks up where a function was declared.
func (f *file) place(fn *Function) {
	if f.buf = f.src.Frames(fn.Addr, f.buf[:0]); len(f.buf) > 0 {
		x := &f.buf[len(f.buf)-1]
		fn.File, fn.Line = x.StartFile, x.StartLine
		if fn.File == "" {
			fn.File = x.File
		}
	}
}

// scan completes a function of which Addr still is the vaddr.
func (f *file) scan(fn *Function) {
	vaddr := fn.Addr
	parts, why := f.parts(fn.Linkage, vaddr)
	if why != "" {
		fn.Why = why
		return
	}
	fn.Go = f.src.File().IsGo(vaddr)
	var err error
	if fn.Code, err = calls.Scan(f.arch, parts, fn.Go); err != nil {
		fn.Why = err.Error()
		return
	}
	for _, s := range f.segs {
		if vaddr < s[1] || vaddr-s[1] >= s[2] {
			continue
		}
		fn.off = s[0] - s[1]
		off := vaddr + fn.off
		for _, m := range f.maps {
			if off < m.Off || off-m.Off >= m.End-m.Start {
				continue
			}
			fn.Addr = m.Start + off - m.Off
			fn.bias, fn.mod = fn.Addr-vaddr, m
			for _, x := range parts {
				fn.Ranges = append(fn.Ranges, [2]uint64{x.Vaddr + fn.bias, x.Vaddr + fn.bias + uint64(len(x.Code))})
			}
			return
		}
	}
	fn.Why = "its code is not mapped"
}

// parts reads a function's code and its cold parts.
func (f *file) parts(raw string, vaddr uint64) (parts []calls.Part, why string) {
	for i, v := range append([]uint64{vaddr}, f.cold[raw]...) {
		end, ok := f.src.File().Extent(v)
		if !ok {
			if i > 0 {
				continue
			}
			return nil, "the symbol table does not say where it ends"
		}
		code, err := f.code(v, end)
		if err != nil {
			return nil, fmt.Sprintf("read its code: %v", err)
		}
		parts = append(parts, calls.Part{Vaddr: v, Code: code})
	}
	return parts, ""
}

func (f *file) code(vaddr, end uint64) ([]byte, error) {
	if end-vaddr > calls.MaxCode {
		return nil, fmt.Errorf("%d bytes; at most %d are looked through", end-vaddr, calls.MaxCode)
	}
	for _, s := range f.segs {
		if vaddr >= s[1] && vaddr-s[1] < s[2] && end-s[1] <= s[2] {
			b := make([]byte, end-vaddr)
			_, err := f.r.ReadAt(b, int64(vaddr-s[1]+s[0]))
			return b, err
		}
	}
	return nil, fmt.Errorf("address %#x is in no segment with code", vaddr)
}

// Base is the file's name without its folder.
func (f *Function) Base() string { return path.Base(f.Module) }

package live

import (
	"fmt"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/target"
)

// Mapped opens the files that a process has mapped, each once. It is for one goroutine.
type Mapped struct {
	p     *target.Process
	files map[FileKey]*MappedFile
}

// FileKey identifies a mapped file.
type FileKey struct {
	Dev, Inode uint64
	Path       string
}

// MappedFile is a mapped file, or memory without one.
type MappedFile struct {
	Key  FileKey
	File target.File // nil: none, or it cannot be opened
	segs [][3]uint64 // executable segments: offset, vaddr, size in the file
}

// NewMapped returns a Mapped for p.
func NewMapped(p *target.Process) *Mapped {
	return &Mapped{p: p, files: map[FileKey]*MappedFile{}}
}

// Of returns the file of a mapping.
func (m *Mapped) Of(mp *stack.Mapping) *MappedFile {
	k := keyOf(mp)
	f := m.files[k]
	if f != nil {
		return f
	}
	f = &MappedFile{Key: k}
	m.files[k] = f
	if mp.Inode == 0 && mp.Path != "[vdso]" {
		return f
	}
	file, err := m.p.OpenMapping(*mp)
	if err != nil {
		return f
	}
	f.File = file
	f.segs, _ = Segments(file) // not ELF: no segments
	return f
}

// Close closes the files, and forgets them.
func (m *Mapped) Close() {
	for _, f := range m.files {
		if f.File != nil {
			f.File.Close()
		}
	}
	clear(m.files)
}

// Code reports whether the file is ELF with machine code. Other memory has no addresses of its own.
func (f *MappedFile) Code() bool { return len(f.segs) > 0 }

// page is the smallest unit of a mapping.
const page = 4096

// Vaddr converts an address in a mapping of the file to the file's own one.
func (f *MappedFile) Vaddr(mp *stack.Mapping, addr uint64) (uint64, bool) {
	off := addr - mp.Start + mp.Off
	for _, s := range f.segs {
		// The first page of a segment may start before it.
		if off >= s[0]&^(page-1) && off < s[0]+s[2] {
			return s[1] + (off - s[0]), true
		}
	}
	return 0, false
}

// Finder returns the Finder of debug files of a process: in its file system, or in ours once it has ended, in
// the user's folders extra, and with more, which may be nil.
func Finder(p *target.Process, extra []string, more symbol.Finder) symbol.Finder {
	dirs := symbol.Dirs{Extra: extra}
	if p.Alive() {
		dirs.Root = fmt.Sprintf("/proc/%d/root", p.PID())
	}
	if more == nil {
		return dirs
	}
	return symbol.Finders{dirs, more}
}

// Made returns the names of code that the current program of the process generates. It calls t when it reads
// them.
func Made(p *target.Process, t func() *Target, fullNames bool) naming.Made {
	return naming.Made{PerfMap: naming.PerfMapOf(p.PerfMap), Objects: func() []*symbol.JITObject { return t().GDBObjects(fullNames) }}
}

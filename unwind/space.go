// Package unwind turns a thread's registers and a copy of its stack into frames. It tracks address
// spaces (which file is mapped where), compiles the files' unwind tables into rules, caches the
// rules and executes them.
//
// It does not read registers or memory of a process (packages sampler and target do), name
// functions (package symbol), or parse tables (unwind/cfi and unwind/gopcln), and
// knows no language: see Language.
//
// Any number of goroutines may use a Space at once. A Walker must be used by one goroutine, and so
// must a Thread.
package unwind

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/unwind/meter"
	"github.com/sliverprof/sliver/unwind/rule"
)

// Files opens the files that a target has mapped. Open is called once per file: when its first
// address is seen, or by Preload. The result is used as long as the file is mapped and is then left
// to the garbage collector. Open must not block; it must refuse device files.
type Files interface {
	Open(m stack.Mapping) (io.ReaderAt, error)
}

// Memory reads a target's memory at an offset that is the address. It is used for content that does
// not change while it is mapped: the vDSO and code.
type Memory interface {
	ReadAt(p []byte, addr int64) (n int, err error)
}

// A Space is a target's address space. Update replaces all mappings at once. Concurrent walks
// finish with the old ones.
type Space struct {
	arch  rule.Arch
	files Files
	mem   Memory

	snap     atomic.Pointer[snapshot]
	runtimes atomic.Pointer[runtimes]
	credit   meter.Credit  // for walks' reads of runtimes' data
	shown    atomic.Uint32 // see Runtimes

	found     sync.Mutex // held to replace runtimes: guards languages
	languages []*Language
	tables    []*Language // of NewSpace, for images
	mu        sync.Mutex  // held to replace snap: guards modules
	modules   map[fileKey]*module

	linkMu sync.Mutex          // guards the following
	linked map[string]bool     // names of files that stay mapped: the program and its dependencies
	needs  map[string][]string // dependencies of other files

	unopened map[string]*pause // by path: see unopened.go
}

// fileKey identifies a file. Inode numbers are reused only after the file is unmapped. The path
// distinguishes files on file systems that report one number for several.
type fileKey struct {
	dev, inode uint64
	path       string
	gen        uint32 // stack.Mapping.Gen
	start      uint64 // of an image in memory: the vDSO
}

// A snapshot is one immutable state of an address space.
type snapshot struct {
	regions []region // by address
	nr      uint64   // of the mappings, in order
	epoch   uint64   // a cached rule is valid as long as epoch is unchanged
	era     uint8    // of the most recent mappings: see turns
	probed  bool     // a region has probes
}

// A region is one mapping.
type region struct {
	start, end, off uint64
	exec, main      bool    // main: the main thread's stack
	made            bool    // a runtime may have code here: see markMade
	probes          bool    // copies of instructions with probes: see byProbe
	era             uint8   // see turns
	mod             *module // nil for memory without a file
}

// NewSpace returns an address space without mappings. mem may be nil; walks then stop at the vDSO
// and at signal trampolines without unwind tables. The runtimes of languages take part in walks in
// this order, from the time at which they are followed.
func NewSpace(arch rule.Arch, files Files, mem Memory, languages ...*Language) *Space {
	s := &Space{arch: arch, files: files, mem: mem, modules: map[fileKey]*module{}, languages: slices.Clone(languages), tables: slices.Clone(languages)}
	s.snap.Store(&snapshot{epoch: 1})
	s.runtimes.Store(&runtimes{})
	return s
}

// Runtimes returns a number that changes when walks start to show another runtime's frames. Earlier
// stacks lack these frames, even of threads that have not run since.
func (s *Space) Runtimes() uint32 { return s.shown.Load() }

// Arch returns the architecture of the target's code.
func (s *Space) Arch() rule.Arch { return s.arch }

// Update replaces the mappings. Files that are still mapped keep their loaded tables.
func (s *Space) Update(maps []stack.Mapping) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.snap.Load()
	next := &snapshot{regions: make([]region, 0, len(maps)), nr: old.nr + 1, epoch: old.epoch}
	used := make(map[fileKey]*module, len(s.modules))
	for i := range maps {
		m := &maps[i]
		if m.End <= m.Start {
			continue
		}
		r := region{start: m.Start, end: m.End, off: m.Off, exec: m.Exec, main: m.Path == "[stack]", probes: m.Path == "[uprobes]"}
		if key, ok := keyOf(m); ok {
			if r.mod = used[key]; r.mod == nil {
				if r.mod = s.modules[key]; r.mod == nil || r.mod.gone.Load() || r.mod.again.Load() {
					r.mod = newModule(s, m)
				}
				used[key] = r.mod
			}
		}
		next.regions = append(next.regions, r)
		next.probed = next.probed || r.probes
	}
	slices.SortFunc(next.regions, func(a, b region) int { return cmp.Compare(a.start, b.start) })
	if s.Properties().Has(Generates) {
		next.markMade(old)
	}
	if !next.keeps(old) {
		next.epoch++
	}
	next.turns(old)
	// Walks in progress keep using modules that are unmapped now.
	s.modules = used
	s.snap.Store(next)
}

func keyOf(m *stack.Mapping) (fileKey, bool) {
	switch {
	case m.Inode != 0:
		return fileKey{dev: m.Dev, inode: m.Inode, path: m.Path, gen: m.Gen}, true
	case m.Path == "[vdso]":
		return fileKey{path: m.Path, start: m.Start}, true
	}
	return fileKey{}, false
}

// keeps reports whether every rule that was cached for old is valid for s: code may have been
// added, but not replaced.
func (s *snapshot) keeps(old *snapshot) bool {
	for i := range old.regions {
		o := &old.regions[i]
		if !o.exec {
			continue
		}
		if o.mod != nil {
			n := s.find(o.start)
			if n == nil || !n.exec || n.mod != o.mod || n.start-n.off != o.start-o.off || n.end < o.end {
				return false
			}
			continue
		}
		for j := s.after(o.start); j < len(s.regions) && s.regions[j].start < o.end; j++ {
			if n := &s.regions[j]; n.exec && n.mod != nil {
				return false
			}
		}
	}
	return true
}

// after returns the index of the first region that ends after addr.
func (s *snapshot) after(addr uint64) int {
	return sort.Search(len(s.regions), func(i int) bool { return s.regions[i].end > addr })
}

// find returns the region that contains addr, or nil.
func (s *snapshot) find(addr uint64) *region {
	if i := s.after(addr); i < len(s.regions) && s.regions[i].start <= addr {
		return &s.regions[i]
	}
	return nil
}

// Preload opens every file with mapped code, so that the first walk does not have to. It returns
// the first error; Errors returns all.
func (s *Space) Preload() error {
	snap := s.snap.Load()
	for i := range snap.regions {
		if r := &snap.regions[i]; r.exec && r.mod != nil {
			r.mod.load()
			if bias, ok := r.mod.bias(r); ok {
				s.adopt(r.mod, bias)
			}
		}
	}
	if errs := s.Errors(); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// Errors returns why files that were opened so far cannot be unwound by tables. Their code is
// walked by frame pointers.
func (s *Space) Errors() []error {
	var errs []error
	seen := map[*module]bool{}
	snap := s.snap.Load()
	for i := range snap.regions {
		m := snap.regions[i].mod
		if m == nil || seen[m] || !m.loaded.Load() {
			continue
		}
		seen[m] = true
		if m.err != nil {
			errs = append(errs, fmt.Errorf("unwind tables of %s: %w", m.mapping.Path, m.err))
		}
	}
	return errs
}

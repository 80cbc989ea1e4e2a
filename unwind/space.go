// Package unwind turns a thread's registers and a copy of its stack into
// frames. It knows address spaces (which file is mapped where), compiles the
// files' unwind tables to rules, caches and executes them.
//
// It leaves to others where registers and memory come from (package sampler
// and package target: nothing here knows a process), what the functions are
// called (package symbol), and what the tables look like (unwind/cfi and
// unwind/gopcln).
//
// A Space may be used by any number of goroutines at once. A Walker belongs to
// one goroutine, and so does a Thread.
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

// Files opens the files that a target has mapped. Open is called once for a
// file, when its first address is seen or by Preload. What it returns stays in
// use as long as the file is mapped; it is left to the garbage collector then.
// It must not hang: device files are to be refused.
type Files interface {
	Open(m stack.Mapping) (io.ReaderAt, error)
}

// Memory reads a target's memory: the offset is the address. It is used for
// what does not change while it is mapped: the vDSO, and code.
type Memory interface {
	ReadAt(p []byte, addr int64) (n int, err error)
}

// A Space is a target's address space. Its mappings are replaced as a whole
// by Update; walks that run meanwhile finish on the old ones.
type Space struct {
	arch  rule.Arch
	files Files
	mem   Memory

	snap     atomic.Pointer[snapshot]
	runtimes atomic.Pointer[runtimes]
	credit   meter.Credit  // of what walks read of runtimes' data
	shown    atomic.Uint32 // see Runtimes

	found   sync.Mutex // held to replace runtimes
	mu      sync.Mutex // held to replace snap: guards modules
	modules map[fileKey]*module

	linkMu sync.Mutex          // guards what follows
	linked map[string]bool     // names of files that stay mapped: the program's own and what that is linked with
	needs  map[string][]string // what other files are linked with
}

// fileKey identifies a file. Inode numbers are reused only after the file is unmapped; the
// path is there for file systems that show one number for several files.
type fileKey struct {
	dev, inode uint64
	path       string
	gen        uint32 // stack.Mapping.Gen
	start      uint64 // of an image in memory: the vDSO
}

// A snapshot is one state of an address space, immutable.
type snapshot struct {
	regions []region // by address
	epoch   uint64   // a cached rule holds as long as this does not change
	era     uint8    // of the mappings that came last: see turns

	greenlets bool // Python's module for them is mapped
}

// A region is one mapping.
type region struct {
	start, end, off uint64
	exec, main      bool    // main: the main thread's stack
	made            bool    // V8 may have code there: see markMade
	era             uint8   // see turns
	mod             *module // nil for memory without a file
}

// NewSpace makes an address space without mappings. mem may be nil: the vDSO
// and signal trampolines without unwind tables are not walked through then.
func NewSpace(arch rule.Arch, files Files, mem Memory) *Space {
	s := &Space{arch: arch, files: files, mem: mem, modules: map[fileKey]*module{}}
	s.snap.Store(&snapshot{epoch: 1})
	s.runtimes.Store(&runtimes{})
	return s
}

// Runtimes is a number that changes when walks begin to show another runtime's frames: a
// stack that was walked before lacks them, also where its thread has not run since.
func (s *Space) Runtimes() uint32 { return s.shown.Load() }

// Arch is the machine that the target's code is for.
func (s *Space) Arch() rule.Arch { return s.arch }

// Update replaces the mappings. Files that are mapped still keep what is
// loaded of them.
func (s *Space) Update(maps []stack.Mapping) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.snap.Load()
	next := &snapshot{regions: make([]region, 0, len(maps)), epoch: old.epoch}
	used := make(map[fileKey]*module, len(s.modules))
	for i := range maps {
		m := &maps[i]
		if m.End <= m.Start {
			continue
		}
		r := region{start: m.Start, end: m.End, off: m.Off, exec: m.Exec, main: m.Path == "[stack]"}
		if key, ok := keyOf(m); ok {
			if r.mod = used[key]; r.mod == nil {
				if r.mod = s.modules[key]; r.mod == nil || r.mod.gone.Load() {
					r.mod = &module{space: s, mapping: *m}
				}
				used[key] = r.mod
			}
		}
		next.greenlets = next.greenlets || m.Exec && isGreenlet(m.Path)
		next.regions = append(next.regions, r)
	}
	slices.SortFunc(next.regions, func(a, b region) int { return cmp.Compare(a.start, b.start) })
	if s.runtimes.Load().v8 != nil {
		next.markMade(old)
	}
	if !next.keeps(old) {
		next.epoch++
	}
	next.turns(old)
	// Modules that are gone stay with the walks that use them.
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

// keeps reports whether every rule that was cached for old holds for s:
// code may have been added, but none replaced.
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

// after is the index of the first region that ends after addr.
func (s *snapshot) after(addr uint64) int {
	return sort.Search(len(s.regions), func(i int) bool { return s.regions[i].end > addr })
}

// find gives the region that holds addr, nil if there is none.
func (s *snapshot) find(addr uint64) *region {
	if i := s.after(addr); i < len(s.regions) && s.regions[i].start <= addr {
		return &s.regions[i]
	}
	return nil
}

// Preload opens every file that has code mapped, so that the first walk need
// not. It gives the first error; all of them are in Errors.
func (s *Space) Preload() error {
	snap := s.snap.Load()
	for i := range snap.regions {
		if r := &snap.regions[i]; r.exec && r.mod != nil {
			r.mod.load()
			if bias, ok := r.mod.bias(r); ok {
				s.adoptGo(r.mod, bias)
			}
		}
	}
	if errs := s.Errors(); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// Errors says which of the files that were opened so far cannot be unwound by
// tables, and why. Their code is walked by frame pointers.
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

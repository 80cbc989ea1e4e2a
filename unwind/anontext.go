package unwind

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Programs copy their own code to memory without a file, to have it on huge pages (HHVM,
// ClickHouse, BOLT's hugify, iodlr). It is still their file's: the rest of the file is mapped
// around it, and the load address determines which of its segments belongs there.

// Gathered gives the maps with code that is of no file as mappings of the file into whose
// place it was put. maps stay as they are. Calls must not overlap.
func (s *Space) Gathered(maps []stack.Mapping) []stack.Mapping {
	var out []stack.Mapping // nil: nothing was found yet
	for i := range maps {
		parts := s.ownText(maps, i)
		switch {
		case out == nil && parts == nil:
		case out == nil:
			out = append(slices.Clone(maps[:i]), parts...)
		case parts == nil:
			out = append(out, maps[i])
		default:
			out = append(out, parts...)
		}
	}
	if out == nil {
		return maps
	}
	return out
}

// noFile reports whether m is memory without a file in which code may have been put: plain
// memory, huge pages, or either with a name of the program's (PR_SET_VMA_ANON_NAME).
func noFile(m *stack.Mapping) bool {
	return m.Inode == 0 && (m.Path == "" || strings.HasPrefix(m.Path, "[anon:")) || strings.HasPrefix(m.Path, "/anon_hugepage")
}

// isFile reports whether m shows a file that may be a program or library.
func isFile(m *stack.Mapping) bool {
	return m.Inode != 0 && strings.HasPrefix(m.Path, "/") && !noFile(m)
}

// maxApart is how many mappings may lie between code and its file's.
const maxApart = 64

// ownText returns the mappings that replace the i-th one; nil: it does not hold a file's code.
func (s *Space) ownText(maps []stack.Mapping, i int) []stack.Mapping {
	m := &maps[i]
	if !m.Exec || !noFile(m) {
		return nil
	}
	before, after := nearest(maps, i, -1), nearest(maps, i, 1)
	if before == nil || after == nil || before.Dev != after.Dev || before.Inode != after.Inode || before.Path != after.Path {
		// The first segment of an image may have been moved with its code. Code that a runtime made lies
		// anywhere else.
		if after != nil && after.Start == m.End {
			return s.inside(m, after)
		}
		return nil
	}
	// Both belong to one image: they are as far apart as in the file, but for the alignment of segments.
	if apart := after.Start - before.Start - (after.Off - before.Off); after.Off < before.Off || apart > maxAlign {
		return nil
	}
	return s.inside(m, before)
}

// maxAlign bounds, in bytes, how much further apart two segments lie in memory than in the file.
const maxAlign = 16 << 20

// nearest returns the mapping of a file that comes first in a direction; nil: none is near.
func nearest(maps []stack.Mapping, i, step int) *stack.Mapping {
	for n := 0; n < maxApart; n++ {
		if i += step; i < 0 || i >= len(maps) {
			return nil
		}
		if isFile(&maps[i]) {
			return &maps[i]
		}
	}
	return nil
}

// inside splits m into the parts inside and outside of the code segments of near's file at
// its load address; nil: no part is inside.
func (s *Space) inside(m, near *stack.Mapping) (parts []stack.Mapping) {
	key, _ := keyOf(near)
	s.mu.Lock()
	mod := s.modules[key]
	if mod == nil {
		mod = &module{space: s, mapping: *near}
		s.modules[key] = mod
	}
	s.mu.Unlock()
	mod.load()
	bias, ok := mod.bias(&region{start: near.Start, end: near.End, off: near.Off, exec: near.Exec})
	if !ok {
		return nil
	}
	at := m.Start
	for i := range mod.progs {
		p := &mod.progs[i]
		if p.Flags&elf.PF_X == 0 {
			continue
		}
		skip := p.Vaddr & (smallPage - 1)
		lo, hi := p.Vaddr-skip+bias, (p.Vaddr+p.Filesz+smallPage-1)&^(smallPage-1)+bias
		from, to := max(lo, at), min(hi, m.End)
		if from >= to {
			continue
		}
		if from > at {
			rest := *m
			rest.Start, rest.End = at, from
			parts = append(parts, rest)
		}
		part := *m
		part.Start, part.End, part.Off = from, to, p.Off-skip+(from-lo)
		part.Dev, part.Inode, part.Path, part.Deleted, part.Gen = near.Dev, near.Inode, near.Path, near.Deleted, near.Gen
		parts = append(parts, part)
		at = to
	}
	if parts != nil && at < m.End {
		rest := *m
		rest.Start = at
		parts = append(parts, rest)
	}
	return parts
}

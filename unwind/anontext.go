package unwind

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/stack"
)

// Some programs copy their own code to anonymous memory to get huge pages (HHVM, ClickHouse, BOLT's
// hugify, iodlr). The code still belongs to the file: the rest of the file is mapped around it, and
// the load address determines which segment belongs there.

// Gathered returns maps with every anonymous mapping of a file's code presented as a mapping of
// that file. It does not modify maps. Calls must not overlap.
func (s *Space) Gathered(maps []stack.Mapping) []stack.Mapping {
	var out []stack.Mapping // nil: nothing found yet
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

// noFile reports whether m is memory without a file that may hold copied code: plain memory, huge
// pages, or either with a name set by the program (PR_SET_VMA_ANON_NAME).
func noFile(m *stack.Mapping) bool {
	return m.Inode == 0 && (m.Path == "" || strings.HasPrefix(m.Path, "[anon:")) || strings.HasPrefix(m.Path, "/anon_hugepage")
}

// isFile reports whether m maps a file that may be a program or library.
func isFile(m *stack.Mapping) bool {
	return m.Inode != 0 && strings.HasPrefix(m.Path, "/") && !noFile(m)
}

// maxApart bounds the number of mappings between copied code and its file's mappings.
const maxApart = 64

// ownText returns the mappings that replace the i-th one, or nil if it holds no file's code.
func (s *Space) ownText(maps []stack.Mapping, i int) []stack.Mapping {
	m := &maps[i]
	if !m.Exec || !noFile(m) {
		return nil
	}
	before, after := nearest(maps, i, -1), nearest(maps, i, 1)
	if before == nil || after == nil || before.Dev != after.Dev || before.Inode != after.Inode || before.Path != after.Path {
		// The first segment of an image may have been moved with its code. A runtime puts generated
		// code elsewhere.
		if after != nil && after.Start == m.End {
			return s.inside(m, after)
		}
		return nil
	}
	// Both mappings belong to one image if their distance matches the file's, except for segment
	// alignment.
	if apart := after.Start - before.Start - (after.Off - before.Off); after.Off < before.Off || apart > maxAlign {
		return nil
	}
	return s.inside(m, before)
}

// maxAlign bounds how much further apart two segments are in memory than in the file, in bytes.
const maxAlign = 16 << 20

// nearest returns the first mapping of a file in a direction, or nil if none is near.
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

// inside splits m into the parts inside and outside of the code segments of near's file at its load
// address. It returns nil if no part is inside.
func (s *Space) inside(m, near *stack.Mapping) (parts []stack.Mapping) {
	key, _ := keyOf(near)
	s.mu.Lock()
	mod := s.modules[key]
	if mod == nil {
		mod = newModule(s, near)
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

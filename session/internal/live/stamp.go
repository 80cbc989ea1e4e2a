package live

import (
	"github.com/sliverprof/sliver/internal/limits"
	"github.com/sliverprof/sliver/stack"
)

// maxCodeFiles limits the files with code of one process that are opened, together with limits.Files. The largest desktop programs map some 500. Code of
// further files is walked by frame pointers and has no names.
const maxCodeFiles = 4096

func codeFiles() int { return max(int(min(limits.Files(), maxCodeFiles)), 64) }

// stamp sets Mapping.Gen, which distinguishes files that had the same path and inode number
// in turn: a file that was rewritten, or that got the number of a deleted one. Gen comes from
// the modification time when the file was first mapped. A mapping that did not move keeps its
// Gen unless a walk found another file there. A file that could not be opened is tried again.
//
// Files with code beyond most of them become memory without a file: Inode 0. Files that were opened
// before come first.
func (t *Target) stamp(maps []stack.Mapping, most int) {
	old := map[FileKey]*stack.Mapping{}
	for i := range t.maps {
		if m := &t.maps[i]; m.Inode != 0 {
			if k := keyOf(m); old[k] == nil {
				old[k] = m
			}
		}
	}
	code := map[FileKey]bool{} // of files with code: whether it was opened before
	again := 0
	for i := range maps {
		if m := &maps[i]; m.Exec && m.Inode != 0 {
			k := keyOf(m)
			if _, ok := code[k]; !ok {
				code[k] = old[k] != nil
				if code[k] {
					again++
				}
			}
		}
	}
	room := max(most-again, 0) // for files that are new
	gens := map[FileKey]uint32{}
	left := map[FileKey]bool{}
	for i := range maps {
		m := &maps[i]
		if m.Inode == 0 {
			continue
		}
		k := keyOf(m)
		gen, ok := gens[k]
		if opened, exec := code[k]; !ok && !left[k] {
			was := old[k]
			gone := was != nil && t.space.Gone(was)
			switch {
			case exec && !opened && room == 0:
				left[k] = true
			case was != nil && was.Start == m.Start && was.Off == m.Off && !gone && !t.space.Unopened(was):
				gen = was.Gen
			case exec:
				if gen = t.shares.written(t.proc, *m); gone && gen == was.Gen {
					gen++
				}
			}
			if exec && !opened && room > 0 {
				room--
			}
			gens[k] = gen
		}
		if m.Gen = gen; left[k] {
			m.Inode = 0
		}
	}
	t.left.Store(int64(len(left)))
}

func keyOf(m *stack.Mapping) FileKey { return FileKey{m.Dev, m.Inode, m.Path} }

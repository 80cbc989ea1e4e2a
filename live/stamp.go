package live

import "github.com/sliverprof/sliver/stack"

// stamp sets Mapping.Gen, which distinguishes files that had the same path and inode number
// in turn: a file that was rewritten, or that got the number of a deleted one. Gen comes from
// the modification time when the file was first mapped. A mapping that did not move keeps its
// Gen unless a walk found another file there.
func (t *Target) stamp(maps []stack.Mapping) {
	type key struct {
		dev, inode uint64
		path       string
	}
	old := map[key]*stack.Mapping{}
	for i := range t.maps {
		if m := &t.maps[i]; m.Inode != 0 {
			if k := (key{m.Dev, m.Inode, m.Path}); old[k] == nil {
				old[k] = m
			}
		}
	}
	gens := map[key]uint32{}
	for i := range maps {
		m := &maps[i]
		if m.Inode == 0 {
			continue
		}
		k := key{m.Dev, m.Inode, m.Path}
		gen, ok := gens[k]
		if !ok {
			was := old[k]
			switch gone := was != nil && t.space.Gone(was); {
			case was != nil && was.Start == m.Start && was.Off == m.Off && !gone:
				gen = was.Gen
			case executable(maps[i:], m):
				if gen = t.shares.written(t.proc, *m); gone && gen == was.Gen {
					gen++
				}
			}
			gens[k] = gen
		}
		m.Gen = gen
	}
}

// executable reports whether one of a file's mappings, of which m is the first, has code.
func executable(maps []stack.Mapping, m *stack.Mapping) bool {
	for i := range maps {
		if maps[i].Exec && maps[i].Inode == m.Inode && maps[i].Dev == m.Dev {
			return true
		}
		if maps[i].Start-m.Start > 1<<32 {
			break
		}
	}
	return false
}

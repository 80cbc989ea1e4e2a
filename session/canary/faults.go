package canary

import (
	"path"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// opened notes the file of an open, which may be mapped.
func (c *Canary) opened(r *kernel.IORecord) {
	if r.Ino == 0 || !path.IsAbs(r.Path) {
		return
	}
	if len(c.inodes) >= maxNames {
		clear(c.inodes)
	}
	c.inodes[inode{r.Dev, r.Ino}] = r.Path
}

// mapped returns the file of a page fault: the one whose page the kernel read, or the one that is mapped at
// the address now. "": neither is known, since the memory is not mapped any more.
func (c *Canary) mapped(r *kernel.IORecord) (string, iowatch.Kind) {
	if p := c.inodes[inode{r.Dev, r.Ino}]; r.Ino != 0 && p != "" {
		return p, iowatch.KindFile
	}
	if c.maps == nil {
		c.maps, _ = c.proc.Maps() // none: the process ends
		slices.SortFunc(c.maps, func(a, b stack.Mapping) int {
			if a.Start < b.Start {
				return -1
			}
			return 1
		})
	}
	i, _ := slices.BinarySearchFunc(c.maps, r.Addr, func(m stack.Mapping, at uint64) int {
		if m.End <= at {
			return -1
		}
		return 1
	})
	switch {
	case i == len(c.maps) || r.Addr < c.maps[i].Start:
		return "", iowatch.KindUnknown
	case path.IsAbs(c.maps[i].Path):
		return c.maps[i].Path, iowatch.KindFile
	case c.maps[i].Path == "" || strings.HasPrefix(c.maps[i].Path, "["):
		return iowatch.Swapped, iowatch.KindUnknown
	}
	return "", iowatch.KindUnknown
}

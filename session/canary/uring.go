package canary

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/iowatch"
)

// RingFile is the operations on a file through io_uring, which pass by the system calls of reads and writes.
type RingFile struct {
	Path    string
	Ops     uint64 // reads and writes that succeeded
	Syncs   uint64
	Others  uint64 // accepts, opens, polls …
	Errors  uint64
	Read    uint64 // bytes
	Written uint64
	Time    uint64 // ns from submissions to completions of reads, writes and syncs
	Longest uint64
}

// ringFD is a descriptor that io_uring uses, or a position in the table of registered files.
type ringFD struct {
	fd    int32
	gen   uint32
	fixed bool
}

// ringPaths finds the paths of descriptors that io_uring uses, while they are open.
func (c *Canary) ringPaths() {
	if !c.uring {
		return
	}
	_ = c.io.Rings(func(u *kernel.RingUse) { // uringLine has the error
		k := ringFD{u.FD, u.Gen, u.Fixed}
		if c.rings[k] != "" || len(c.rings) >= maxNames {
			return
		}
		name := ""
		if !u.Fixed {
			if name, _ = c.Engine.Path(u.FD, u.Gen); name == "" && c.io.Gen(u.FD) == u.Gen {
				name, _ = c.link(u.FD)
			}
		}
		if name == "" && u.Ino != 0 {
			if name = c.inodes[inode{u.Dev, u.Ino}]; name == "" {
				name = c.inodes[inode{0, u.Ino}] // it was open before
			}
		}
		c.rings[k] = name
	})
}

// Rings returns the files that io_uring used, those with the most time first.
func (c *Canary) Rings() []RingFile {
	if !c.uring {
		return nil
	}
	files := map[string]*RingFile{}
	_ = c.io.Rings(func(u *kernel.RingUse) { // uringLine has the error
		name := cmp.Or(c.rings[ringFD{u.FD, u.Gen, u.Fixed}], fmt.Sprintf("descriptor %d", u.FD))
		if u.FD < 0 {
			name = "no descriptor" // timeouts, no-operations
		} else if u.Fixed && c.rings[ringFD{u.FD, u.Gen, true}] == "" {
			name = fmt.Sprintf("registered file %d", u.FD)
		}
		f := files[name]
		if f == nil {
			f = &RingFile{Path: name}
			files[name] = f
		}
		good := u.Ops - u.Errors
		f.Errors += u.Errors
		switch u.Op {
		case iowatch.OpRead:
			f.Ops, f.Read = f.Ops+good, f.Read+u.Bytes
		case iowatch.OpWrite:
			f.Ops, f.Written = f.Ops+good, f.Written+u.Bytes
		case iowatch.OpSync:
			f.Syncs += good
		default:
			f.Others += good
			return
		}
		f.Time += u.Time
		f.Longest = max(f.Longest, u.Longest)
	})
	var out []RingFile
	for _, f := range files {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b RingFile) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Ops+b.Syncs+b.Others, a.Ops+a.Syncs+a.Others), cmp.Compare(a.Path, b.Path))
	})
	return out
}

// uringLine says that operations pass by.
func (c *Canary) uringLine() string {
	var n uint64
	if err := c.io.Rings(func(u *kernel.RingUse) { n += u.Ops }); err != nil {
		return fmt.Sprintf("operations through io_uring: they pass by these system calls, so that no rule sees them, and their sums are not known: %v", err)
	}
	return fmt.Sprintf("%s through io_uring, which passes by these system calls, so that no rule sees it; the sums are apart", plural.Of(n, "operation"))
}

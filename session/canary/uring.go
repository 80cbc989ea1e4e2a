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

// ringFD is a file that io_uring uses, by its descriptor or its position in the table of registered files.
type ringFD struct {
	fd    int32
	gen   uint32
	fixed bool
	file  inode
}

func ringOf(u *kernel.RingUse) ringFD {
	return ringFD{u.FD, u.Gen, u.Fixed, inode{u.Dev, u.Ino}}
}

// ringPaths finds the paths of files that io_uring uses, while they are open.
func (c *Canary) ringPaths() {
	if !c.uring {
		return
	}
	_ = c.io.Rings(func(u *kernel.RingUse) { // uringLine has the error
		k := ringOf(u)
		if u.FD < 0 || c.rings[k] != "" || len(c.rings) >= maxNames {
			return
		}
		name := ""
		if u.Ino != 0 {
			name = cmp.Or(c.inodes[k.file], c.inodes[inode{0, u.Ino}]) // or it was open before
		}
		if name == "" && !u.Fixed && c.stillOf(u) {
			if name, _ = c.Engine.Path(u.FD, u.Gen); name == "" && c.io.Gen(u.FD) == u.Gen {
				name, _ = c.link(u.FD)
			}
		}
		c.rings[k] = name
	})
}

// stillOf reports whether the descriptor of u is of the same file, as far as is known: io_uring may have closed
// it, and opened another file.
func (c *Canary) stillOf(u *kernel.RingUse) bool {
	now := c.info(u.FD).ino
	return u.Ino == 0 || now == 0 || now == u.Ino
}

// Rings returns the files that io_uring used, those with the most time first.
func (c *Canary) Rings() []RingFile {
	if !c.uring {
		return nil
	}
	files := map[string]*RingFile{}
	_ = c.io.Rings(func(u *kernel.RingUse) { // uringLine has the error
		name := cmp.Or(c.rings[ringOf(u)], fmt.Sprintf("descriptor %d", u.FD))
		if u.FD < 0 {
			name = "no descriptor" // opens, closes, timeouts
		} else if u.Fixed && c.rings[ringOf(u)] == "" {
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

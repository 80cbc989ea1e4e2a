package oneshot

import (
	"encoding/binary"
	"fmt"
	"path"
	"regexp"
	"runtime"
	"strings"

	"github.com/sliverprof/sliver/live"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/stacks"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
)

// Copies walks stacks of a process that the kernel has copied, and names their frames. Equal stacks
// get the same number. It belongs to the goroutine that made it, which is locked to its OS thread for
// good.
type Copies struct {
	v    *view
	once *sampler.Once
	by   map[stack.TID]*sampler.Copied
	ids  map[string]uint32
	all  []copied // by number
	key  []byte

	Incomplete uint64 // stacks that could not be followed to their end
	Dropped    uint64 // stacks beyond maxCopies
}

// copied is one stack.
type copied struct {
	frames []stack.Frame
	reason stack.Reason
	named  []stacks.Frame
}

// Bounds of Copies.
const (
	maxCopies  = 1 << 16 // different stacks
	maxCopiers = 1 << 14 // threads
)

// OpenCopies prepares to walk stacks of p.
func OpenCopies(p *target.Process, o Options) (*Copies, error) {
	v, err := open(p, &o)
	if err != nil {
		if v != nil {
			v.close()
		}
		return nil, err
	}
	runtime.LockOSThread()
	once, err := sampler.NewOnce(v.t, sampler.Config{Stop: sampler.StopAuto, Harmless: live.Harmless})
	if err != nil {
		v.close()
		return nil, err
	}
	return &Copies{v: v, once: once, by: map[stack.TID]*sampler.Copied{}, ids: map[string]uint32{}, all: make([]copied, 1)}, nil
}

// Walk walks a copy of a thread's stack: registers, pages of other memory, and the stack from an
// address up. It returns the stack's number; 0: there are too many.
func (c *Copies) Walk(tid stack.TID, at stack.Time, regs *stack.Regs, pages []unwind.Block, st unwind.Block) uint32 {
	th := c.by[tid]
	if th == nil {
		if len(c.by) >= maxCopiers {
			clear(c.by)
		}
		in, err := c.v.t.Info(tid)
		if err != nil { // it has ended
			in = stack.ThreadInfo{TID: tid, Main: int(tid) == c.v.p.PID()}
		}
		th = c.once.NewCopied(&in)
		c.by[tid] = th
	}
	blocks := c.planned(c.once.PlanCopied(th), pages)
	s := c.once.WalkCopied(th, at, regs, append(blocks, st), c.read)
	frames := s.Stack
	if s.Reason != stack.ReasonNone {
		c.Incomplete++
		if len(frames) > 0 {
			frames = frames[:len(frames)-1] // the last one is the reason
		}
	}
	if c.v.py != nil {
		frames = c.v.py.learn(frames)
	}
	return c.number(frames, s.Reason)
}

// Pages returns the pages of memory to copy with the thread's next stack.
func (c *Copies) Pages(tid stack.TID, most int) (pages []uint64) {
	th := c.by[tid]
	if th == nil {
		return nil
	}
	for _, s := range c.once.PlanCopied(th) {
		for a := s.Addr &^ (page - 1); a < s.Addr+uint64(s.Len) && len(pages) < most; a += page {
			known := false
			for _, p := range pages {
				known = known || p == a
			}
			if !known {
				pages = append(pages, a)
			}
		}
	}
	return pages
}

// planned returns the spans out of copied pages, or as they are now.
func (c *Copies) planned(spans []stack.Span, pages []unwind.Block) []unwind.Block {
	var out []unwind.Block
	for _, s := range spans {
		b, ok := cut(s, pages)
		if !ok {
			b = c.read([]stack.Span{s})[0]
		}
		out = append(out, b)
	}
	return out
}

// cut takes a span out of pages.
func cut(s stack.Span, pages []unwind.Block) (unwind.Block, bool) {
	b := unwind.Block{Addr: s.Addr}
	for at := s.Addr; at < s.Addr+uint64(s.Len); {
		found := false
		for _, p := range pages {
			if off := at - p.Addr; off < uint64(len(p.Data)) {
				part := p.Data[off:min(uint64(len(p.Data)), off+s.Addr+uint64(s.Len)-at)]
				b.Data = append(b.Data, part...)
				at += uint64(len(part))
				found = true
				break
			}
		}
		if !found {
			return b, false
		}
	}
	return b, true
}

// read reads spans as they are now. One that cannot be read is empty.
func (c *Copies) read(spans []stack.Span) []unwind.Block {
	out := make([]unwind.Block, len(spans))
	for i, s := range spans {
		out[i].Addr = s.Addr
		if s.Len <= 0 || s.Len > maxSpan {
			continue
		}
		b := make([]byte, s.Len)
		if n, err := c.v.p.ReadAt(b, s.Addr); err == nil || n > 0 {
			out[i].Data = b[:n]
		}
	}
	return out
}

// maxSpan bounds one block of memory.
const maxSpan = 1 << 20

func (c *Copies) number(frames []stack.Frame, why stack.Reason) uint32 {
	c.key = c.key[:0]
	for i := range frames {
		c.key = binary.LittleEndian.AppendUint64(c.key, frames[i].PC)
		c.key = binary.LittleEndian.AppendUint64(c.key, frames[i].Func)
	}
	if id, ok := c.ids[string(c.key)]; ok {
		return id
	}
	if len(c.all) > maxCopies {
		c.Dropped++
		return 0
	}
	id := uint32(len(c.all))
	c.ids[string(c.key)] = id
	c.all = append(c.all, copied{frames: append([]stack.Frame(nil), frames...), reason: why})
	// Code of a runtime moves and goes away: it is named now. Files can wait.
	c.v.names.ask(c.v.t.Maps(), frames)
	return id
}

// libraries are files in whose functions every call ends: they say nothing about a place in a program.
var libraries = regexp.MustCompile(`^(libc|libpthread|ld-linux.*|ld-musl.*|libc-\d.*|libpthread-\d.*)(\.so.*)?$`)

// Top identifies the top four frames of a stack: those of a managed runtime if it has any, and those
// outside the C library otherwise.
func (c *Copies) Top(id uint32) string {
	if int(id) >= len(c.all) {
		return ""
	}
	frames := c.all[id].frames
	managed := false
	for i := range frames {
		managed = managed || frames[i].Kind.Managed()
	}
	var b strings.Builder
	n := 0
	for i := range frames {
		f := &frames[i]
		if managed && !f.Kind.Managed() {
			continue
		}
		if !managed && machine(f) {
			if pl := c.v.names.at[lookup(f)]; pl.mod != nil && libraries.MatchString(path.Base(pl.mod.path)) {
				continue
			}
		}
		fmt.Fprintf(&b, "%x.%x ", f.PC, f.Func)
		if n++; n == 4 {
			break
		}
	}
	return b.String()
}

// Frames returns the named frames of a stack, leaf first, and why it ends early.
func (c *Copies) Frames(id uint32) ([]stacks.Frame, stack.Reason) {
	if id == 0 || int(id) >= len(c.all) {
		return nil, stack.ReasonNone
	}
	x := &c.all[id]
	if x.named == nil {
		c.v.names.resolve()
		x.named = c.v.names.frames(x.frames)
	}
	return x.named, x.reason
}

// Lines returns a stack as sliver stack shows it, a line for each frame.
func (c *Copies) Lines(id uint32, full bool) []string {
	frames, why := c.Frames(id)
	if len(frames) == 0 {
		return nil
	}
	dir, _ := c.v.p.Dir() // without it, paths are whole
	s := stacks.Snapshot{Dir: dir, Full: full}
	return s.Lines(frames, why)
}

// Close releases everything.
func (c *Copies) Close() {
	c.once.Close()
	c.v.close()
}

// Exec forgets the program: the process runs another one. The stacks so far get their names first.
func (c *Copies) Exec() {
	v := c.v
	for id := range c.all {
		c.Frames(uint32(id))
	}
	clear(c.ids)
	clear(c.by)
	clear(v.names.at)
	v.py, v.js, v.names.py, v.names.js, v.names.jvm = nil, nil, nil, nil, nil
	_, _ = v.t.Remap(true) // if the process is gone, no stack follows
	c.once.Exec()
	c.Refresh()
}

// Refresh looks for runtimes that were loaded since: a command is watched from its first instruction.
func (c *Copies) Refresh() {
	v := c.v
	v.lacks = v.lacks[:0]
	if v.py == nil {
		v.python()
	}
	if v.js == nil {
		v.javascript()
	}
	if v.names.jvm == nil {
		v.java()
	}
}

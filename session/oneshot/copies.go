package oneshot

import (
	"encoding/binary"
	"fmt"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/sliverprof/sliver/lang"
	"github.com/sliverprof/sliver/sampler"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/stacks"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
	"github.com/sliverprof/sliver/unwind"
	"github.com/sliverprof/sliver/unwind/managed"
)

// Copies walks stacks of a process that the kernel has copied, and names their frames. Equal stacks
// get the same number. It belongs to the goroutine that made it, which is locked to its OS thread for
// good.
type Copies struct {
	v    *view
	once *sampler.Once
	by   map[stack.TID]*copier
	ids  map[string]uint32
	all  []copied // by number
	key  []byte

	mapped stack.Time // when the maps were read last because of a stack
	awaits bool       // see Expected

	Walked     uint64                  // stacks
	Incomplete [stack.MaxReason]uint64 // of those, that lack frames, by reason; ReasonNone: the runtime's memory was not copied
	Dropped    uint64                  // stacks beyond maxCopies
}

// copier is a thread whose stacks are copied.
type copier struct {
	*sampler.Copied
	looks  int      // by Learn
	whole  bool     // a look or a walk had all frames since the runtime was found
	beyond []uint64 // stack pages that walks needed and that are beyond the usual copy, the last one first
}

// copied is one stack.
type copied struct {
	frames []stack.Frame
	reason stack.Reason
	gap    bool // frames of a runtime are missing
	named  []stacks.Frame
}

// Bounds of Copies.
const (
	maxCopies  = 1 << 16 // different stacks
	maxCopiers = 1 << 14 // threads
	maxGuesses = 8       // further walks of a stack
	maxLooks   = 4       // looks of Learn at a thread
	maxBeyond  = 4       // stack pages beyond the usual copy
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
	c := &Copies{v: v, once: once, by: map[stack.TID]*copier{}, ids: map[string]uint32{}, all: make([]copied, 1)}
	c.hold()
	c.indirect()
	return c, nil
}

// Copy is what the kernel copied of a thread within a call.
type Copy struct {
	Regs   stack.Regs
	Pages  []unwind.Block // that Pages asked for
	Beside []unwind.Block // what Links asked for, and pages of the stack behind Stack
	Stack  unwind.Block   // from an address up
}

// Walk walks a copy of a thread's stack. It returns the stack's number; 0: there are too many.
func (c *Copies) Walk(tid stack.TID, at stack.Time, k *Copy) uint32 {
	th := c.thread(tid)
	regs, pages := &k.Regs, k.Pages
	plan := func() []unwind.Block { return c.planned(th, c.once.PlanCopied(th.Copied), k) }
	blocks := plan()
	s := c.once.WalkCopied(th.Copied, at, regs, append(slices.Clip(blocks), k.Stack), c.read)
	if s.Reason == stack.ReasonUnmapped && c.remapped(at) || c.awaits && !c.Managed() && c.Begun() {
		s = c.once.WalkCopied(th.Copied, at, regs, append(slices.Clip(plan()), k.Stack), c.read)
	}
	// Of a thread without a plan, each walk finds which memory the next one needs: the copy may have it.
	for range maxGuesses {
		if len(pages) == 0 || !th.Gaps() {
			break
		}
		more := plan()
		if len(more) <= len(blocks) {
			break
		}
		blocks = more
		s = c.once.WalkCopied(th.Copied, at, regs, append(slices.Clip(blocks), k.Stack), c.read)
	}
	if s.Reason == stack.ReasonShort {
		th.further(c.once.Beyond())
	}
	frames := s.Stack
	if s.Reason != stack.ReasonNone && len(frames) > 0 {
		frames = frames[:len(frames)-1] // the last one is the reason
	}
	id := c.number(frames, s.Reason, th.Gaps())
	c.Walked++
	th.whole = th.whole || c.Managed() && c.Complete(id)
	if !c.Complete(id) {
		c.Incomplete[s.Reason%stack.MaxReason]++
	}
	return id
}

// remapEvery is the least time in ns between two readings of the maps because of stacks.
const remapEvery = 20_000_000

// remapped reads the maps if a stack of time at has code that they lack, and reports whether they changed.
// Maps that were read after that time would have it.
func (c *Copies) remapped(at stack.Time) bool {
	now := target.Now()
	if at < c.mapped || now-c.mapped < remapEvery {
		return false
	}
	c.mapped = now
	changed, _ := c.v.t.Mapped() // a process that has ended keeps its last maps
	if changed {
		c.hold()
	}
	return changed
}

func (c *Copies) thread(tid stack.TID) *copier {
	th := c.by[tid]
	if th == nil {
		if len(c.by) >= maxCopiers {
			clear(c.by)
		}
		in, err := c.v.t.Info(tid)
		if err != nil { // it has ended
			in = stack.ThreadInfo{TID: tid, Main: int(tid) == c.v.p.PID()}
		}
		th = &copier{Copied: c.once.NewCopied(&in)}
		c.by[tid] = th
	}
	return th
}

// Learn looks at the threads of a process with a runtime until a look or a walk had all frames, and returns those for which Pages
// has something. Without it, the first stacks lack the runtime's frames.
func (c *Copies) Learn() (tids []stack.TID) {
	if !c.Managed() {
		return nil
	}
	all, err := c.v.t.Threads(nil)
	if err != nil {
		return nil
	}
	for _, tid := range all {
		th := c.by[tid]
		if th != nil && (th.whole || th.looks >= maxLooks) {
			continue
		}
		f, err := c.v.t.Open(&stack.ThreadInfo{TID: tid})
		if err != nil {
			continue // it has ended
		}
		if th = c.thread(tid); c.once.LearnCopied(th.Copied, f) == nil {
			tids = append(tids, tid)
			th.whole = !th.Gaps()
		}
		th.looks++
		f.Close()
	}
	return tids
}

// Managed reports whether the process has a runtime whose frames need other memory than the stack.
func (c *Copies) Managed() bool { return c.v.t.Space().Managed() }

// Roams reports whether the process's tasks move between its threads: it has a Go runtime.
func (c *Copies) Roams() bool { return c.v.t.Space().Properties().Has(unwind.Tasks) }

// Complete reports whether a stack has no gaps.
func (c *Copies) Complete(id uint32) bool {
	return id != 0 && int(id) < len(c.all) && c.all[id].reason == stack.ReasonNone && !c.all[id].gap
}

// page is the size of a page, in bytes.
const page = 4096

// Pages returns the pages of memory to copy with the thread's next stack.
func (c *Copies) Pages(tid stack.TID, most int) (pages []uint64) {
	th := c.by[tid]
	if th == nil {
		return nil
	}
	add := func(s stack.Span) {
		for a := s.Addr &^ (page - 1); a < s.Addr+uint64(s.Len) && len(pages) < most; a += page {
			if !slices.Contains(pages, a) {
				pages = append(pages, a)
			}
		}
	}
	for _, a := range th.beyond {
		add(stack.Span{Addr: a, Len: 1})
	}
	// Code can be read later, other memory cannot.
	code := th.Code()
	isCode := func(s stack.Span) bool { return slices.Contains(code, s) }
	spans := c.once.PlanCopied(th.Copied)
	for _, s := range spans {
		if !isCode(s) {
			add(s)
		}
	}
	for _, s := range spans {
		if isCode(s) {
			add(s)
		}
	}
	return pages
}

// further notes that a walk lacked the stack's memory at addr.
func (th *copier) further(addr uint64) {
	for _, a := range [2]uint64{addr&^(page-1) + page, addr &^ (page - 1)} {
		if !slices.Contains(th.beyond, a) {
			th.beyond = slices.Insert(th.beyond, 0, a)
		}
	}
	th.beyond = th.beyond[:min(len(th.beyond), maxBeyond)]
}

// Links returns the list of the thread's frames that the kernel can follow for its next stack.
func (c *Copies) Links(tid stack.TID) (stack.Links, bool) {
	th := c.by[tid]
	if th == nil {
		return stack.Links{}, false
	}
	return c.once.LinksCopied(th.Copied)
}

// planned returns the parts of a copy that a walk needs beside the stack: spans in its pages, the stack's further pages,
// and Beside.
func (c *Copies) planned(th *copier, spans []stack.Span, k *Copy) []unwind.Block {
	var out []unwind.Block
	for _, s := range spans {
		if b, ok := cut(s, k.Pages); ok {
			out = append(out, b)
		}
	}
	for _, p := range k.Pages {
		if slices.Contains(th.beyond, p.Addr) {
			out = append(out, p)
		}
	}
	return append(out, k.Beside...)
}

// cut takes a span, or its beginning, out of pages.
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
			return b, len(b.Data) > 0 // the rest of it may never have been used, so that the kernel had no page
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

func (c *Copies) number(frames []stack.Frame, why stack.Reason, gap bool) uint32 {
	c.key = append(c.key[:0], byte(why))
	if gap {
		c.key = append(c.key, 1)
	}
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
	c.all = append(c.all, copied{frames: append([]stack.Frame(nil), frames...), reason: why, gap: gap})
	// Code of a runtime moves and goes away: it is named now. Files can wait.
	c.v.names.ask(c.v.t.Maps(), frames)
	c.all[id].gap = gap || c.lost(frames)
	return id
}

// lost reports whether frames of a runtime are missing without a trace: a command may have made calls before
// its interpreter was found, or it has ended.
func (c *Copies) lost(frames []stack.Frame) bool {
	if c.Managed() && slices.ContainsFunc(frames, c.foreign) {
		return true
	}
	found := false
	for i := range frames {
		f := &frames[i]
		if f.Kind.Managed() {
			return false
		}
		if machine(f) {
			pl := c.v.names.at[lookup(f)]
			found = found || pl.mod != nil && slices.ContainsFunc(live.Languages(), func(l *lang.Language) bool {
				return l.Runs != nil && l.Runs(pl.mod.Key.Path) && !c.marks(l)
			})
		}
	}
	return found
}

// marks reports whether walks show where frames of a language are missing. A runtime that has not begun has no frames.
func (c *Copies) marks(l *lang.Language) bool {
	return l.Stacks.Expect != nil && (c.awaits || c.v.t.Space().Followed(l.Stacks) != nil)
}

// foreign reports whether a frame is machine code of no file. In a process with a runtime that is a function of the
// runtime, of which a walk after the end of the process knows no more.
func (c *Copies) foreign(f stack.Frame) bool {
	if !machine(&f) {
		return false
	}
	mod := c.v.names.at[lookup(&f)].mod
	return mod == nil || mod.Key.Path == ""
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
			if pl := c.v.names.at[lookup(f)]; pl.mod != nil && libraries.MatchString(path.Base(pl.mod.Key.Path)) {
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
	lines := s.Lines(frames, why)
	if c.all[id].gap {
		lines = append(lines, "… frames of the runtime are missing: its memory was not in the copy")
	}
	return lines
}

// Close releases everything.
func (c *Copies) Close() {
	c.once.Close()
	c.v.close()
}

// indirect follows the runtimes that have no table with one: walks then read their frames from the copy
// alone.
func (c *Copies) indirect() {
	v := c.v
	for _, l := range live.Languages() {
		if !l.Direct || v.names.has(l) {
			continue
		}
		v.t.Space().Forget(l.Stacks)
		v.names.followed = slices.DeleteFunc(v.names.followed, func(x followed) bool { return x.Language == l })
		v.followOne(l, managed.NewTable(l.Range, nil))
	}
}

// has reports whether frames of a language are addresses in a table.
func (n *names) has(l *lang.Language) bool {
	return slices.ContainsFunc(n.followed, func(x followed) bool { return x.Language == l && x.table != nil })
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
	v.names.followed = nil
	_, _ = v.t.Remap(true) // if the process is gone, no stack follows
	c.hold()
	c.once.Exec()
	c.Refresh()
}

// Mapped reads the process's maps: it has mapped a file.
func (c *Copies) Mapped() {
	if changed, _ := c.v.t.Mapped(); changed {
		c.hold()
	}
}

// maxHeld bounds the files that hold opens.
const maxHeld = 256

// hold opens the files with code while the process lives: stacks may be walked and named after its end.
func (c *Copies) hold() {
	c.v.t.Preload()
	maps := c.v.t.Maps()
	for i := range maps {
		if maps[i].Exec && len(c.v.names.mods) < maxHeld {
			c.v.names.module(&maps[i])
		}
	}
}

// Expected returns the list of the frames of the first thread of a runtime that is mapped and has not begun.
func (c *Copies) Expected() (stack.Links, bool) {
	l, ok := stack.Links{}, false
	if !c.Managed() {
		l, ok = c.v.t.Space().Expected()
	}
	c.awaits = ok
	return l, ok
}

// Begun looks whether the runtime of Expected has begun.
func (c *Copies) Begun() bool {
	c.v.lacks = c.v.lacks[:0]
	c.indirect()
	return c.Managed()
}

// Refresh looks for runtimes that were loaded since: a command is watched from its first instruction.
func (c *Copies) Refresh() {
	v := c.v
	if changed, _ := v.t.Remap(false); changed {
		c.hold()
	}
	v.lacks = v.lacks[:0]
	c.indirect()
	for _, l := range live.Languages() {
		if !l.Direct && !v.names.has(l) {
			v.followOne(l, managed.NewTable(l.Range, nil))
		}
	}
}

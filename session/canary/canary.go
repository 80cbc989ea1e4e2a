// Package canary watches the I/O of a live process: it joins the kernel's programs (engine/kernel),
// the rules (iowatch), and stacks with names (oneshot). Outside is what remains without the right to
// load programs. Who prints, and what a recording is, is not its business.
//
// A Canary belongs to the goroutine that opened it, which is locked to its OS thread for good.
package canary

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/sliverprof/sliver/engine/kernel"
	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/session/oneshot"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// Options of a Canary.
type Options struct {
	Rules iowatch.Config
	Names oneshot.Options
	// Each, if not nil, is called for each operation that took at least Slower and for each descriptor
	// that is made or closed, with the descriptor's path, "" if it is unknown. The record is valid until
	// Each returns.
	Each   func(r *kernel.IORecord, path string, kind iowatch.Kind)
	Slower time.Duration
	Ring   int // see kernel.IOOptions
}

// Canary watches one process.
type Canary struct {
	Engine *iowatch.Engine
	Stacks *oneshot.Copies

	proc    *target.Process
	io      *kernel.IO
	dir     *live.Proc
	fs      files.Dir
	began   time.Time
	looked  time.Time // for runtimes
	image   uint64
	guess   []uint64 // pages that stacks of other threads needed, the oldest first
	located located
	// expected is the list of frames of a runtime that has not begun; nil: none.
	expected *kernel.List
	good     int                   // stacks since the last guess that it made complete
	room     int                   // how many stacks the next guess is for
	woken    int                   // stacks in this second after which the next ones are read at once
	plans    map[stack.TID]planned // threads with a plan
	young    bool                  // the first stacks of threads are announced
	asked    uint64                // the last argument of IO.Announce
	execed   bool                  // it changed, and the descriptors were not listed since
	cwd      string
	names    map[stack.TID]string
	dups     map[int32]string // paths of descriptors that were duplicated: a file's table has opens alone

	sockets   *files.Table
	listeners map[int32]listener
	each      func(r *kernel.IORecord, path string, kind iowatch.Kind)

	uring bool              // a descriptor of io_uring was open
	rings map[ringFD]string // paths of descriptors that io_uring used

	inodes map[inode]string // files that were opened, for page faults
	maps   []stack.Mapping  // sorted; nil: not read in this round

	unknown map[[2]uint32]bool // descriptors with sums that the engine did not know, by number and generation
	unseen  map[[2]uint32]bool // open ones that it did not know at the last compare
	compare time.Time          // when that was
	leakAge time.Duration
	slow    time.Duration

	listed   map[int32]bool // open descriptors at listedAt; nil: not needed
	listedAt stack.Time

	finals map[[2]uint32][]final // sums of closed descriptors, read in this round; nil: not read yet
}

// inode identifies a file: the kernel's number of its device, with 20 bits of minor, and its number there.
type inode struct {
	dev uint32
	ino uint64
}

// final is the sums that a thread had on a descriptor that was closed.
type final struct {
	tid  stack.TID
	kind iowatch.Kind
	sums iowatch.Sums
}

const (
	readEvery  = 50 * time.Millisecond
	remapAfter = 2 * time.Millisecond // the next library is mapped soon
	tickEvery  = time.Second
	settles    = 5 * time.Second // a command has its runtime then
	looksAfter = 2 * time.Millisecond
	maxEach    = 500     // stacks that are read at once before a runtime is found
	maxList    = 1 << 17 // descriptors of a process that are read
	maxInfo    = 4096    // bytes of fdinfo
	maxNames   = 1 << 14
	guesses    = 50  // stacks in a second with memory that was guessed
	wakesAfter = 4   // stacks that are read at once after one that lacks frames
	maxWoken   = 100 // such stacks in a second
	maxGuesses = 500 // the same, as long as most guesses make a stack complete
)

// Open begins to watch p: when it returns, every further call is seen.
func Open(p *target.Process, o Options) (*Canary, error) {
	c := &Canary{proc: p, Engine: iowatch.New(o.Rules, stack.TID(p.PID())), began: time.Now(), names: map[stack.TID]string{}, plans: map[stack.TID]planned{}, room: guesses, dups: map[int32]string{}, listeners: map[int32]listener{}, inodes: map[inode]string{}, rings: map[ringFD]string{}, each: o.Each, leakAge: o.Rules.LeakAge, slow: o.Rules.Slow, compare: time.Now()}
	var err error
	if c.dir, err = live.OpenProc(p); err != nil {
		return nil, err
	}
	c.fs = c.dir.Config(nil).Proc
	c.sockets = files.New(files.Config{PID: p.PID(), Proc: c.fs, Now: func() int64 { return int64(target.Now()) }})
	if c.Stacks, err = oneshot.OpenCopies(p, o.Names); err != nil {
		c.dir.Close()
		return nil, err
	}
	c.Engine.Top = func(id iowatch.StackID) string { return c.Stacks.Top(uint32(id)) }
	c.Engine.Complete = func(id iowatch.StackID) bool { return c.Stacks.Complete(uint32(id)) }
	if c.io, err = kernel.OpenIO(p.PID(), kernel.IOOptions{Slow: o.Rules.Slow, Gap: o.Rules.Gap, SmallOps: o.Rules.SmallOps,
		Each: o.Each != nil, Slower: o.Slower, Ring: o.Ring}); err != nil {
		c.Close()
		return nil, err
	}
	c.image, _ = p.Image()
	c.cwd, _ = p.Dir()
	if err = c.share(); err != nil {
		c.Close()
		return nil, err
	}
	c.learn() // before the first call is seen
	c.expect()
	if err = c.io.Start(); err != nil {
		c.Close()
		return nil, err
	}
	c.seed()
	c.learn() // threads that began since
	return c, nil
}

// Refused reports whether Open failed because this user or kernel cannot load the programs: Outside
// works in any case.
func Refused(err error) bool {
	return kernel.Refused(err)
}

// PID is the process's number.
func (c *Canary) PID() int { return c.proc.PID() }

// Began returns when Open was called.
func (c *Canary) Began() time.Time { return c.began }

// share lets the threads of a program with goroutines share their sums: a goroutine moves between them.
func (c *Canary) share() error {
	roams := c.Stacks.Roams()
	if roams == c.Engine.Shared {
		return nil
	}
	if err := c.io.Share(roams); err != nil {
		return err
	}
	c.Engine.Shared = roams
	return nil
}

// learn makes the kernel copy further memory of threads that run code of a runtime.
func (c *Canary) learn() {
	managed, each := c.Stacks.Managed(), uint64(0)
	if !managed && time.Since(c.began) < settles {
		each = maxEach
	}
	if managed != c.young || each != c.asked {
		if c.io.Announce(managed, each) == nil {
			c.young, c.asked = managed, each
		}
	}
	for _, tid := range c.Stacks.Learn() {
		if pages := c.Stacks.Pages(tid, kernel.Extras); len(pages) > 0 {
			c.plan(tid, pages, false) // it was at another place
		}
	}
}

// Loaded prepares for the files that the process has mapped by now.
func (c *Canary) Loaded() {
	c.exec()
	c.Stacks.Mapped()
	c.expect()
}

// Run watches until ctx or the process ends. tick is called about once a second, when the engine's sums
// are up to date; nil: not.
func (c *Canary) Run(ctx context.Context, tick func()) error {
	last := time.Now()
	again := false
	for ctx.Err() == nil {
		wait := readEvery
		if again {
			wait = remapAfter
		}
		// The maps of a command are there until it ends, which may be before the next reading.
		mapped := c.io.Wait(wait) // a young thread is read at once: its memory is there until it ends
		if mapped || again {
			c.Loaded()
			if again = mapped; again {
				continue
			}
			c.looked = time.Time{} // look for a runtime again
		}
		c.read()
		if !c.proc.Alive() {
			break
		}
		if time.Since(last) < tickEvery {
			continue
		}
		last = time.Now()
		c.refresh()
		if tick != nil {
			tick()
		}
	}
	err := c.io.Stop()
	c.read()
	c.sums()
	c.ringPaths()
	c.nameless()
	c.Engine.Finish(target.Now())
	return err
}

// refresh brings the engine up to date with the kernel's sums and with /proc.
func (c *Canary) refresh() {
	now := target.Now()
	c.Stacks.Refresh()
	c.learn()
	c.woken = 0
	if c.good < c.room/4 {
		c.room = guesses
	}
	c.guessed()
	c.sums()
	c.ringPaths()
	c.nameless()
	c.compared()
	c.Engine.Tick(now)
}

// nameless names descriptors without a path: by /proc, or, of a process that has ended, by those that they are copies of.
func (c *Canary) nameless() {
	c.Engine.Nameless(func(fd int32, gen uint32) {
		if c.io.Gen(fd) != gen {
			return
		}
		if name, kind := c.link(fd); name != "" && c.io.Gen(fd) == gen {
			c.Engine.Name(fd, gen, name, kind)
		} else if c.dups[fd] != "" {
			c.Engine.Name(fd, gen, c.dups[fd], iowatch.KindFile)
		}
	})
}

// sums takes the kernel's sums. A descriptor that is unknown for two rounds had no open: it was passed
// over a socket, for example.
func (c *Canary) sums() {
	unknown := map[[2]uint32]bool{}
	_ = c.io.Sums(func(tid stack.TID, fd int32, gen uint32, kind iowatch.Kind, s *iowatch.Sums) { // sums that were read are valid
		if c.io.Gen(fd) != gen {
			return // closed: its record is on the way, or it had none
		}
		if c.Engine.Sum(tid, fd, gen, kind, s, false) {
			return
		}
		k := [2]uint32{uint32(fd), gen}
		unknown[k] = true
		if name, _ := c.link(fd); c.unknown[k] && name != "" && c.io.Gen(fd) == gen {
			c.Engine.Seed(fd, gen, name, kind, c.info(fd).flags, target.Now())
			c.Engine.Sum(tid, fd, gen, kind, s, false)
		}
	})
	c.unknown = unknown
}

// relist lists the open descriptors. The next read, which has the records of all closes before this,
// closes the others.
func (c *Canary) relist() {
	at := target.Now() // one that is opened during the listing may be missing in it
	fds := c.list()
	if len(fds) == 0 {
		return // the process ends, or has no descriptors any more and makes no calls
	}
	c.listed, c.listedAt = map[int32]bool{}, at
	for _, fd := range fds {
		c.listed[fd] = true
	}
}

// exec prepares for another program, if the process runs another one now.
func (c *Canary) exec() {
	im, err := c.proc.Image()
	if err != nil || im == 0 || im == c.image {
		return
	}
	c.image, c.execed = im, true
	c.Stacks.Exec()
	c.expect()
	_ = c.share() // the next round tries again
}

func (c *Canary) read() {
	c.finals, c.maps = nil, nil
	open, at := c.listed, c.listedAt
	c.listed = nil
	if c.exec(); c.execed {
		c.execed = false
		c.relist() // close-on-exec
	} else if now := time.Now(); now.Sub(c.began) < settles && (now.Sub(c.looked) > settles/20 || now.Sub(c.began) < settles/5 && now.Sub(c.looked) > looksAfter) {
		c.looked = now
		c.Stacks.Refresh() // a command may load its runtime now
		_ = c.share()
		c.learn()
	}
	c.begun()
	c.io.Read(c.record)
	if open != nil {
		c.sums() // those of descriptors that are closed now
		c.Engine.Only(func(fd int32) bool { return open[fd] }, at)
	}
}

// record adds one record of the kernel.
func (c *Canary) record(r *kernel.IORecord) {
	if len(r.Memory) > 0 {
		c.walk(r)
	}
	switch r.Op {
	case iowatch.OpOpen:
		c.replaced(r)
		r.Path = c.path(r)
		c.opened(r)
	case iowatch.OpFault:
		r.Path, r.Kind = c.mapped(r)
	case iowatch.OpCall:
		if r.FD < 0 {
			r.Path, r.Kind = c.joined(r), iowatch.KindFile
		}
		if (r.Call == "chdir" || r.Call == "fchdir") && c.moves(r) {
			return
		}
	case iowatch.OpMake:
		c.replaced(r)
		c.uring = c.uring || r.Call == "io_uring_setup"
		delete(c.dups, r.FD)
		if r.FD2 != 0 {
			delete(c.dups, r.FD2)
		}
		if strings.HasPrefix(r.Call, "accept") {
			r.Path = c.accepted(r.Dir)
		} else if dir := c.folder(r.Dir); path.IsAbs(dir) && len(c.dups) < maxNames {
			c.dups[r.FD] = dir
		}
	case iowatch.OpRange:
		c.relist()
		return
	case iowatch.OpClose:
		c.lastSums(r)
		c.nameCopy(r.FD, r.Gen)
		c.note(r) // while its path is known
		delete(c.dups, r.FD)
	}
	c.Engine.Apply(&r.Event)
	if r.Op != iowatch.OpClose {
		c.note(r)
	}
	if r.Op == iowatch.OpMake && r.FD2 != 0 {
		r.FD, r.Gen = r.FD2, r.Gen2
		c.Engine.Apply(&r.Event)
		c.note(r)
	}
}

// nameCopy names a copy of a descriptor that ends, if it has no name.
func (c *Canary) nameCopy(fd int32, gen uint32) {
	if name, kind := c.Engine.Path(fd, gen); name == "" && c.dups[fd] != "" {
		c.Engine.Name(fd, gen, c.dups[fd], kind)
	}
}

// replaced names a descriptor that had the number and was not closed by a call of its own, by dup2 for example, and adds its
// sums.
func (c *Canary) replaced(r *kernel.IORecord) {
	c.nameCopy(r.FD, r.Gen-1)
	if r.Users > 0 {
		c.lastSums(&kernel.IORecord{Event: iowatch.Event{FD: r.FD, Gen: r.Gen - 1, End: r.End}, Users: r.Users})
	}
}

// moves notes the working folder of a chdir or fchdir, and reports whether that is all: it was quick.
func (c *Canary) moves(r *kernel.IORecord) bool {
	if r.Ret == 0 {
		dir := r.Path
		if r.FD >= 0 {
			dir = c.folder(r.FD)
		}
		if path.IsAbs(dir) && !r.Cut {
			c.cwd = dir
		} else if now, err := c.proc.Dir(); err == nil {
			c.cwd = now
		}
	}
	return time.Duration(r.Busy()) <= c.slow
}

// note passes a record to Each.
func (c *Canary) note(r *kernel.IORecord) {
	if c.each == nil {
		return
	}
	if r.Op == iowatch.OpFault || r.Op == iowatch.OpCall && r.FD < 0 {
		c.each(r, r.Path, r.Kind)
		return
	}
	name, kind := c.Engine.Path(r.FD, r.Gen)
	if name == "" && r.Op != iowatch.OpClose && r.Op != iowatch.OpMake {
		if name, kind = c.link(r.FD); name != "" && c.io.Gen(r.FD) == r.Gen {
			c.Engine.Name(r.FD, r.Gen, name, kind)
		} else if name = c.dups[r.FD]; name != "" { // the records are in order
			c.Engine.Name(r.FD, r.Gen, name, kind)
		}
		if kind == iowatch.KindUnknown {
			kind = r.Kind
		}
	}
	c.each(r, name, kind)
}

// folder returns the path of a descriptor; "": unknown.
func (c *Canary) folder(fd int32) string {
	if dir := c.Engine.Folder(fd); dir != "" {
		return dir
	}
	return c.dups[fd]
}

// unnamed is the name of the files in a folder that have none.
const unnamed = "(unnamed)"

// path returns the absolute path of an open.
func (c *Canary) path(r *kernel.IORecord) string {
	if r.Unnamed() { // its path is the folder's
		if dir := c.joined(r); path.IsAbs(dir) && !r.Cut {
			return path.Join(dir, unnamed)
		}
		if name, _ := c.link(r.FD); path.IsAbs(name) && c.io.Gen(r.FD) == r.Gen {
			return path.Join(path.Dir(name), unnamed)
		}
		return unnamed
	}
	if path.IsAbs(r.Path) && !r.Cut {
		return path.Clean(r.Path)
	}
	// The descriptor shows it, if it is still the same one.
	if name, _ := c.link(r.FD); name != "" && c.io.Gen(r.FD) == r.Gen {
		return name
	}
	if r.Path == "" {
		return ""
	}
	return c.joined(r)
}

// joined returns the path of a call, absolute if its folder is known. Without one, that is the folder.
func (c *Canary) joined(r *kernel.IORecord) string {
	if path.IsAbs(r.Path) || r.Cut {
		return path.Clean(r.Path)
	}
	dir := c.cwd
	if r.Dir >= 0 {
		if dir = c.folder(r.Dir); !path.IsAbs(dir) {
			return r.Path
		}
	}
	return path.Join(dir, r.Path)
}

// lastSums adds the sums that other threads had on a descriptor that was closed.
func (c *Canary) lastSums(r *kernel.IORecord) {
	own := uint32(0)
	if r.Sums != nil {
		own = 1
	}
	if r.Users <= own {
		return
	}
	closed := [2]uint32{uint32(r.FD), r.Gen}
	if c.finals[closed] == nil { // not read yet, or it was closed after the last reading
		c.finals = map[[2]uint32][]final{} // sums of closed descriptors do not change any more
		_ = c.io.Sums(func(tid stack.TID, fd int32, gen uint32, kind iowatch.Kind, s *iowatch.Sums) {
			if c.io.Gen(fd) != gen {
				k := [2]uint32{uint32(fd), gen}
				c.finals[k] = append(c.finals[k], final{tid, kind, *s})
			}
		})
	}
	for _, f := range c.finals[closed] {
		if !c.Engine.Sum(f.tid, r.FD, r.Gen, f.kind, &f.sums, false) { // it was opened unseen
			c.Engine.Seed(r.FD, r.Gen, "", f.kind, 0, r.End)
			c.Engine.Sum(f.tid, r.FD, r.Gen, f.kind, &f.sums, false)
		}
		c.io.Drop(f.tid, r.FD, r.Gen)
	}
}

// Thread returns a thread's name, as it was when it was asked for first.
func (c *Canary) Thread(tid stack.TID) string {
	name, ok := c.names[tid]
	if !ok {
		if in, err := c.proc.ThreadInfo(tid); err == nil {
			name = in.Name
		}
		if len(c.names) >= maxNames {
			clear(c.names)
		}
		c.names[tid] = name
	}
	return name
}

// Counts returns the calls that were watched.
func (c *Canary) Counts() []kernel.CallCount { return c.io.Counts() }

// Skipped returns how many reads and writes were not passed to Each, since their thread had too many.
func (c *Canary) Skipped() uint64 { return c.io.Losses().Skipped }

// Losses returns a line for each kind of loss so far.
func (c *Canary) Losses() (lines []string) {
	l := c.io.Losses()
	for _, x := range []struct {
		n    uint64
		what string
	}{
		{l.Records, "records were lost because the ring was full: findings and stacks are missing"},
		{l.Sums, "operations have no sums: too many threads and descriptors at once"},
		{l.FDs, "operations were on descriptors above 65535, which are not watched"},
		{l.Tasks, "calls were of threads beyond the limit"},
		{l.Faults, "page faults are missing: their threads had too many in a second"},
		{l.Stacks, "opens and syncs have no stack, because the ring was three quarters full"},
		{l.Bad, "records could not be read"},
		{c.Engine.Forgotten, "paths, descriptors or findings were dropped because of a limit"},
		{c.Stacks.Dropped, "stacks were dropped because of a limit"},
	} {
		if x.n > 0 {
			lines = append(lines, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	lines = append(lines, c.incomplete()...)
	lines = append(lines, c.io.Without()...)
	if c.uring {
		lines = append(lines, c.uringLine())
	}
	return lines
}

// incomplete returns a line for each reason for which stacks lack frames.
func (c *Canary) incomplete() (lines []string) {
	for why, n := range c.Stacks.Incomplete {
		text := stack.Reason(why).String()
		if stack.Reason(why) == stack.ReasonNone {
			text = "the memory of a runtime was not copied yet, as for the first ones of a thread, or the process had ended"
		}
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%d of %d stacks lack frames: %s", n, c.Stacks.Walked, text))
		}
	}
	return lines
}

// Close ends watching.
func (c *Canary) Close() {
	if c.io != nil {
		_ = c.io.Close() // the kernel removes the programs in any case
	}
	if c.Stacks != nil {
		c.Stacks.Close()
	}
	c.dir.Close()
}

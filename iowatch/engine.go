package iowatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// Bounds of what an engine keeps. Beyond them it forgets, and counts that.
const (
	maxOpen   = 1 << 17 // descriptors, with those of which no close was seen
	maxUses   = 1 << 17
	maxPaths  = 1 << 14 // paths with sums, or with state of a rule
	maxRepeat = 64      // different reads of one path, for repeat-read
	maxFound  = 1 << 12
)

// place is a stack, or where that is unknown a stack pointer.
type place struct {
	stack StackID
	sp    uint64
}

// same reports whether two operations came from the same place. The first stacks of a place may lack frames.
func (e *Engine) same(p, q place) bool {
	if p.stack != 0 && q.stack != 0 && (p.stack == q.stack || e.complete(p.stack) && e.complete(q.stack)) {
		return p.stack == q.stack
	}
	return p.sp == q.sp
}

type descKey struct {
	fd  int32
	gen uint32
}

// desc is an open descriptor.
type desc struct {
	key    descKey
	path   string
	kind   Kind
	size   int64
	synced bool // opened with O_SYNC or O_DSYNC
	writes bool // opened for writing
	tid    stack.TID
	at     stack.Time
	place  place
	call   string
	seeded bool       // it was open before
	gone   stack.Time // when its number was in use again; its close is on the way. 0: it is open
	uses   []*use

	peer   string     // of a socket that was connected, or the first name server that it sent to
	since  stack.Time // when that was
	joined place      // where
	joiner stack.TID  // by which thread

	asked   bool    // it sent to a name server
	queries []query // without an answer
}

// use is one thread's use of a descriptor, or that of all threads (Engine.Shared).
type use struct {
	Sums
	tid    stack.TID // 0: all threads
	loop   bool
	slow   StackID   // of the newest slow or marked operation
	slowBy stack.TID // by which thread
	slowest

	from       stack.Time // begin of a window of small-write
	fromWrites uint64
	fromBytes  uint64

	reads, misses, missTime uint64 // of Ops, Misses and MissTime, those that rule cache-miss has
}

// slowest are the longest reads and writes with events by main-io and loop-io: of a use by all threads
// the sums do not say which thread had the longest.
type slowest struct {
	onMain, onLoop uint64 // ns
	loopTID        stack.TID
}

// only returns the thread whose use it is; 0: there were several.
func (u *use) only() stack.TID {
	if u.tid != 0 {
		return u.tid
	}
	return u.TID
}

// Finding is a rule that fired.
type Finding struct {
	Rule   Rule
	Path   string // or the kind of descriptor
	Kind   Kind
	Size   int64 // of the file, in bytes; -1: unknown
	Ops    uint64
	Buffer uint64 // most bytes requested at once
	Cost   int64  // ns in reads and writes
	First  Op     // the first operation
	Bytes  uint64 // requested in all
	TID    stack.TID
	At     stack.Time
	Stack  StackID // where the descriptor was opened
	Where  StackID // the slow operation, or one of many; 0: unknown
	// Count is how many times it was repeated. Of main-io and loop-io it has bits: 1 for a single slow
	// operation, 2 for a slow run.
	Count  int
	Longer int64  // ns of the longest operation, or of the longest run
	Call   string // the operation, where that is not a read or write: its system call
	Main   bool   // the thread is the main one
	Writes bool   // repeat-open: it was opened for writing
	Host   string // dns: the name that was looked up; "": unknown

	seeded bool // the descriptor's open was not seen
}

// File is the sums of one path.
type File struct {
	Path    string
	Kind    Kind
	Opens   uint64
	Open    int // descriptors that are open now
	Ops     uint64
	Syncs   uint64
	Want    uint64
	Got     uint64
	Written uint64
	Time    uint64 // ns, with that of syncs
	Longest uint64
	Misses  uint64 // reads that waited for storage
	Missed  uint64 // ns in those
	Faults  uint64 // major page faults
	Faulted uint64 // ns in those, as far as that is known
	Hist    [Buckets]uint64
	Stack   StackID // of the last open whose stack is known, of the complete ones if there are any
	Files   int     // of a row of Fold: how many files it is of; 0: this one
}

// placed sets the stack of a file's last open, of those that are complete if there are any.
func (e *Engine) placed(f *File, d *desc) {
	if id := d.place.stack; id != 0 && (e.complete(id) || !e.complete(f.Stack)) {
		f.Stack = id
	}
}

func (f *File) add(s *Sums) {
	f.Ops += s.Ops
	f.Syncs += s.Syncs
	f.Want += s.Want
	f.Got += s.Got
	f.Written += s.Written
	f.Time += s.Time + s.SyncTime
	f.Misses += s.Misses
	f.Missed += s.MissTime
	f.Longest = max(f.Longest, s.Longest, s.LongestSync)
	for i, n := range s.Hist {
		f.Hist[i] += uint64(n)
	}
}

// Engine applies the rules.
type Engine struct {
	c    Config
	main stack.TID
	// Top returns what identifies the top four frames of a stack; nil: the stack's number does.
	Top func(StackID) string
	// Complete reports whether a stack has no gaps; nil: all are complete.
	Complete func(StackID) bool
	// Shared: the rules see the operations of all threads on a descriptor as those of one. For programs
	// whose tasks move between threads, such as goroutines. main-io and loop-io are still about threads.
	Shared bool
	// Found receives each finding once; nil: Findings has them.
	Found func(*Finding)
	// Slow, if not nil, receives each single operation that main-io or loop-io find slow, when it ends.
	Slow func(*Finding)
	// Forgotten counts paths, descriptors and findings dropped at a bound.
	Forgotten uint64

	open     map[descKey]*desc
	newest   map[int32]*desc
	uses     int
	files    map[string]*File
	found    []*Finding
	known    map[string]*Finding // by rule, path and top of the stack
	weak     map[string]*Finding // with an incomplete stack or none, by rule and path
	about    map[string]bool     // rules and paths that have a finding
	repeats  map[string][]repeated
	syncs    map[string]*syncs
	opens    map[string]*opens
	peers    map[peerKey]*peers
	leaks    map[group]*grown
	misses   map[string]*waits // of rule cache-miss, by path
	faults   map[string]*waits // of rule page-fault, by path
	leakedAt stack.Time
	last     bool // Finish was called: windows end
	now      stack.Time
}

// New returns an engine for a process whose first thread is main.
func New(c Config, main stack.TID) *Engine {
	return &Engine{c: c.clone(), main: main, open: map[descKey]*desc{}, newest: map[int32]*desc{}, files: map[string]*File{}, known: map[string]*Finding{}, weak: map[string]*Finding{}, about: map[string]bool{},
		repeats: map[string][]repeated{}, syncs: map[string]*syncs{}, opens: map[string]*opens{}, peers: map[peerKey]*peers{}, leaks: map[group]*grown{},
		misses: map[string]*waits{}, faults: map[string]*waits{}}
}

// Flags of open(2) (include/uapi/asm-generic/fcntl.h), the same on amd64 and arm64.
const (
	flagAccess  = 0o3 // O_RDONLY is 0
	flagDSync   = 0o10000
	flagSync    = 0o4000000 // O_SYNC, which includes the bit of O_DSYNC
	flagCloexec = 0o2000000
	flagUnnamed = 0o20000000 // the bit of O_TMPFILE that is not O_DIRECTORY
)

// Seed adds a descriptor that was open before. Its opening stack is unknown.
func (e *Engine) Seed(fd int32, gen uint32, path string, kind Kind, flags int64, at stack.Time) {
	e.opened(&desc{key: descKey{fd, gen}, path: path, kind: kind, size: -1, synced: flags&(flagDSync|flagSync) != 0, at: at, seeded: true})
}

func (e *Engine) opened(d *desc) {
	if old := e.newest[d.key.fd]; old != nil { // its close was not seen
		if old.key == d.key {
			if old.seeded && !d.seeded { // seen in a list before its record was read
				d.uses, old.uses = old.uses, nil
				e.open[d.key], e.newest[d.key.fd] = d, d
			}
			return
		}
		if int32(d.key.gen-old.key.gen) < 0 { // its records come late
			e.open[d.key] = d
			return
		}
		if d.key.gen-old.key.gen >= 2 && len(e.open) < maxOpen { // its close took a generation, and has a record
			old.gone = d.at
		} else {
			e.closed(old, d.at)
		}
	}
	if len(e.open) >= maxOpen {
		e.Forgotten++
		return
	}
	e.open[d.key], e.newest[d.key.fd] = d, d
}

// find returns the descriptor of an event. One that is unknown was opened unseen.
func (e *Engine) find(ev *Event) *desc {
	k := descKey{ev.FD, ev.Gen}
	d := e.open[k]
	if d == nil {
		d = &desc{key: k, path: ev.Path, kind: ev.Kind, size: -1, at: ev.End, seeded: true}
		e.opened(d)
	}
	if d.kind == KindUnknown {
		d.kind = ev.Kind
	}
	if ev.Size >= 0 && ev.Kind != KindUnknown {
		d.size = ev.Size
	}
	return d
}

// owner returns whose use an operation of a thread belongs to; 0: that of all threads.
func (e *Engine) owner(tid stack.TID) stack.TID {
	if e.Shared {
		return 0
	}
	return tid
}

func (e *Engine) useOf(d *desc, tid stack.TID) *use {
	for _, u := range d.uses {
		if u.tid == tid {
			return u
		}
	}
	u := &use{tid: tid}
	if e.uses >= maxUses {
		e.Forgotten++
		return u
	}
	e.uses++
	d.uses = append(d.uses, u)
	return u
}

// Apply adds an operation. Failed ones are ignored.
func (e *Engine) Apply(ev *Event) {
	e.now = max(e.now, ev.End)
	// A failed close closes, a connect may go on, and a call that failed held its thread.
	if ev.Ret < 0 && ev.Op != OpClose && ev.Op != OpConnect && ev.Op != OpCall {
		return
	}
	switch ev.Op {
	case OpOpen, OpMake:
		d := &desc{key: descKey{ev.FD, ev.Gen}, path: ev.Path, kind: ev.Kind, size: ev.Size, synced: ev.Op == OpOpen && ev.Want&(flagDSync|flagSync) != 0, writes: ev.Op == OpOpen && ev.Want&flagAccess != 0,
			tid: ev.TID, at: ev.End, place: place{ev.Stack, ev.SP}, call: ev.Call}
		e.opened(d)
		if f := e.file(d); f != nil {
			f.Opens++
			e.placed(f, d)
		}
		if ev.Op == OpOpen {
			if !ev.Unnamed() {
				e.reopened(d)
			}
			e.slowCall(d, ev)
		}
	case OpRead, OpWrite, OpSync:
		d := e.find(ev)
		u := e.useOf(d, e.owner(ev.TID))
		u.loop = u.loop || ev.Loop
		if !ev.Summed {
			u.Add(ev, int64(e.c.Gap))
		}
		if ev.Op != OpSync {
			u.longest(ev, e.main)
		}
		e.slowAt(u, ev)
		e.slowNow(d, u, ev)
		if ev.Op == OpSync {
			written := ev.Written
			if !ev.Summed {
				written = u.Written
			}
			e.synced(d, u, ev, written)
			e.slowCall(d, ev)
		}
	case OpMark:
		e.slowAt(e.useOf(e.find(ev), e.owner(ev.TID)), ev)
	case OpConnect:
		e.connected(ev)
	case OpQuery:
		e.asks(ev)
	case OpAnswer:
		e.answers(ev)
	case OpFault:
		e.faulted(ev)
	case OpCall:
		e.called(ev)
	case OpClose:
		d := e.find(ev)
		if ev.Sums != nil {
			u := e.useOf(d, e.owner(ev.TID))
			u.Sums = *ev.Sums
			u.loop = u.loop || ev.Loop
		}
		e.slowCall(d, ev)
		e.closed(d, ev.End)
	}
}

// longest keeps the longest operation on the main thread, and on an event loop.
func (u *use) longest(ev *Event, main stack.TID) {
	took := uint64(ev.Busy())
	switch {
	case ev.TID == main:
		u.onMain = max(u.onMain, took)
	case ev.Loop && took > u.onLoop:
		u.onLoop, u.loopTID = took, ev.TID
	}
}

// slowAt keeps the newest stack of a use, and rather a complete one.
func (e *Engine) slowAt(u *use, ev *Event) {
	if id := ev.Stack; id != 0 && (u.slow == 0 || e.Complete == nil || e.Complete(id) || !e.Complete(u.slow)) {
		u.slow, u.slowBy = id, ev.TID
	}
}

// Sum sets the sums of a thread on a descriptor, or with thread 0 of all threads, as the kernel has them
// now. It returns false for an unknown descriptor: the record of its open is still to come, or it had none.
func (e *Engine) Sum(tid stack.TID, fd int32, gen uint32, kind Kind, s *Sums, loop bool) bool {
	d := e.open[descKey{fd, gen}]
	if d == nil {
		return false
	}
	if d.kind == KindUnknown {
		d.kind = kind
	}
	u := e.useOf(d, tid)
	u.Sums, u.loop = *s, u.loop || loop
	return true
}

// Name sets the path of an open descriptor that has none. The operations on a copy of another descriptor count for
// the file, but it is not an open of it.
func (e *Engine) Name(fd int32, gen uint32, path string, kind Kind) {
	d := e.open[descKey{fd, gen}]
	if d == nil {
		return
	}
	if d.path == "" {
		d.path = path
		if f := e.file(d); f != nil && !d.seeded && !d.copied() {
			f.Opens++
			e.placed(f, d)
		}
	}
	if d.kind == KindUnknown {
		d.kind = kind
	}
}

// copied reports whether the descriptor is a copy of another one.
func (d *desc) copied() bool { return d.call == "fcntl" || strings.HasPrefix(d.call, "dup") }

// Knows reports whether a descriptor is open as far as the events say.
func (e *Engine) Knows(fd int32, gen uint32) bool { return e.open[descKey{fd, gen}] != nil }

// Path returns the path and the kind of an open descriptor; "": unknown.
func (e *Engine) Path(fd int32, gen uint32) (string, Kind) {
	if d := e.open[descKey{fd, gen}]; d != nil {
		return d.path, d.kind
	}
	return "", KindUnknown
}

// Folder returns the path of the descriptor that has a number now; "": unknown.
func (e *Engine) Folder(fd int32) string {
	if d := e.newest[fd]; d != nil {
		return d.path
	}
	return ""
}

// Nameless calls f for each open descriptor without a path.
func (e *Engine) Nameless(f func(fd int32, gen uint32)) {
	for k, d := range e.open {
		if d.path == "" {
			f(k.fd, k.gen)
		}
	}
}

// Only closes the descriptors from before a time that open does not have: after an exec, or a
// close_range. The records up to then must have been applied.
func (e *Engine) Only(open func(fd int32) bool, at stack.Time) {
	for fd, d := range e.newest {
		if d.at < at && !open(fd) {
			e.closed(d, at)
		}
	}
}

// Gone closes one descriptor whose close had no event.
func (e *Engine) Gone(fd int32, at stack.Time) {
	if d := e.newest[fd]; d != nil {
		e.closed(d, at)
	}
}

// file returns the sums of a descriptor's path; nil if it has none.
func (e *Engine) file(d *desc) *File {
	if d.path == "" {
		return nil
	}
	f := e.files[d.path]
	if f == nil {
		if len(e.files) >= maxPaths {
			e.Forgotten++
			return nil
		}
		f = &File{Path: d.path, Kind: d.kind}
		e.files[d.path] = f
	}
	if f.Kind == KindUnknown {
		f.Kind = d.kind
	}
	return f
}

// shortLived and the call that made them name descriptors without a path of their own in Files.
const shortLived = "short-lived descriptors of "

// closed judges a descriptor and forgets it.
func (e *Engine) closed(d *desc, at stack.Time) {
	e.disconnected(d, at)
	for _, u := range d.uses {
		e.smallWrites(d, u, at)
		e.missed(d, u, at)
	}
	e.judge(d, at)
	if d.path == "" && d.call != "" && !d.seeded { // closed before its name was read
		d.path = shortLived + d.call
		if f := e.file(d); f != nil {
			f.Opens++
			e.placed(f, d)
		}
	}
	f := e.file(d)
	for _, u := range d.uses {
		e.uses--
		if f != nil {
			f.add(&u.Sums)
		}
	}
	delete(e.open, d.key)
	if e.newest[d.key.fd] == d {
		delete(e.newest, d.key.fd)
	}
}

// Finish judges the descriptors that are still open.
func (e *Engine) Finish(at stack.Time) {
	e.last = true
	e.Tick(at)
	for _, d := range e.sorted() {
		e.unanswered(d, at, 0)
		e.judge(d, at)
	}
}

// sorted returns the open descriptors in a fixed order.
func (e *Engine) sorted() []*desc {
	var all []*desc
	for _, d := range e.open {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *desc) int { return int(a.key.fd) - int(b.key.fd) })
	return all
}

// Files returns the sums of all paths, those with the most time first.
func (e *Engine) Files() []File {
	sums := map[string]*File{}
	for path, f := range e.files {
		c := *f
		sums[path] = &c
	}
	for _, d := range e.open {
		name := d.path
		if name == "" {
			name = fmt.Sprintf("descriptor %d", d.key.fd)
		}
		f := sums[name]
		if f == nil {
			f = &File{Path: name, Kind: d.kind}
			sums[name] = f
		}
		if d.gone == 0 {
			f.Open++
		}
		for _, u := range d.uses {
			f.add(&u.Sums)
		}
	}
	var all []File
	for _, f := range sums {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b File) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Opens, a.Opens), cmp.Compare(a.Path, b.Path))
	})
	return all
}

// Findings returns all findings, the oldest first. One without a stack gets that of another open of the
// same path, if there was one, but for a leak of descriptors that no system call made.
func (e *Engine) Findings() []*Finding {
	for _, f := range e.found {
		if file := e.files[f.Path]; file != nil && f.Stack == 0 && f.Where == 0 && (f.Rule != Leak || f.Call != "") {
			f.Stack = file.Stack
		}
	}
	return e.found
}

// elapsed returns b-a.
func elapsed(a, b stack.Time) time.Duration { return time.Duration(b - a) }

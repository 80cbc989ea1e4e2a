// Package iowatch judges the file operations of one process: rules over a stream of operations, and
// sums per file. It knows no process and reads no clock: records come from an engine (package
// engine/kernel), stacks are numbers that the caller gives.
//
// The rules main-io, small-buffer, repeat-read and leak are those of Matrix's IOCanary (Tencent/matrix
// 8b7b0e6, matrix-io-canary/src/main/cpp/core and detector), with its thresholds. It judges a file
// when that is closed, ignores failed calls, and reports once for each rule, path and top four frames.
// The other rules are for servers.
//
// An Engine is for one goroutine.
package iowatch

import (
	"math/bits"
	"time"

	"github.com/sliverprof/sliver/stack"
)

// Op is the sort of an operation.
type Op uint8

// Operations.
const (
	OpNone Op = iota
	OpRead
	OpWrite
	OpSync    // fsync, fdatasync
	OpOpen    // a new descriptor of a file
	OpMake    // a new descriptor of another sort: socket, pipe, eventfd, dup …
	OpClose   // the descriptor is closed, also by dup2
	OpExec    // the process runs another program: descriptors with close-on-exec are closed
	OpRange   // close_range: the caller compares the list of descriptors
	OpMark    // a descriptor's count of operations reached a limit; Event.Stack is that of the operation
	OpConnect // a socket is connected, or begins to be; Path is the peer
	OpFault   // a page of a mapped file was read, or swapped memory; Path is the file
	OpQuery   // messages to a name server; Path is its address if it came with them
	OpAnswer  // messages from one
	OpCall    // another call on a file that was slow: flock, stat … Its result may be an error. FD is -1 if it has a path
)

var opNames = [...]string{"", "read", "write", "sync", "open", "make", "close", "exec", "close_range", "mark", "connect", "fault", "query", "answer", "call"}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "unknown"
}

// Kind is the sort of a descriptor.
type Kind uint8

// Kinds of descriptors.
const (
	KindUnknown Kind = iota
	KindFile
	KindDir
	KindFIFO // pipes, and FIFOs with a path
	KindSocket
	KindChar
	KindBlock
	KindAnon // eventfd, epoll, timerfd …
)

var kindNames = [...]string{"unknown", "file", "directory", "pipe", "socket", "character device", "block device", "anonymous"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return kindNames[0]
}

// Kind of a mode as in stat(2). Descriptors of anonymous inodes have no type there.
func KindOf(mode uint32) Kind {
	const typeMask, fifo, char, dir, block, regular, socket = 0o170000, 0o010000, 0o020000, 0o040000, 0o060000, 0o100000, 0o140000
	switch mode & typeMask {
	case regular:
		return KindFile
	case dir:
		return KindDir
	case fifo:
		return KindFIFO
	case socket:
		return KindSocket
	case char:
		return KindChar
	case block:
		return KindBlock
	}
	if mode != 0 {
		return KindAnon
	}
	return KindUnknown
}

// StackID is a stack: equal stacks have the same. 0 is an unknown stack.
type StackID uint32

// Event is one operation of the process.
type Event struct {
	Op      Op
	End     stack.Time // when it ended
	Took    int64      // ns from its begin to its end
	Queued  int64      // ns of those in which the thread waited for a CPU, or for the peer of a move's other descriptor; 0: none, or the kernel has no account
	TID     stack.TID
	FD      int32
	Gen     uint32 // numbers the descriptors that had FD one after the other
	Want    int64  // requested bytes; of an open, its flags
	Ret     int64  // the call's result: bytes, a descriptor, or negative for an error
	Kind    Kind
	Size    int64  // of the file at that time, in bytes; -1: unknown
	Path    string // of an open; "": unknown
	Call    string // name of the system call
	Stack   StackID
	SP      uint64 // stack pointer of the call; it identifies the place where the stack is unknown
	Loop    bool   // the thread runs an event loop
	Missed  bool   // a read waited, since the page cache did not have the data
	Written uint64 // bytes that the thread has written to the descriptor so far
	// Summed: the operation is in the sums that follow, so it is not added.
	Summed bool
	// Sums are those of the thread, with a close; nil: none, or those that the engine has.
	Sums *Sums
	// Messages are those of an OpQuery or OpAnswer that could be parsed.
	Messages []Message
}

// Unnamed reports whether an open made a file without a name (O_TMPFILE): each is another file.
func (e *Event) Unnamed() bool { return e.Op == OpOpen && e.Want&flagUnnamed != 0 }

// Busy returns the ns that the operation took, without waits for a CPU: what the rules and sums count.
func (e *Event) Busy() int64 { return max(e.Took-max(e.Queued, 0), 0) }

// Buckets is the size of a histogram of durations.
const Buckets = 64

// Sums are the operations of one thread on one descriptor, or of all threads (Engine.Shared). Failed
// calls are not in them.
type Sums struct {
	TID         stack.TID // the thread; 0: there were several
	Ops         uint64    // reads and writes
	Writes      uint64
	Syncs       uint64
	Want        uint64 // requested bytes of reads and writes
	Got         uint64 // bytes that were read or written
	Written     uint64 // bytes that were written
	Time        uint64 // ns in reads and writes, as Event.Busy
	SyncTime    uint64 // ns in syncs
	Longest     uint64 // ns of the longest read or write
	Run         uint64 // ns in operations each of which ended within the gap after the one before
	LongestRun  uint64
	LongestSync uint64
	Last        stack.Time // end of the last read or write
	Buffer      uint64     // most bytes requested at once
	First       Op         // the first operation
	Misses      uint64     // reads that waited, since the page cache did not have the data
	MissTime    uint64     // ns in those
	Hist        [Buckets]uint32
}

// Add counts an operation. gap is the most time in ns between the ends of two operations of a run.
func (s *Sums) Add(e *Event, gap int64) {
	took := uint64(e.Busy())
	if s.Ops+s.Syncs == 0 {
		s.TID = e.TID
	} else if s.TID != e.TID {
		s.TID = 0
	}
	s.Hist[Bucket(took)]++
	if e.Op == OpSync {
		s.Syncs++
		s.SyncTime += took
		s.LongestSync = max(s.LongestSync, took)
		return
	}
	want := uint64(max(e.Want, 0))
	s.Ops++
	s.Want += want
	s.Got += uint64(max(e.Ret, 0))
	s.Time += took
	s.Longest = max(s.Longest, took)
	if s.Last > 0 && int64(e.End-s.Last) < gap {
		s.Run += took
	} else {
		s.Run = took
	}
	s.LongestRun = max(s.LongestRun, s.Run)
	s.Last = e.End
	s.Buffer = max(s.Buffer, want)
	if s.First == OpNone {
		s.First = e.Op
	}
	if e.Missed {
		s.Misses++
		s.MissTime += took
	}
	if e.Op == OpWrite {
		s.Writes++
		s.Written += uint64(max(e.Ret, 0))
	}
}

// Bucket returns the bucket of a duration in ns: two for each power of two below 2^32, the last also
// for longer ones.
func Bucket(ns uint64) int {
	if ns < 2 {
		return 0
	}
	l := bits.Len64(ns) - 1
	if l > 31 {
		return Buckets - 1
	}
	return 2*l + int(ns>>(l-1)&1)
}

// bucketEnd returns the end of a bucket in ns.
func bucketEnd(i int) uint64 {
	if i < 2 {
		return 2
	}
	l := i / 2
	return 1<<l + uint64(i%2+1)<<(l-1)
}

// Percentile returns the duration in ns that a share of the operations does not exceed, with an error
// of at most half its value; 0 if there are none.
func Percentile(h *[Buckets]uint64, share float64) int64 {
	var all, sum uint64
	for _, n := range h {
		all += n
	}
	if all == 0 {
		return 0
	}
	least := max(uint64(share*float64(all)+.5), 1)
	for i, n := range h {
		if sum += n; sum >= least {
			return int64(bucketEnd(i))
		}
	}
	return int64(bucketEnd(Buckets - 1))
}

// Rule is the name of a rule.
type Rule string

// Rules. The first four are Matrix's.
const (
	MainIO      Rule = "main-io"
	SmallBuffer Rule = "small-buffer"
	RepeatRead  Rule = "repeat-read"
	Leak        Rule = "leak"
	LoopIO      Rule = "loop-io"
	Fsync       Rule = "fsync"
	SyncWrite   Rule = "sync-write"
	SmallWrite  Rule = "small-write"
	RepeatOpen  Rule = "repeat-open"
	DNS         Rule = "dns"
	Churn       Rule = "churn"
	CacheMiss   Rule = "cache-miss"
	PageFault   Rule = "page-fault"
)

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{MainIO, SmallBuffer, RepeatRead, Leak, LoopIO, Fsync, SyncWrite, SmallWrite, RepeatOpen, DNS, Churn, CacheMiss, PageFault}
}

// Config is the rules' thresholds, with Defaults as the usual ones.
type Config struct {
	On map[Rule]bool

	Slow time.Duration // main-io, loop-io: a single operation that takes longer
	Sum  time.Duration // main-io, loop-io: a run that takes longer
	Gap  time.Duration // operations of a run end less than this after the one before
	Own  bool          // main-io: reads and writes only, as in Matrix; else also opens, syncs, locks, stats …

	SmallOps   uint64        // small-buffer: more operations than these
	SmallBytes uint64        // … whose mean of requested bytes is less
	SmallRun   time.Duration // … with a run that takes at least this long
	SmallMain  bool          // … on the main thread only, as in Matrix

	Repeats    int           // repeat-read: times that the same is read
	RepeatGap  time.Duration // … each at most this after the first of them was stored
	RepeatRun  time.Duration // … of a path that once had a run of at least this long
	RepeatMain bool          // … on the main thread only, as in Matrix

	LeakAge   time.Duration // leak: descriptors that are open for longer
	LeakCount int           // … of one place, at least this many, and more than a while before

	FsyncCount  int           // fsync: calls for one file
	FsyncWindow time.Duration // … within this time
	FsyncBytes  uint64        // … each with fewer bytes written since the one before

	SyncOps   uint64 // sync-write: more writes of a descriptor with O_SYNC or O_DSYNC
	SyncBytes uint64 // … whose mean is less

	WriteCount  uint64        // small-write: writes of one thread to one descriptor
	WriteBytes  uint64        // … whose mean is less
	WriteWindow time.Duration // … within this time, measured between two looks

	OpenCount  int           // repeat-open: opens of one path
	OpenWindow time.Duration // … within this time

	DNSSlow time.Duration // dns: a lookup that takes longer

	ChurnCount  int           // churn: more connections to one peer
	ChurnWindow time.Duration // … within this time
	ChurnLife   time.Duration // … each closed sooner than this

	MissCount  uint64        // cache-miss: reads of one file that waited for storage
	MissTime   time.Duration // … for this long together
	MissWindow time.Duration // … within this time, measured between two looks

	FaultCount  uint64        // page-fault: major page faults in one file
	FaultTime   time.Duration // … that took this long together
	FaultWindow time.Duration // … within this time, measured between two looks
}

// Defaults returns Matrix's thresholds, and those for servers.
func Defaults() Config {
	c := Config{On: map[Rule]bool{}, Slow: 13 * time.Millisecond, Sum: 500 * time.Millisecond, Gap: 8 * time.Millisecond,
		SmallOps: 20, SmallBytes: 4096, SmallRun: 13 * time.Millisecond,
		Repeats: 5, RepeatGap: 17 * time.Millisecond, RepeatRun: 13 * time.Millisecond,
		LeakAge: 10 * time.Second, LeakCount: 10,
		FsyncCount: 20, FsyncWindow: time.Second, FsyncBytes: 64 << 10,
		SyncOps: 20, SyncBytes: 4096,
		WriteCount: 1000, WriteBytes: 512, WriteWindow: time.Second,
		OpenCount: 20, OpenWindow: time.Second,
		DNSSlow: 100 * time.Millisecond, ChurnCount: 10, ChurnWindow: time.Second, ChurnLife: time.Second,
		MissCount: 20, MissTime: 100 * time.Millisecond, MissWindow: time.Second,
		FaultCount: 20, FaultTime: 100 * time.Millisecond, FaultWindow: time.Second}
	for _, r := range Rules() {
		c.On[r] = true
	}
	return c
}

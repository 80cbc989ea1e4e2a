package trace

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sliverprof/sliver/iowatch"
	"github.com/sliverprof/sliver/stack"
)

// IO describes the I/O of a recording: sums per file, findings and losses. Files and stacks are
// indexes of IONames; -1: unknown.
type IO struct {
	At        stack.Time  `json:"at"`                   // the accounts are as of then
	Began     stack.Time  `json:"began"`                // operations are recorded from here on
	Slow      int64       `json:"slow_ns"`              // longer reads, writes and syncs of files have a stack
	Slower    int64       `json:"slower_ns"`            // shorter reads and writes are in the sums only
	Files     []IOFile    `json:"files"`                // those with the most time first
	MoreFiles int         `json:"more_files,omitempty"` // beyond those of Files
	Rings     []IORing    `json:"uring,omitempty"`      // through io_uring, which passes by the system calls of Files
	Findings  []IOFinding `json:"findings"`             // the oldest first
	Calls     []IOCalls   `json:"calls"`                // of each system call, also failed ones
	Skipped   uint64      `json:"skipped"`              // operations that are in the sums only, since a thread had too many
	Lost      []string    `json:"lost"`                 // a line for each kind of loss
}

// IOFile is the sums of one path.
type IOFile struct {
	File    int    `json:"file"`
	Opens   uint64 `json:"opens"`
	Open    int    `json:"open"` // descriptors that were open at IO.At
	Ops     uint64 `json:"ops"`  // reads and writes
	Syncs   uint64 `json:"syncs"`
	Want    uint64 `json:"requested"` // bytes
	Read    uint64 `json:"read"`      // bytes
	Written uint64 `json:"written"`   // bytes
	Time    uint64 `json:"time_ns"`   // with that of syncs
	P50     int64  `json:"p50_ns"`    // percentiles are at most half too high
	P99     int64  `json:"p99_ns"`
	Max     uint64 `json:"max_ns"`
	Misses  uint64 `json:"misses,omitempty"`     // reads that waited since the page cache did not have the data
	Missed  uint64 `json:"missed_ns,omitempty"`  // in those
	Faults  uint64 `json:"faults,omitempty"`     // major page faults in the mapped file
	Faulted uint64 `json:"faulted_ns,omitempty"` // in those
	Stack   int    `json:"stack"`                // of the last open with a known stack
}

// IORing is the sums of one path of operations through io_uring.
type IORing struct {
	Path    string `json:"path"`
	Ops     uint64 `json:"ops"` // reads and writes
	Syncs   uint64 `json:"syncs"`
	Others  uint64 `json:"others"` // accepts, opens, polls …
	Errors  uint64 `json:"errors"`
	Read    uint64 `json:"read"`    // bytes
	Written uint64 `json:"written"` // bytes
	Time    uint64 `json:"time_ns"` // from submissions to completions of reads, writes and syncs
	Max     uint64 `json:"max_ns"`
}

// IOFinding is a rule that fired.
type IOFinding struct {
	Rule    string     `json:"rule"`
	At      stack.Time `json:"at"`
	TID     stack.TID  `json:"tid"`
	Thread  string     `json:"thread"`
	Path    string     `json:"path"` // or the kind of descriptor
	Kind    string     `json:"kind"`
	Size    int64      `json:"size"` // of the file, in bytes; -1: unknown
	Ops     uint64     `json:"ops"`
	Buffer  uint64     `json:"buffer"`     // most bytes requested at once
	Cost    int64      `json:"cost_ns"`    // in reads and writes
	Longest int64      `json:"longest_ns"` // of an operation or a run
	First   string     `json:"first"`      // the first operation: read, write, …
	Want    uint64     `json:"requested"`  // bytes
	Count   int        `json:"count"`
	Stack   int        `json:"stack"` // where the descriptor was opened
	Where   int        `json:"where"` // where the operation was called
	Advice  string     `json:"advice"`
}

// IOCalls is how often a system call was made.
type IOCalls struct {
	Call   string `json:"call"`
	Calls  uint64 `json:"calls"`
	Errors uint64 `json:"errors"`
	Time   uint64 `json:"time_ns"`
}

// IONames has the files, calls, frames and stacks that operations refer to by index. In a chunk, they
// are those that are new since the chunk before, and First is how many there were.
type IONames struct {
	First  [4]int    `json:"first"` // Files, Calls, Frames, Stacks
	Files  []IOPath  `json:"files"`
	Calls  []string  `json:"calls"` // system calls
	Frames []IOFrame `json:"frames"`
	Stacks []IOStack `json:"stacks"`
}

// IOPath is a file, or another object of a descriptor.
type IOPath struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // see iowatch.Kind
}

// IOFrame is a frame of a stack.
type IOFrame struct {
	Func   string `json:"func"` // "": unknown
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Module string `json:"module,omitempty"`
	Addr   uint64 `json:"addr,omitempty"` // in the target
}

// IOStack is a stack at a system call.
type IOStack struct {
	Frames []int  `json:"frames"`           // leaf first
	Hidden []int  `json:"hidden,omitempty"` // positions in Frames that are the own ones of a runtime, such as an interpreter
	Cut    string `json:"cut,omitempty"`    // why it is not complete
}

// IOOp is an operation that succeeded, or a slow call.
type IOOp struct {
	TID    stack.TID
	Op     iowatch.Op // read, write, sync, open, make, close, connect, fault or call
	Begin  stack.Time
	Took   int64 // ns from begin to end
	Queued int64 // ns of those in which the thread waited for a CPU
	FD     int32 // 0 of a fault; -1 of a call on a path
	File   int   // index of IONames.Files; -1: unknown
	Call   int   // index of IONames.Calls; -1: unknown
	Want   int64 // bytes requested; of an open, its flags; of a connect, the size of the address
	Ret    int64 // the call's result: bytes, a descriptor, or 0; of a call that was slow, also an error
	Stack  int   // index of IONames.Stacks; -1: none
	Missed bool  // a read waited, since the page cache did not have the data
}

// End returns when the operation ended.
func (o *IOOp) End() stack.Time { return o.Begin + stack.Time(o.Took) }

// Busy returns the ns that it took, without waits for a CPU.
func (o *IOOp) Busy() int64 { return o.Took - o.Queued }

// Bounds on what a hostile recording can make a reader keep.
const (
	maxIOFiles    = 1 << 18
	maxIOCalls    = 1 << 10
	maxIOFrames   = 1 << 20
	maxIOStacks   = 1 << 18
	maxIODepth    = 1 << 12
	maxIOFindings = 1 << 14
)

// add appends the names of a chunk.
func (n *IONames) add(x *IONames) error {
	if have := [4]int{len(n.Files), len(n.Calls), len(n.Frames), len(n.Stacks)}; x.First != have {
		return fmt.Errorf("chunk %s: names begin at %v, %v are known", chunkIONames, x.First, have)
	}
	if len(n.Files)+len(x.Files) > maxIOFiles || len(n.Calls)+len(x.Calls) > maxIOCalls || len(n.Frames)+len(x.Frames) > maxIOFrames ||
		len(n.Stacks)+len(x.Stacks) > maxIOStacks {
		return fmt.Errorf("chunk %s: more than %d files, %d calls, %d frames or %d stacks", chunkIONames, maxIOFiles, maxIOCalls, maxIOFrames, maxIOStacks)
	}
	frames := len(n.Frames) + len(x.Frames)
	for i := range x.Stacks {
		if len(x.Stacks[i].Frames) > maxIODepth {
			return fmt.Errorf("chunk %s: stack of %d frames, at most %d are allowed", chunkIONames, len(x.Stacks[i].Frames), maxIODepth)
		}
		for _, at := range x.Stacks[i].Hidden {
			if at < 0 || at >= len(x.Stacks[i].Frames) {
				return fmt.Errorf("chunk %s: frame %d of %d in a stack is hidden", chunkIONames, at, len(x.Stacks[i].Frames))
			}
		}
		for _, f := range x.Stacks[i].Frames {
			if f < 0 || f >= frames {
				return fmt.Errorf("chunk %s: frame %d of %d", chunkIONames, f, frames)
			}
		}
	}
	n.Files, n.Calls = append(n.Files, x.Files...), append(n.Calls, x.Calls...)
	n.Frames, n.Stacks = append(n.Frames, x.Frames...), append(n.Stacks, x.Stacks...)
	return nil
}

// Path returns a file's path, "" if it is unknown.
func (n *IONames) Path(file int) string {
	if file < 0 || file >= len(n.Files) {
		return ""
	}
	return n.Files[file].Path
}

// Call returns the name of a system call, "" if it is unknown.
func (n *IONames) Call(call int) string {
	if call < 0 || call >= len(n.Calls) {
		return ""
	}
	return n.Calls[call]
}

// Stack returns the frames of a stack, leaf first, and why it is not complete; nil if there is none.
// Without full, frames of a runtime below or between the functions that it runs are left out.
func (n *IONames) Stack(stack int, full bool) (frames []IOFrame, cut string) {
	if stack < 0 || stack >= len(n.Stacks) {
		return nil, ""
	}
	s := &n.Stacks[stack]
	for i, f := range s.Frames {
		if full || !slices.Contains(s.Hidden, i) {
			frames = append(frames, n.Frames[f])
		}
	}
	return frames, s.Cut
}

// IO notes the accounts so far.
func (r *Recorder) IO(x *IO) { r.noteLocked(chunkIO, x) }

// IONames notes further names.
func (r *Recorder) IONames(x *IONames) { r.noteLocked(chunkIONames, x) }

// Ops notes operations of any threads, in the order in which they ended.
func (r *Recorder) Ops(ops []IOOp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(r.w.Ops(ops))
}

// IO writes the accounts; the newest chunk counts.
func (w *Writer) IO(x *IO) error { return w.json(chunkIO, x) }

// IONames writes further names.
func (w *Writer) IONames(x *IONames) error { return w.json(chunkIONames, x) }

// takeIO reads an IO chunk.
func (rec *Recording) takeIO(b []byte) error {
	var x IO
	if err := json.Unmarshal(b, &x); err != nil {
		return err
	}
	if len(x.Files) > maxIOFiles || len(x.Rings) > maxIOFiles || len(x.Findings) > maxIOFindings || len(x.Calls) > maxIOCalls {
		return fmt.Errorf("chunk %s: %d files, %d findings, %d calls, more than %d, %d, %d", chunkIO, len(x.Files), len(x.Findings), len(x.Calls),
			maxIOFiles, maxIOFindings, maxIOCalls)
	}
	rec.IO = &x
	return nil
}

// takeIONames reads an IONames chunk.
func (rec *Recording) takeIONames(b []byte) error {
	var x IONames
	if err := json.Unmarshal(b, &x); err != nil {
		return err
	}
	return rec.IONames.add(&x)
}

package iowatch

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/sliverprof/sliver/internal/plural"
)

// Issue is a finding for JSON. The fields from Path to Repeat have the names and units of Matrix's
// SharePluginInfo.
type Issue struct {
	Rule   Rule   `json:"rule"`
	Type   int    `json:"type"` // Matrix: 1 main thread, 2 small buffer, 3 repeated read, 4 leak; 0: its own rules have none
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes; -1: unknown
	Op     uint64 `json:"op"`
	Buffer uint64 `json:"buffer"` // bytes
	Cost   int64  `json:"cost"`   // ms
	OpType int    `json:"opType"` // 1 read, 2 write, 0 neither
	OpSize uint64 `json:"opSize"` // requested bytes
	Thread string `json:"thread"`
	Stack  string `json:"stack"` // a line for each frame, leaf first
	Repeat int    `json:"repeat"`

	Kind    string `json:"kind"`
	TID     int32  `json:"tid"`
	At      int64  `json:"at_ns"`      // CLOCK_MONOTONIC
	CostNs  int64  `json:"cost_ns"`    // reads and writes
	Longest int64  `json:"longest_ns"` // operation or run
	Where   string `json:"where,omitempty"`
	Host    string `json:"host,omitempty"` // dns: the name that was looked up
	Call    string `json:"call,omitempty"` // the system call of a finding that is not about reads and writes
	Advice  string `json:"advice"`
}

// Issue returns the finding with the thread's name and the texts of its two stacks.
func (f *Finding) Issue(thread, opened, where string) Issue {
	t := map[Rule]int{MainIO: 1, SmallBuffer: 2, RepeatRead: 3, Leak: 4}[f.Rule]
	op := 0
	switch f.First {
	case OpRead:
		op = 1
	case OpWrite:
		op = 2
	}
	return Issue{Rule: f.Rule, Type: t, Path: f.Path, Size: f.Size, Op: f.Ops, Buffer: f.Buffer, Cost: f.Cost / 1e6, OpType: op, OpSize: f.Bytes,
		Thread: thread, Stack: opened, Repeat: f.Count, Kind: f.Kind.String(), TID: int32(f.TID), At: int64(f.At), CostNs: f.Cost, Longest: f.Longer,
		Where: where, Host: f.Host, Call: f.Call, Advice: f.Advice()}
}

// Advice is a sentence that says what to change.
func (f *Finding) Advice() string {
	name := path.Base(f.Path)
	mean := uint64(0)
	if f.Ops > 0 {
		mean = f.Bytes / f.Ops
	}
	took := short(f.Longer)
	switch f.Rule {
	case MainIO, LoopIO:
		if f.Call != "" || f.First == OpFault {
			return f.held(name, took)
		}
		if f.Rule == LoopIO {
			return fmt.Sprintf("I/O on %s held the event loop for %s: use a worker thread or asynchronous I/O.", name, took)
		}
		if f.Count&2 != 0 {
			return fmt.Sprintf("The main thread read or wrote %s for %s without a pause: move this to another thread.", name, took)
		}
		return fmt.Sprintf("One operation on %s held the main thread for %s: move it to another thread.", name, took)
	case SmallBuffer:
		return fmt.Sprintf("%s on %s with %d bytes on average took %s in a row: use a buffer of 4096 bytes or more.", plural.Of(f.Ops, "operation"), name, mean, took)
	case RepeatRead:
		return fmt.Sprintf("%s was read %d times in the same way without a change: keep its contents in memory.", name, f.Count)
	case Leak:
		return fmt.Sprintf("%d %s that were opened at this place are still open, and the number grows: close them on every path.", f.Count, f.leaking())
	case Fsync:
		if f.Kind == KindDir {
			name = "The folder " + name
		}
		return fmt.Sprintf("%s was synced %d times within a second with few bytes in between: group several changes into one %s.", name, f.Count, f.Call)
	case SyncWrite:
		return fmt.Sprintf("%s is open with O_SYNC or O_DSYNC, and %s waited for the disk each time: collect them, or sync once at the end.", name, plural.Of(f.Count, "small write"))
	case SmallWrite:
		return fmt.Sprintf("%s to %s in a short time: put a buffer in front of the file.", plural.Of(f.Count, "small write"), name)
	case RepeatOpen:
		if f.Writes {
			return fmt.Sprintf("%s was opened for writing %d times in a short time: keep it open.", name, f.Count)
		}
		return fmt.Sprintf("%s was opened %d times in a short time: read it once and keep the result, or keep it open.", name, f.Count)
	case DNS:
		if f.Count == 0 {
			return fmt.Sprintf("The name server %s gave no answer%s for %s: check it, and look names up on another thread.", f.Path, about(f.Host), took)
		}
		return fmt.Sprintf("A lookup%s at the name server %s took %s: keep the answers, or look names up on another thread.", of(f.Host), f.Path, took)
	case Churn:
		return fmt.Sprintf("%s to %s %s opened in a short time and closed soon: keep connections open and use them again.", plural.Of(f.Count, "connection"), f.Path, plural.Word(f.Count, "was", "were"))
	case CacheMiss:
		return fmt.Sprintf("%d of %d reads of %s waited for storage, %s in all, since its pages were not in memory: read ahead (posix_fadvise), keep the data in memory, or give the page cache more.", f.Count, f.Ops, name, took)
	case PageFault:
		if f.Path == Swapped {
			return fmt.Sprintf("%s waited for memory that was swapped out: give the process more memory, or lock what has to be fast (mlock).", plural.Of(f.Count, "page fault"))
		}
		return fmt.Sprintf("%s in %s waited for storage, %s in all, since its pages were not in memory: have it read ahead (madvise MADV_WILLNEED, MAP_POPULATE), or read it.", plural.Of(f.Count, "page fault"), name, took)
	}
	return ""
}

// leaking names the descriptors of a leak by what they are: anonymous ones by their path, as /proc has it.
func (f *Finding) leaking() string {
	if name, ok := strings.CutPrefix(f.Path, "anon_inode:"); ok {
		return strings.Trim(name, "[]") + " descriptors"
	}
	switch {
	case strings.HasPrefix(f.Path, "/memfd:"):
		return "memfd descriptors"
	case f.Kind == KindFile:
		return "files"
	case f.Kind == KindDir:
		return "folders"
	case f.Kind == KindFIFO, f.Kind == KindSocket:
		return f.Kind.String() + "s"
	}
	return f.Kind.String() + " descriptors"
}

// held is the sentence for a call that is neither read nor write.
func (f *Finding) held(name, took string) string {
	who, other := "the event loop", "a worker thread"
	if f.Main {
		who, other = "the main thread", "another thread"
	}
	switch {
	case f.First == OpFault:
		return fmt.Sprintf("A page fault in %s held %s for %s: read the file on another thread, or have it read ahead (madvise MADV_WILLNEED, MAP_POPULATE).", name, who, took)
	case f.Call == "flock" || f.Call == "fcntl":
		return fmt.Sprintf("%s waited for a lock on %s and held %s for %s: take the lock on %s, or hold it for less time.", f.Call, name, who, took, other)
	}
	return fmt.Sprintf("%s of %s held %s for %s: call it on %s.", f.Call, name, who, took, other)
}

// about and of add a name that is known to a sentence.
func about(host string) string { return known(" about ", host) }

func of(host string) string { return known(" of ", host) }

func known(word, host string) string {
	if host == "" {
		return ""
	}
	return word + host
}

func short(ns int64) string {
	d := time.Duration(ns)
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// Places groups findings that one rule has about several files at the same place: what to change is the same. The
// groups are in the order of their first findings.
func Places(all []*Finding) [][]*Finding {
	type place struct {
		rule          Rule
		opened, where StackID
	}
	var out [][]*Finding
	at := map[place]int{}
	for _, f := range all {
		k := place{f.Rule, f.Stack, f.Where}
		i, ok := at[k]
		if !ok || f.Stack == 0 && f.Where == 0 {
			i = len(out)
			at[k] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], f)
	}
	return out
}

package canary

import (
	"bytes"
	"context"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/sliverprof/sliver/linux/files"
	"github.com/sliverprof/sliver/linux/syscalls"
	"github.com/sliverprof/sliver/session/internal/live"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/target"
)

// Blocked is a system call on a file in which the main thread was seen blocked for longer than the
// limit.
type Blocked struct {
	Call string        `json:"call"`
	Path string        `json:"path"`
	Long time.Duration `json:"longest_ns"` // at least
}

// Report is the contents of /proc that need no further rights.
type Report struct {
	Span           time.Duration  `json:"span_ns"`
	Read           int64          `json:"read_bytes"` // that the process's calls moved; -1: unknown
	Written        int64          `json:"written_bytes"`
	ReadCalls      int64          `json:"read_calls"`
	WriteCalls     int64          `json:"write_calls"`
	Disk           int64          `json:"storage_read_bytes"`
	DiskOut        int64          `json:"storage_written_bytes"`
	Before         map[string]int `json:"descriptors_before"` // by kind
	After          map[string]int `json:"descriptors"`
	Blocked        []Blocked      `json:"blocked"`
	BlockedDropped int            `json:"blocked_dropped"`
}

// Outside looks at a process from outside until ctx or the process ends: counters of /proc/PID/io, the
// number of descriptors by kind, and calls in which the main thread is blocked for longer than slow.
func Outside(ctx context.Context, p *target.Process, slow time.Duration) (*Report, error) {
	return outsideFrom(ctx, p, slow, func() {})
}

// outsideFrom is Outside; began is called when the first numbers are known.
func outsideFrom(ctx context.Context, p *target.Process, slow time.Duration, began func()) (*Report, error) {
	dir, err := live.OpenProc(p)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	o := &outside{p: p, fs: dir.Config(nil).Proc, slow: slow}
	o.table = files.New(files.Config{PID: p.PID(), Proc: o.fs, Now: func() int64 { return int64(target.Now()) }})
	start := time.Now()
	r := &Report{Before: o.kinds(), Blocked: []Blocked{}}
	first := o.counters()
	th, err := p.Thread(stack.TID(p.PID()))
	if err != nil {
		return nil, err
	}
	defer th.Close()
	began()
	every := time.NewTicker(max(slow/4, time.Millisecond))
	defer every.Stop()
	for looked := time.Now(); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-every.C:
		}
		o.look(th, r)
		if time.Since(looked) >= tickEvery {
			looked = time.Now()
			if !p.Alive() {
				return r.finish(o, first, start), nil
			}
			r.After = o.kinds()
			o.counters()
		}
	}
	return r.finish(o, first, start), nil
}

// finish completes the report with the differences to the first numbers.
func (r *Report) finish(o *outside, first map[string]int64, start time.Time) *Report {
	if k := o.kinds(); len(k) > 0 {
		r.After = k
	}
	last := o.counters()
	r.Span = time.Since(start)
	r.Read, r.Written = between(first, last, "rchar"), between(first, last, "wchar")
	r.ReadCalls, r.WriteCalls = between(first, last, "syscr"), between(first, last, "syscw")
	r.Disk, r.DiskOut = between(first, last, "read_bytes"), between(first, last, "write_bytes")
	return r
}

// maxBlocked bounds the calls that are listed.
const maxBlocked = 100

type outside struct {
	p     *target.Process
	fs    files.Dir
	table *files.Table
	known map[string]int64 // the last counters: those of an ended process cannot be read
	slow  time.Duration

	call     stack.Call
	switches uint64
	since    time.Time // of call; zero: none
	at       int       // in Report.Blocked plus one; 0: not there
}

// waiting are calls that wait for storage, if their descriptor is a file.
var waiting = map[string]bool{"read": true, "pread64": true, "readv": true, "preadv": true, "preadv2": true, "write": true, "pwrite64": true, "writev": true,
	"pwritev": true, "pwritev2": true, "copy_file_range": true, "getdents64": true, "fsync": true, "fdatasync": true, "sync_file_range": true, "ftruncate": true, "fallocate": true}

// look sees whether the thread is still in the call of the look before.
func (o *outside) look(th *target.Thread, r *Report) {
	var call stack.Call
	var n target.Counters
	running, _, _, err := th.Syscall(&call)
	name := syscalls.Name(runtime.GOARCH, call.Nr)
	if err != nil || running || !waiting[name] || th.Counters(&n) != nil {
		o.since = time.Time{}
		return
	}
	now := time.Now()
	if o.since.IsZero() || o.call != call || o.switches != n.Switches {
		o.call, o.switches, o.since, o.at = call, n.Switches, now, 0
		return
	}
	long := now.Sub(o.since)
	if long <= o.slow {
		return
	}
	if o.at > 0 {
		r.Blocked[o.at-1].Long = long
		return
	}
	d := o.table.Describe(int(call.Args[0]))
	if d.Kind != files.File {
		return
	}
	if len(r.Blocked) >= maxBlocked {
		r.BlockedDropped++
		return
	}
	r.Blocked = append(r.Blocked, Blocked{name, d.Text, long})
	o.at = len(r.Blocked)
}

// Kinds counts the descriptors of a process by kind: file, socket, pipe, eventpoll …; nil if they cannot be read.
func Kinds(p *target.Process) map[string]int {
	dir, err := live.OpenProc(p)
	if err != nil {
		return nil
	}
	defer dir.Close()
	o := &outside{fs: dir.Config(nil).Proc}
	return o.kinds()
}

// kinds counts the descriptors by kind.
func (o *outside) kinds() map[string]int {
	names, err := o.fs.ReadDir("fd", maxList)
	if err != nil {
		return nil
	}
	n := map[string]int{}
	for _, name := range names {
		to, err := o.fs.ReadLink("fd/" + name)
		if err != nil {
			continue
		}
		kind, _, ok := strings.Cut(to, ":")
		switch {
		case strings.HasPrefix(to, "/"):
			kind = "file"
		case ok && kind == "anon_inode":
			kind = strings.Trim(to[len("anon_inode:"):], "[]")
		}
		n[kind]++
	}
	return n
}

// counters reads /proc/PID/io, or returns the last known ones; nil: not permitted.
func (o *outside) counters() map[string]int64 {
	b, err := o.fs.ReadFile("io", maxInfo)
	if err != nil || len(b) == 0 {
		return o.known
	}
	out := map[string]int64{}
	for line := range bytes.Lines(b) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil {
				out[string(name)] = n
			}
		}
	}
	o.known = out
	return out
}

func between(a, b map[string]int64, name string) int64 {
	x, ok1 := a[name]
	y, ok2 := b[name]
	if !ok1 || !ok2 {
		return -1
	}
	return y - x
}

package analysis

import (
	"slices"

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/trace"
)

// Process describes one of several processes.
type Process struct {
	PID     int      `json:"pid"`
	Parent  int      `json:"ppid,omitempty"`
	Comm    string   `json:"comm"`
	Exe     string   `json:"exe,omitempty"`
	Cmdline []string `json:"cmdline,omitempty"`
	Ended   bool     `json:"ended,omitempty"` // while others are recorded
	Exit    string   `json:"exit,omitempty"`  // how it ended: "exit status 1", "killed by SIGKILL"; "": unknown
}

// maxArguments limits the bytes of a command line that pages get.
const maxArguments = 1 << 10

// ProcessOf describes a process that is recorded.
func ProcessOf(p *trace.Process) Process {
	out := Process{PID: p.PID, Parent: p.Parent, Comm: p.Comm, Exe: p.Exe}
	left := maxArguments
	for _, a := range p.Cmdline {
		if left -= len(a) + 1; left < 0 {
			out.Cmdline = append(out.Cmdline, "…")
			break
		}
		out.Cmdline = append(out.Cmdline, a)
	}
	return out
}

// Recorded describes the process of a recording.
func Recorded(rec *trace.Recording) Process {
	out := ProcessOf(&rec.Process)
	if rec.End != nil {
		out.Exit = ExitText(rec.End.Exit)
	}
	return out
}

// ExitText describes how a process ended. A recording may hold any text for the name of a signal.
func ExitText(e *trace.Exit) string { return view.Text(e.String(), maxExit) }

// maxExit bounds that text, in bytes.
const maxExit = 64

// Equal reports whether both describe the same.
func (p *Process) Equal(x *Process) bool {
	return p.PID == x.PID && p.Parent == x.Parent && p.Comm == x.Comm && p.Exe == x.Exe && p.Ended == x.Ended && p.Exit == x.Exit && slices.Equal(p.Cmdline, x.Cmdline)
}

// Bases returns the number of each process's first thread where several processes have one timeline: the number of a thread is
// its Seq plus the base of its process.
func Bases(all []*trace.Recording) (base []int) {
	next := 0
	for i, one := range all {
		base = append(base, next)
		for k := range one.Threads {
			next = max(next, base[i]+one.Threads[k].Seq+1)
		}
	}
	return base
}

// Relations are the waits of the processes of a recording for each other.
type Relations struct {
	Crossings []Crossing // by end
	Path      []PathStep // by time
	More      int        // steps that are left out
}

// Relate finds them. base has the Bases of the views' processes.
func Relate(rec *trace.Recording, views []*view.View, base []int) (r Relations) {
	b := between.Of(rec, views)
	number := func(i, thread int) int {
		return NumberIn(views[i], thread, func(seq int) int { return base[i] + seq })
	}
	r.Crossings = Crossings(b, number)
	r.Path, r.More = path(rec, b, views, number)
	return r
}

package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/stack"
)

// LeftOut describes the processes that a recording of several processes should have and
// does not have.
type LeftOut struct {
	Seen  int    `json:"seen"`  // processes that belong to the recording
	Count int    `json:"count"` // of them, those without a sample
	Lost  uint64 `json:"lost"`  // reports of processes that the kernel dropped: an unknown number is missing
	How   string `json:"how"`   // how new processes were found
	// UsedNS is the CPU time of a command that was recorded to its end, with its descendants that were waited for,
	// by the kernel's account at its end; 0: unknown. CPUNS is the CPU time of the processes of the recording and of those in
	// Processes, by counters of the kernel where they have one. SampledNS is that of the samples, which all sums but those of
	// processes have; 0: not recorded.
	UsedNS    int64 `json:"used_ns,omitempty"`
	CPUNS     int64 `json:"cpu_ns,omitempty"`
	SampledNS int64 `json:"sampled_ns,omitempty"`
	// Processes are the first of Count.
	Processes []LeftProcess `json:"processes"`
}

// LeftProcess is a process that is not in the recording.
type LeftProcess struct {
	PID    int    `json:"pid"`
	Parent int    `json:"ppid,omitempty"`
	Name   string `json:"name"`
	Why    string `json:"why"`
	// Born and Gone are when it was made and when it ended, as the kernel reported it; 0: unknown.
	Born stack.Time `json:"born,omitempty"`
	Gone stack.Time `json:"gone,omitempty"`
	// CPU is its CPU time in ns; 0: unknown.
	CPU int64 `json:"cpu_ns,omitempty"`
}

// leastMissing is the part of the CPU time, as 1/leastMissing, from which on a line says that it is missing.
const leastMissing = 200

// leastTold is the CPU time, in ns, from which on its loss has a line: each process ends with some.
const leastTold = 5_000_000

// MaxLeft limits LeftOut.Processes.
const MaxLeft = 1000

func (rec *Recording) takeLeft(b []byte) error {
	var l LeftOut
	if err := json.Unmarshal(b, &l); err != nil {
		return err
	}
	if len(l.Processes) > MaxLeft {
		return fmt.Errorf("chunk %s: %d processes, at most %d", chunkLeft, len(l.Processes), MaxLeft)
	}
	rec.Left = &l
	return nil
}

// Lines describes l: a line for each reason, with the names of some of the processes; none
// if nothing is left out.
func (l *LeftOut) Lines() (out []string) {
	if l == nil {
		return nil
	}
	type group struct {
		n     int
		names []string
		cpu   int64
	}
	const most = 5
	groups := map[string]*group{}
	var order []string
	for i := range l.Processes {
		p := &l.Processes[i]
		g := groups[p.Why]
		if g == nil {
			g = &group{}
			groups[p.Why] = g
			order = append(order, p.Why)
		}
		g.cpu += p.CPU
		if g.n++; len(g.names) < most {
			g.names = append(g.names, fmt.Sprintf("%s (%d)", p.Name, p.PID))
		}
	}
	for _, why := range order {
		g := groups[why]
		s := fmt.Sprintf("%s not recorded (%s): ", processes(g.n), reasonOf(why, g.n))
		for i, name := range g.names {
			if i > 0 {
				s += ", "
			}
			s += name
		}
		if g.n > len(g.names) {
			s += fmt.Sprintf(" and %d more", g.n-len(g.names))
		}
		if g.cpu > 0 {
			s += fmt.Sprintf("; %v of CPU time", time.Duration(g.cpu).Round(time.Millisecond/10))
		}
		out = append(out, s)
	}
	if more := l.Count - len(l.Processes); more > 0 {
		out = append(out, fmt.Sprintf("%s more not recorded", processes(more)))
	}
	if text := l.missingText(); text != "" {
		out = append(out, text)
	}
	if l.Lost > 0 {
		out = append(out, fmt.Sprintf("%s of new processes lost: some processes are missing", plural.Of(l.Lost, "report")))
	}
	return out
}

// missingText describes the result of Missing, without the CPU time in the lines of processes; "": little.
func (l *LeftOut) missingText() string {
	missing, used := l.Missing()
	shown, unknown := int64(0), l.Count > len(l.Processes)
	for i := range l.Processes {
		shown += l.Processes[i].CPU
		unknown = unknown || l.Processes[i].CPU == 0
	}
	if missing -= shown; missing <= max(used/leastMissing, leastTold) {
		return ""
	}
	more, by := "", ""
	if shown > 0 {
		more = "a further "
	}
	if unknown {
		by = "processes that are not recorded, or by "
	}
	return fmt.Sprintf("%s%v of %v of CPU time: used by %sthreads before their first sample or after their last one, or to end processes",
		more, time.Duration(missing).Round(time.Millisecond), time.Duration(used).Round(time.Millisecond), by)
}

// reasonOf is a reason, which says "it" of one process, for n processes.
func reasonOf(why string, n int) string {
	if n == 1 {
		return why
	}
	words := strings.Fields(why)
	for i, w := range words {
		if of, ok := several[w]; ok {
			words[i] = of
		}
	}
	if len(words) > 0 && words[len(words)-1] == several["it"] {
		words[len(words)-1] = "them" // the object: "another program traces it"
	}
	return strings.Join(words, " ")
}

// several are the words for more than one process.
var several = map[string]string{"it": "they", "its": "their", "has": "have"}

// Missing returns the CPU time, in ns, that no sample of the recording has, of that which a command and its descendants used. 0: little.
func (l *LeftOut) Missing() (missing, used int64) {
	if l == nil {
		return 0, 0
	}
	used = max(l.UsedNS, l.CPUNS)
	if missing = used - cmp.Or(l.SampledNS, l.CPUNS); missing <= used/leastMissing {
		return 0, used
	}
	return missing, used
}

func processes(n int) string {
	return plural.Of(n, "process")
}

// Left records which processes are left out.
func (r *Recorder) Left(l LeftOut) { r.noteLocked(chunkLeft, l) }

// Limits of Unsampled.
const (
	leastUnsampled     = 50 * time.Millisecond
	leastUnsampledPart = 50 // 1/50 of the CPU time
)

// Unsampled returns the part of a process's CPU time that none of its threads has, where that of the threads is the given one: that of
// threads that ended before their first sample, and that after the last samples of threads. 0: little. All in ns, as the interval.
func Unsampled(all, threads, interval int64) int64 {
	missing := all - threads
	if missing < max(int64(leastUnsampled), 2*interval, all/leastUnsampledPart) {
		return 0
	}
	return missing
}

// UnsampledText describes the result of Unsampled, of a process that used all ns of CPU time.
func UnsampledText(missing, all int64) string {
	return fmt.Sprintf("%v of %v of CPU time: it was used by threads that ended before their first sample, or after the last sample of a thread",
		time.Duration(missing).Round(time.Millisecond), time.Duration(all).Round(time.Millisecond))
}

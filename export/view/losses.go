package view

import (
	"fmt"

	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/trace"
)

// Losses describes missing and cut data, one line each, such as "3 ticks late"; none if the
// recording is complete.
func (v *View) Losses() []string {
	return append(countedLosses(v.Rec.Stats.Total()), v.otherLosses(true)...)
}

// fewLost is the share of the samples below which the page's head says enough of lost ticks and events.
const fewLost = .01

// NotableLosses are Losses without counts that are few beside the samples.
func (v *View) NotableLosses() []string {
	t := v.Rec.Stats.Total()
	if float64(t.Lost()+t.Truncated) < fewLost*float64(t.Samples) {
		return v.otherLosses(true)
	}
	return v.Losses()
}

// Losses returns those of several views of one recording: numbers of all together, and what concerns a process with its name.
func Losses(all []*View) []string {
	if len(all) == 1 {
		return all[0].Losses()
	}
	var sum trace.ThreadStats
	for _, v := range all {
		t := v.Rec.Stats.Total()
		sum.Add(&t)
	}
	out := countedLosses(sum)
	for _, v := range all {
		for _, l := range v.Rec.Left.Lines() {
			out = append(out, Text(l, 300))
		}
	}
	for _, v := range all {
		for i, l := range v.otherLosses(false) {
			if i == maxReasons {
				break
			}
			if n := len(out) - maxLines; n >= 0 {
				return append(out, "and more: see each process alone")
			}
			out = append(out, v.Process()+": "+l)
		}
	}
	return out
}

// maxLines limits the losses of several processes.
const maxLines = 200

// countedLosses describes lost samples and events.
func countedLosses(t trace.ThreadStats) []string {
	var out []string
	add := func(n uint64, what, how string) {
		if n > 0 {
			out = append(out, plural.Of(n, what)+" "+how)
		}
	}
	add(t.Late, "tick", "late and left out")
	add(t.Rested, "tick", "left out of threads that mostly slept")
	add(t.Truncated, "stack", "truncated")
	add(t.TimedOut, "stop", "not confirmed in time")
	add(t.Denied, "sample", "denied")
	add(t.Stretched, "tick", "left out for the overhead budget")
	add(t.Overwritten, "event", "overwritten before being written")
	return out
}

// otherLosses describes what else the recording lacks; left: also the processes that it left out.
func (v *View) otherLosses(left bool) (out []string) {
	for i, u := range v.Rec.Stats.Unrecorded {
		if i == maxReasons {
			break
		}
		if u.Threads > 0 {
			out = append(out, Text(u.String(), 300))
		}
	}
	whole := int64(0) // of all processes, in a separate line
	if left {
		whole, _ = v.Rec.Left.Missing()
	}
	if missing := v.Unsampled(); missing > 0 && whole == 0 {
		out = append(out, trace.UnsampledText(missing, v.Rec.CPU()))
	}
	if left {
		for _, l := range v.Rec.Left.Lines() {
			out = append(out, Text(l, 300))
		}
	}
	if l := v.Rec.LostTasks().String(); l != "" {
		out = append(out, l)
	}
	out = append(out, tracedLosses(v.Rec.Traced)...)
	out = append(out, ioLosses(v.Rec.IO)...)
	out = append(out, switchLosses(v.Rec.Switches)...)
	if v.Rec.End == nil {
		out = append(out, "the recording was cut off: its end is not in the file")
	}
	for _, p := range v.Rec.Problems {
		out = append(out, "damaged: "+Text(p, 300))
	}
	return out
}

// Unsampled is trace.Unsampled of the recording's process.
func (v *View) Unsampled() int64 {
	return trace.Unsampled(v.Rec.CPU(), v.Rec.Stats.Total().CPUNS, v.Rec.Process.Interval)
}

// FewLosses returns the first of Losses, for a picture.
func FewLosses(all []*View) []string {
	notes := Losses(all)
	if n := len(notes) - fewLosses; n > 1 {
		notes = append(notes[:fewLosses], fmt.Sprintf("and %s", plural.Of(n, "more loss")))
	}
	return notes
}

const fewLosses = 12

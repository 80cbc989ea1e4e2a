package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/symbol/naming"
	"github.com/sliverprof/sliver/trace"
)

const processUsage = "of a recording of several processes, only these: PIDs and names, comma-separated"

// pickProcesses returns a recording of the processes that spec names: PIDs and names of
// programs, comma-separated.
func pickProcesses(rec *trace.Recording, spec string) (*trace.Recording, error) {
	if spec == "" {
		return rec, nil
	}
	words := strings.Split(spec, ",")
	out := rec.Pick(func(p *trace.Process) bool {
		return slices.ContainsFunc(words, func(w string) bool {
			w = strings.TrimSpace(w)
			return w == strconv.Itoa(p.PID) || w == p.Comm
		})
	})
	if out == nil {
		return nil, fmt.Errorf("no process of the recording matches %q; there are: %s", spec, recordedProcesses(rec))
	}
	return out, nil
}

// busiest returns the recordings of all processes, that with the most CPU time first.
func busiest(rec *trace.Recording) []*trace.Recording {
	all := rec.All()
	slices.SortStableFunc(all, func(a, b *trace.Recording) int { return cmp.Compare(b.CPU(), a.CPU()) })
	return all
}

func recordedProcesses(rec *trace.Recording) string {
	const most = 12
	var names []string
	for i, one := range busiest(rec) {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(rec.Others)+1-most))
			break
		}
		names = append(names, fmt.Sprintf("%s (%d)", printable(one.Process.Comm), one.Process.PID))
	}
	return strings.Join(names, ", ")
}

// nameAll looks up the names of all processes of rec that have none yet.
func nameAll(w io.Writer, rec *trace.Recording, o naming.Options) {
	for _, one := range rec.All() {
		if one.Symbols == nil {
			o.Captured = one.Captured
			addNames(w, one, o)
		}
	}
}

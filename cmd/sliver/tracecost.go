package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/sliverprof/sliver/export/report"
	"github.com/sliverprof/sliver/internal/plural"
	"github.com/sliverprof/sliver/session/exact"
)

// traceLimit is the flag --trace-limit.
type traceLimit exact.Limit

func (l *traceLimit) String() string { return exact.Limit(*l).String() }
func (l *traceLimit) Type() string   { return "limit" }

func (l *traceLimit) Set(s string) error {
	number, share := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	switch {
	case err != nil || v != v:
		return fmt.Errorf("invalid limit %q (examples: 20%%, 20000)", s)
	case v < 0 || v > 1e12:
		return errors.New("out of range; use 0 (no limit) or more")
	case share:
		*l = traceLimit{Share: v / 100}
	default:
		*l = traceLimit{Hits: v}
	}
	return nil
}

// limitText is a limit as messages have it.
func limitText(l exact.Limit) string {
	if l.Hits > 0 {
		return l.String() + " entries and exits a second"
	}
	return l.String()
}

// tracedNames returns the names of n traced functions as messages have them: with the file's name where several have one
// name.
func tracedNames(n int, function func(i int) (name, module string)) []string {
	count := map[string]int{}
	for i := range n {
		name, _ := function(i)
		count[name]++
	}
	out := make([]string, n)
	for i := range out {
		name, module := function(i)
		if out[i] = printable(name); count[name] > 1 && module != "" {
			out[i] += " (" + printable(path.Base(module)) + ")"
		}
	}
	return out
}

// hotLine says why a function was detached, and what shows it from then on.
func hotLine(name string, h *exact.Hot, limit exact.Limit, then string) string {
	return fmt.Sprintf("%s was called too often to trace: %.0f times a second, which cost %s of a CPU (limit %s, --trace-limit); it was detached, %s",
		printable(name), h.Calls, share(h.Share), limitText(limit), then)
}

// costLine says what tracing cost the program; "": nothing.
func costLine(st *exact.Stats) string {
	if st.Cost == 0 {
		return ""
	}
	how := ""
	if st.Hit.Assumed {
		how = ", as assumed"
	}
	return fmt.Sprintf("tracing cost the program about %s, %s of a CPU: %s, %s for an entry and %s for an exit%s", span(st.Cost),
		share(tracedShare(st)), plural.Either(hitsOf(st), "entry or exit", "entries and exits"), moment(int64(st.Hit.Enter)), moment(int64(st.Hit.Exit)), how)
}

// tracedShare is the cost of tracing as a share of a CPU.
func tracedShare(st *exact.Stats) float64 {
	if st.Traced <= 0 {
		return 0
	}
	return float64(st.Cost) / float64(st.Traced)
}

// hitsOf returns the number of all entries and exits, with lost ones.
func hitsOf(st *exact.Stats) uint64 {
	n := st.Lost
	for i := range st.Funcs {
		n += st.Funcs[i].Hits
	}
	return n
}

// tracingJSON is the cost of tracing as JSON.
type tracingJSON struct {
	Engine  string  `json:"engine"`
	Hits    uint64  `json:"hits"`
	CostNS  int64   `json:"cost_ns"`
	Share   float64 `json:"cpu_share"`
	EnterNS int64   `json:"enter_ns"`
	ExitNS  int64   `json:"exit_ns"`
	Assumed bool    `json:"assumed"`
}

func tracingOf(engine string, st *exact.Stats) *tracingJSON {
	return &tracingJSON{engine, hitsOf(st), int64(st.Cost), tracedShare(st), int64(st.Hit.Enter), int64(st.Hit.Exit), st.Hit.Assumed}
}

// MarshalJSON writes null for the times if no call has a known begin and end.
func (f functionLine) MarshalJSON() ([]byte, error) {
	type plain functionLine
	if f.known > 0 {
		return json.Marshal(plain(f))
	}
	type line struct{ plain }
	return json.Marshal(struct {
		line
		report.NoTimes
	}{line: line{plain(f)}})
}

package testprog

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Call is one call that a chain program made, by its own log. All times are in ns of
// CLOCK_MONOTONIC.
//
// The call began in [Call, Begin] and ended in [End, Return]; the thread may have been
// off the CPU for any part of that.
type Call struct {
	Thread string `json:"thread"`
	TID    int    `json:"tid"`    // 0: a goroutine that is not bound to a thread
	Func   string `json:"func"`   // demangled, without parameters and return type; for Go the linker's name
	Depth  int    `json:"depth"`  // reported functions between it and the root; 0 for the root
	Call   int64  `json:"call"`   // the caller's clock before the call
	Begin  int64  `json:"begin"`  // the function's clock as its first act
	End    int64  `json:"end"`    // the function's clock as its last act
	Return int64  `json:"return"` // the caller's clock after the call
	Work   string `json:"work"`   // its own work: "spin", "sleep" or "poll"
}

// Duration returns the minimum duration of the call.
func (c *Call) Duration() time.Duration { return time.Duration(c.End - c.Begin) }

// Summary is the last line of a report.
type Summary struct {
	Calls       int    `json:"calls"`
	Interrupted int    `json:"interrupted"` // blocking calls that returned EINTR
	Script      string `json:"script"`      // hash of the script of all threads, the same for all languages
}

// ReadReport reads a chain program's report: the calls sorted by thread, time and depth,
// and the summary. A report without its last line is an error.
func ReadReport(r io.Reader) ([]Call, Summary, error) {
	var calls []Call
	var last struct{ Summary *Summary }
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		if last.Summary != nil {
			return nil, Summary{}, fmt.Errorf("report line %d: after the summary", n)
		}
		if err := json.Unmarshal(sc.Bytes(), &last); err != nil {
			return nil, Summary{}, fmt.Errorf("report line %d: %w", n, err)
		}
		if last.Summary != nil {
			continue
		}
		var c Call
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			return nil, Summary{}, fmt.Errorf("report line %d: %w", n, err)
		}
		calls = append(calls, c)
	}
	if err := sc.Err(); err != nil {
		return nil, Summary{}, fmt.Errorf("report: %w", err)
	}
	if last.Summary == nil || last.Summary.Calls != len(calls) {
		return nil, Summary{}, fmt.Errorf("report: %d calls, summary %+v", len(calls), last.Summary)
	}
	slices.SortFunc(calls, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Thread, b.Thread), cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.Depth, b.Depth))
	})
	return calls, *last.Summary, nil
}

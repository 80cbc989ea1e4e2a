package trigger

import (
	"strings"
	"testing"
	"time"

	"github.com/sliverprof/sliver/stack"
)

func callRule(t *testing.T, text string) *Rule {
	t.Helper()
	r, err := Parse(Call, text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseSlowCall(t *testing.T) {
	for text, want := range map[string]struct {
		fn     string
		slower time.Duration
	}{
		"handle":                              {"handle", 0},
		"handle slower=200ms":                 {"handle", 200 * time.Millisecond},
		"handle,slower=1s,cool=5m":            {"handle", time.Second},
		"operator new slower=1ms, threads=w*": {"operator new", time.Millisecond},
		"std::map<int, int>::at slower=1ms":   {"std::map<int, int>::at", time.Millisecond},
		"/^get_(a|b)$/ slower=2s":             {"/^get_(a|b)$/", 2 * time.Second},
		"server.c:handle slower=100us":        {"server.c:handle", 100 * time.Microsecond},
	} {
		if r := callRule(t, text); r.Function != want.fn || r.Slower != want.slower {
			t.Errorf("%q: %q, %v", text, r.Function, r.Slower)
		}
	}
	for text, says := range map[string]string{"f slower=": "invalid time", "f slower=99us": "use 100µs to 24h", "f,slower=x": "example: slower=200ms", " slower=1s": "name of a function",
		"/(/ slower=1s": "function pattern"} {
		if _, err := Parse(Call, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	if _, err := Parse(Slow, "f>1s,slower=1s"); err == nil || !strings.Contains(err.Error(), "no such option") {
		t.Errorf("slower for another trigger: %v", err)
	}
	mine, least := Slower([]*Rule{callRule(t, "f"), callRule(t, "g slower=2s"), callRule(t, "h slower=1s")})
	if len(mine) != 2 || least != time.Second {
		t.Errorf("%v, %v", mine, least)
	}
}

// TestSlowCalls: traced calls fire their own rule if they took long enough, in the threads that the rule picks; samples
// of the function find a call that does not end, later.
func TestSlowCalls(t *testing.T) {
	w := newWorld(t, 2, "call f5 slower=100ms,cool=0s", "call f6 slower=50ms,threads=main,cool=0s", "call f6 slower=10ms,cool=1s")
	look := func(traced bool, cs ...SlowCall) []Fired {
		w.now += 100 * ms
		l := &Look{Now: w.now, Slow: cs, Threads: []*Track{w.threads[0].track, w.threads[1].track}}
		l.Traced = func(*Rule) bool { return traced }
		return w.set.Check(l)
	}
	f5, f6, soon := w.set.rules[0].Rule, w.set.rules[1].Rule, w.set.rules[2].Rule
	got := look(true, SlowCall{Rule: f5, Function: "f5", TID: 101, Enter: 900 * ms, Took: int64(120 * ms)})
	if len(got) != 1 || got[0].At != 900*ms || got[0].TID != 101 || got[0].Text != "thread 101 (worker-1) was in f5 for 120ms" || got[0].Values[1] != (Value{"for", "120ms"}) {
		t.Errorf("%+v", got)
	}
	if got := look(true, SlowCall{Rule: f5, Function: "f5", TID: 101, Took: int64(99 * ms)}); got != nil {
		t.Errorf("too short: %+v", got)
	}
	call := SlowCall{Function: "f6", TID: 101, Took: int64(60 * ms), How: "open"}
	other := call
	call.Rule, other.Rule = f6, soon
	if got := look(true, call, other); len(got) != 1 || got[0].Rule != soon || !strings.HasSuffix(got[0].Text, "for 60ms (open)") {
		t.Errorf("of another thread: %+v", got)
	}
	call.TID = 100
	if got := look(true, call, other); len(got) != 1 || got[0].Rule != f6 {
		t.Errorf("in the time of silence: %+v", got)
	}
	call.TID = 555 // gone
	if got := look(true, call); got != nil {
		t.Errorf("of a thread without a name: %+v", got)
	}
	call.Rule, call.TID = f5, 555
	call.Took = int64(time.Second)
	if got := look(true, call); len(got) != 1 || got[0].TID != 555 || !strings.HasPrefix(got[0].Text, "thread 555 was in f6") {
		t.Errorf("of a thread that is gone: %+v", got)
	}
	for range 20 { // one long call of f5, as samples have it
		w.now += interval
		w.sample(1, -1, false, fn{1, 0}, fn{5, 2})
	}
	w.now += interval
	w.sample(1, futex, false, fn{1, 0}, fn{5, 2}, fn{9, 1})
	for range 20 {
		w.now += interval
		w.sample(1, futex, true, fn{1, 0}, fn{5, 2}, fn{9, 1})
	}
	if got := look(true); got != nil {
		t.Errorf("by samples of a traced function: %+v", got)
	}
	if got := look(false); len(got) != 1 || got[0].Rule != f5 || got[0].TID != stack.TID(101) || !strings.Contains(got[0].Text, "is in f5 for") {
		t.Errorf("by samples: %+v", got)
	}
	w.now += interval
	w.sample(1, -1, false, fn{1, 0})
	w.now += interval
	for n := range 400 {
		w.sample(1, futex, n > 0, fn{1, 0}, fn{5, 3}, fn{9, 1})
		w.now += interval
		if got := look(true); len(got) > 0 {
			if n < 40 || !strings.Contains(got[0].Text, "is in f5 for 5.") {
				t.Errorf("after %d samples: %+v", n, got)
			}
			return
		}
	}
	t.Error("a traced call that does not end is not found")
}
